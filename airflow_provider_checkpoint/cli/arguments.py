"""Arguments as data, in argparse's terms. The keys used are also those of Airflow's own ``Arg``."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.cli import values

if TYPE_CHECKING:
    from collections.abc import Mapping

# Repeated from ``model.Depth`` and ``lifecycle.recovery.Strategy``: importing those would make --help slow.
DEPTHS = ("structure", "presence", "content", "restore")
STRATEGIES = ("latest", "id", "before_time", "before_epoch", "before_watermark", "before_offset", "pin")
LAYOUTS = ("auto", "sidecar", "partitioned", "stream", "structured_streaming")


@dataclass(frozen=True, slots=True)
class Argument:
    flags: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    group: str = ""
    """The heading under which ``--help`` shows it."""


def argument(*flags: str, group: str = "", **settings: Any) -> Argument:
    return Argument(flags, settings, group)


# -- of every verb -----------------------------------------------------------------------------------------------

_STORE = "the store"
_OUTPUT = "output"

URI = argument(
    "uri", metavar="URI", help="where the checkpoints are: a folder, s3://bucket/prefix, gs://..., az://..., ..."
)

COMMON = (
    argument(
        "--layout",
        group=_STORE,
        choices=LAYOUTS,
        default="auto",
        help="the format of the checkpoints; auto (default) recognises it from what is there",
    ),
    argument("--pipeline", group=_STORE, metavar="NAME", help="the pipeline below URI: a folder, or a stream's name"),
    argument(
        "-o",
        "--option",
        dest="options",
        group=_STORE,
        metavar="NAME=VALUE",
        type=values.setting,
        action="append",
        default=[],
        help="how to reach the store: endpoint_url, region, profile, anonymous, ... (repeat for more). Secrets do not"
        " belong on a command line: set AWS_SECRET_ACCESS_KEY and the like, or use --option-file",
    ),
    argument("--option-file", group=_STORE, metavar="FILE", help="a JSON file with such options; may hold secrets too"),
    argument(
        "--vnode-count",
        group=_STORE,
        metavar="N",
        type=values.vnode_count,
        help="vnodes the job runs with; checkpoints with another number do not fit it (default: any number fits)",
    ),
    argument(
        "--json", group=_OUTPUT, action="store_true", help="one JSON document on stdout; messages still go to stderr"
    ),
    argument("--debug", group=_OUTPUT, action="store_true", help="show where an error comes from"),
)

BY = argument("--by", metavar="NAME", help="who does this, for the audit trail (default: user@host)")
YES = argument(
    "--yes", action="store_true", help="do it; without this nothing is changed and the plan is shown (a dry run)"
)
# Accepted so that the default can be said aloud.
DRY_RUN = argument("--dry-run", action="store_true", help="only show the plan; this is the default")
REMOVING = (YES, DRY_RUN, BY)


def depth(default: str, help_text: str) -> Argument:
    return argument("--depth", choices=DEPTHS, default=None, help=f"{help_text} (default: {default})")


def checkpoint_id(help_text: str) -> Argument:
    return argument("id", metavar="ID", help=help_text)


# -- of single verbs ---------------------------------------------------------------------------------------------

_SELECTION = "which checkpoints"
_WORK = "how much work"

_THREADS = argument(
    "--threads",
    group=_WORK,
    metavar="N",
    type=values.positive,
    default=8,
    help="artifacts looked at side by side (default: 8)",
)

VALIDATE = (
    argument("ids", metavar="ID", nargs="*", group=_SELECTION, help="checkpoints to prove (default: all)"),
    argument("--all", group=_SELECTION, action="store_true", help="all of them; this is the default"),
    argument(
        "--sample",
        group=_SELECTION,
        metavar="N|P%",
        type=values.sample,
        help="so many at random, or such a share; the newest is always among them",
    ),
    argument(
        "--rolling", group=_SELECTION, action="store_true", help="least recently proven first, until a budget is spent"
    ),
    depth("presence; with --rolling: content", "how far the proof goes"),
    argument(
        "--budget-bytes",
        group=_WORK,
        metavar="SIZE",
        type=values.size,
        help="begin no other checkpoint once so much was read, such as 5GB",
    ),
    argument(
        "--budget",
        "--budget-seconds",
        dest="budget_seconds",
        group=_WORK,
        metavar="SPAN",
        type=values.seconds,
        help="begin no other checkpoint after so long, such as 10m or 600",
    ),
    _THREADS,
    argument(
        "--no-record",
        action="store_true",
        help="do not write the outcome into the store's ledger (for credentials that may only read)",
    ),
)

DIAGNOSE = (
    depth("content", "how far files are looked into"),
    argument(
        "--file-sink",
        metavar="URI",
        help="the output of Spark's file sink; look into its log and for its files, too",
    ),
    _THREADS,
)
SEAL = (
    argument("ids", metavar="ID", nargs="*", group=_SELECTION, help="batches to seal (default: the newest)"),
    _THREADS,
)

_KEEP = "what to keep (a checkpoint goes only if no rule keeps it)"

PRUNE = (
    argument("--keep-last", group=_KEEP, metavar="N", type=values.count, help="the newest N that can be restored"),
    argument(
        "--keep-within",
        group=_KEEP,
        metavar="SPAN",
        type=values.span,
        help="all younger than SPAN, such as 7d, and the newest before",
    ),
    *(
        argument(
            f"--keep-{adverb}",
            group=_KEEP,
            metavar="N",
            type=values.count,
            help=f"the newest of each of the last N {unit}s that have one",
        )
        for adverb, unit in (
            ("hourly", "hour"),
            ("daily", "day"),
            ("weekly", "week"),
            ("monthly", "month"),
            ("yearly", "year"),
        )
    ),
    argument("--every-n-epochs", group=_KEEP, metavar="N", type=values.positive, help="the first of every N epochs"),
    argument(
        "--min-age", group=_KEEP, metavar="SPAN", type=values.span, help="nothing younger goes, whatever the rules"
    ),
    argument(
        "--time-zone",
        group=_KEEP,
        metavar="ZONE",
        default="UTC",
        help="where hours, days and weeks begin, such as Europe/Berlin (default: UTC)",
    ),
    depth("presence", "how the checkpoints that count are proven before anything goes"),
)

REPORT = (
    argument("--output", metavar="FILE", default="report.html", help="the file to write (default: report.html)"),
    argument(
        "--freshness-warn",
        metavar="SPAN",
        type=values.span,
        default=timedelta(hours=1),
        help="from when on the newest checkpoint is late (default: 1h)",
    ),
    argument(
        "--freshness-fail",
        metavar="SPAN",
        type=values.span,
        default=timedelta(hours=6),
        help="from when on it is stale (default: 6h)",
    ),
    # Nothing goes, so nothing is proven.
    *(each for each in PRUNE if "--depth" not in each.flags),
)

SWEEP = (
    argument(
        "--undo-window",
        metavar="SPAN",
        type=values.span,
        help="what was pruned longer ago leaves for good (default: 24h)",
    ),
)

ORPHANS = (
    argument(
        "--min-age",
        metavar="SPAN",
        type=values.span,
        help="younger objects are left alone (default: 24h; never below 1h)",
    ),
    argument(
        "--max-share",
        metavar="SHARE",
        type=values.share,
        help="ask if more than this share of all artifacts would go (default: 50%%)",
    ),
    argument("--max-bytes", metavar="SIZE", type=values.size, help="ask if more than this would go, such as 100GB"),
    argument("--confirm", action="store_true", help="with --yes: go ahead although the plan is unusual"),
)

_WHICH = "which point"
_LIMITS = "limits"
_JOB = "the job that will be started"

RECOVER = (
    argument(
        "--strategy",
        group=_WHICH,
        choices=STRATEGIES,
        help="how to choose (default: from the other arguments, else latest)",
    ),
    argument("--id", group=_WHICH, metavar="ID", help="this checkpoint and no other"),
    argument("--at", group=_WHICH, metavar="TIME", type=values.moment, help="made at or before this time"),
    argument("--epoch", group=_WHICH, metavar="N", type=values.count, help="of an epoch before this one"),
    argument("--watermark", group=_WHICH, metavar="N", type=values.number, help="with a watermark not above this"),
    argument("--source", group=_WHICH, metavar="NAME", help="with --offset: the source"),
    argument("--partition", group=_WHICH, metavar="NAME", help="with --offset: its partition, if it has several"),
    argument("--offset", group=_WHICH, metavar="N", type=values.count, help="from which the record at N is read again"),
    argument("--pin", group=_WHICH, metavar="NAME", help="the checkpoint that bears this pin"),
    argument("--skip", group=_WHICH, metavar="ID", action="append", default=[], help="not this one (repeat for more)"),
    depth("content", "how a candidate is proven before it is chosen"),
    argument(
        "--max-rollback", group=_LIMITS, metavar="SPAN", type=values.span, help="at most so much older than the newest"
    ),
    argument(
        "--max-rollback-epochs", group=_LIMITS, metavar="N", type=values.count, help="at most so many epochs behind it"
    ),
    argument(
        "--fresh-start-ok",
        group=_LIMITS,
        action="store_true",
        help="if no point fits, answer with a fresh start instead of exit code 1",
    ),
    argument("--pipeline-hash", group=_JOB, metavar="N", type=values.number, help="the hash of the job"),
    argument(
        "--hash-policy",
        group=_JOB,
        choices=("ignore", "warn", "require"),
        default="warn",
        help="what a checkpoint with another hash means (default: warn)",
    ),
    argument(
        "--expect-source",
        group=_JOB,
        metavar="NAME",
        action="append",
        help="a source of the job; warns of new and lost ones (repeat for more)",
    ),
    argument("--expect-sink", group=_JOB, metavar="NAME", action="append", help="likewise a sink"),
)

PIN = (
    argument("--name", required=True, metavar="NAME", help="what the pin is called"),
    argument("--reason", required=True, metavar="TEXT", help="why the checkpoint must stay"),
    argument("--owner", metavar="NAME", help="who wants it to stay (default: user@host)"),
    argument(
        "--expires", metavar="SPAN|TIME", type=values.expiry, help="until when, such as 30d (default: until unpinned)"
    ),
)

_SPARK = "for checkpoint directories of Spark"

RESTORE = (
    argument("--reason", metavar="TEXT", default="", help="why, for the record"),
    depth("content", "how the checkpoint is proven first"),
    argument("--to", group=_SPARK, metavar="URI", help="where the copy goes that ends with the batch; an empty place"),
    argument(
        "--new-query-id",
        group=_SPARK,
        action="store_true",
        help="give the copy an id of its own, for sinks that remember batches by it (Delta, Iceberg)",
    ),
    argument(
        "--missing-input-ok",
        group=_SPARK,
        action="store_true",
        help="go on although input is gone that would be read again; its rows will be missing",
    ),
    argument(
        "--file-sink",
        group=_SPARK,
        metavar="URI",
        help="the output of Spark's file sink; what it published after the batch is removed, too",
    ),
    argument(
        "--batch-folders",
        group=_SPARK,
        metavar="URI",
        help="output of foreachBatch in folders batch_id=N; those after the batch are removed, too",
    ),
)

SYNTHESIZE = (
    argument("--to", metavar="URI", required=True, help="where the new directory goes; an empty place"),
    argument(
        "--keep-watermark", action="store_true", help="go on with the watermark, so that what was late then is late now"
    ),
)

AUDIT = (
    argument("-n", dest="limit", metavar="N", type=values.positive, default=20, help="how many runs (default: 20)"),
)
