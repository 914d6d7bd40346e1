"""The verbs: what each is called, what it is for, how it is typed, and where it is done."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow_provider_checkpoint.cli import arguments as known
from airflow_provider_checkpoint.cli import values

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from airflow_provider_checkpoint.cli.arguments import Argument
    from airflow_provider_checkpoint.cli.console import Console
    from airflow_provider_checkpoint.layouts import Layout

_VERBS = "airflow_provider_checkpoint.cli.verbs"


@dataclass(frozen=True, slots=True)
class Verb:
    name: str
    summary: str
    paragraph: str
    examples: tuple[tuple[str, str], ...]
    """What to type after the verb, and what it does."""
    place: str
    """Module and function, imported when the verb is used."""
    arguments: tuple[Argument, ...] = ()

    @property
    def all_arguments(self) -> tuple[Argument, ...]:
        return (known.URI, *self.arguments, *known.COMMON)

    def epilog(self, program: str) -> str:
        lines = [f"  # {purpose}\n  {program} {self.name} {typed}" for typed, purpose in self.examples]
        return "Examples:\n" + "\n".join(lines)

    def load(self) -> Callable[[Layout, Namespace, Console], int]:
        """The function that does it."""
        module, _, function = self.place.partition(":")
        loaded: Any = getattr(import_module(f"{_VERBS}.{module}"), function)
        return loaded  # type: ignore[no-any-return] # a test calls each of them


VERBS = (
    Verb(
        "list",
        "Show the checkpoints of a store.",
        "One line for each checkpoint, newest first: its epoch, age and size, the timeline it is on, who pinned it,"
        " whether its sinks have committed, and how far and how long ago it was proven. PROVEN tells what the last"
        " validation found; a checkpoint that was never proven may be broken.",
        (
            ("s3://lake/orders", "everything in a store"),
            ("/data/checkpoints --pipeline orders --trash", "one pipeline, and what can be undeleted"),
            ("s3://lake/orders --json | jq '.checkpoints[0]'", "for a program"),
        ),
        "listing:run",
        (known.argument("--trash", action="store_true", help="also show what is in the trash"),),
    ),
    Verb(
        "show",
        "Show everything about one checkpoint.",
        "Its manifest in words, its artifacts, source positions and sinks, its pins, what the last validation found,"
        " and which checkpoints depend on it. Works for a checkpoint in the trash, too.",
        (
            ("s3://lake/orders 42", "one checkpoint"),
            ("s3://lake/orders 42 --artifacts 1000", "with up to 1000 of its artifacts"),
        ),
        "show:run",
        (
            known.checkpoint_id("the checkpoint"),
            known.argument(
                "--artifacts",
                metavar="N",
                type=values.count,
                default=20,
                help="how many artifacts to show (default: 20; --json has all)",
            ),
        ),
    ),
    Verb(
        "validate",
        "Prove that checkpoints can be restored.",
        "Without ids all checkpoints are proven, to depth presence. Depths: structure reads the manifest; presence also"
        " looks whether each artifact is there and has its size; content reads them and compares digests; restore"
        " decodes them as a restart would. What was found goes into a ledger in the store, which list and prune use. "
        "Exit code 1 says that at least one is invalid.",
        (
            ("s3://lake/orders", "is everything there?"),
            ("s3://lake/orders 41 42 --depth restore", "a restore drill for two of them"),
            ("s3://lake/orders --rolling --budget-bytes 5GB --budget 10m", "every night a bit"),
        ),
        "validate:run",
        known.VALIDATE,
    ),
    Verb(
        "prune",
        "Move checkpoints that no rule keeps to the trash.",
        "Shows for each checkpoint whether it stays and why; with --yes those that go are moved to the trash, from"
        " which undelete brings them back until a sweep. Whatever the rules say, these stay: the newest that can"
        " be restored, pinned ones, savepoints, what a kept one depends on, and what is dated in the future.",
        (
            ("s3://lake/orders --keep-last 3 --keep-daily 14", "what would go?"),
            ("s3://lake/orders --keep-last 3 --keep-daily 14 --yes", "do it"),
            ("s3://lake/orders --keep-within 7d --min-age 24h --depth content --yes", "prove more before"),
        ),
        "prune:run",
        (*known.PRUNE, *known.REMOVING),
    ),
    Verb(
        "sweep",
        "Remove for good what was pruned long ago.",
        "Deletes the artifacts of checkpoints whose undo window has passed, unless another checkpoint, live or in the"
        " trash, needs them. After that they cannot be undeleted.",
        (
            ("s3://lake/orders", "what would go?"),
            ("s3://lake/orders --undo-window 7d --yes", "remove what was pruned over a week ago"),
        ),
        "sweep:run",
        (*known.SWEEP, *known.REMOVING),
    ),
    Verb(
        "undelete",
        "Bring a pruned checkpoint back.",
        "Puts its manifest back where it was. Works from the prune until a sweep has begun to remove it.",
        (
            ("s3://lake/orders 41", "bring it back"),
            ("s3://lake/orders 41 --json", "for a program"),
        ),
        "undelete:run",
        (known.checkpoint_id("a checkpoint in the trash; list --trash shows them"), known.BY),
    ),
    Verb(
        "orphans",
        "Find and remove objects that no checkpoint needs.",
        "What a writer left when it died: artifacts that no manifest names, live or in the trash, and half-written"
        " objects. Young ones are left alone, because a checkpoint that is being written looks the same; objects with"
        " names of others are never touched. If unusually much would go, --yes also needs --confirm.",
        (
            ("s3://lake/orders", "what would go, and why?"),
            ("s3://lake/orders --min-age 48h --max-bytes 100GB --yes", "remove it"),
        ),
        "orphans:run",
        (*known.ORPHANS, *known.REMOVING),
    ),
    Verb(
        "recover",
        "Choose the point to go back to, and say why.",
        "Looks from the newest checkpoint down and takes the first that fits and can be proven. Answers with the"
        " choice, each one passed over and why, how much will be done again, what must happen to the sinks, and what"
        " has changed since. Nothing is restored or changed. Exit code 1 says that no checkpoint fits.",
        (
            ("s3://lake/orders --max-rollback 2h", "the newest that can be trusted, not too old"),
            ("s3://lake/orders --strategy before_time --at 2026-11-15T14:05Z", "before a bad deployment"),
            (
                "s3://lake/orders --strategy before_offset --source orders --partition orders-0 --offset 4711",
                "such that a record is read again",
            ),
        ),
        "recover:run",
        known.RECOVER,
    ),
    Verb(
        "pin",
        "Promise that a checkpoint stays.",
        "A pinned checkpoint survives every prune, until it is unpinned or the pin expires. It does not count for"
        " --keep-last.",
        (
            ("s3://lake/orders 42 --name before-migration --reason 'schema change on Monday'", "until unpinned"),
            ("s3://lake/orders 42 --name audit-q4 --reason 'audit' --owner finance --expires 90d", "for a while"),
        ),
        "pins:pin",
        (known.checkpoint_id("the checkpoint"), *known.PIN, known.BY),
    ),
    Verb(
        "unpin",
        "Take a pin away.",
        "The checkpoint itself stays until a prune finds no rule that keeps it.",
        (
            ("s3://lake/orders before-migration", "take it away"),
            ("s3://lake/orders before-migration --json", "for a program"),
        ),
        "pins:unpin",
        (known.argument("name", metavar="NAME", help="the name of the pin; list shows them"), known.BY),
    ),
    Verb(
        "restore",
        "Go back to a checkpoint.",
        "Opens a timeline that goes on after the checkpoint: from then on every writer that still runs is refused, and"
        " whoever starts next continues there. What came after belongs to an abandoned branch; it stays until a rule"
        " removes it. Which checkpoint to take, recover tells. A checkpoint directory of Spark is copied as it was"
        " after the batch (--to), and the query started on the copy; stop it first.",
        (
            (
                "/data/checkpoints/clicks 41 --to /data/checkpoints/clicks-2 --file-sink /data/clicks --yes",
                "a query of Spark, and its output",
            ),
            ("s3://lake/orders 41 --reason 'bad deployment at 14:05'", "what would happen?"),
            ("s3://lake/orders 41 --reason 'bad deployment at 14:05' --yes", "go back"),
        ),
        "restore:run",
        (known.checkpoint_id("the checkpoint to go back to"), *known.RESTORE, *known.REMOVING),
    ),
    Verb(
        "timeline",
        "Show the branches of history.",
        "Every start of a writer opens a timeline that forks after the checkpoint it starts from. What came after that"
        " checkpoint belongs to an abandoned branch, from which nothing is chosen by itself.",
        (
            ("s3://lake/orders", "which branches are there?"),
            ("s3://lake/orders --json | jq .current", "for a program"),
        ),
        "timeline:run",
    ),
    Verb(
        "report",
        "Write the history of a pipeline as one HTML file.",
        "A picture of the checkpoints along time with their branches, what each weighs and whether it was proven, where"
        " the sources stood, what retention would take and why, and the audit trail. The file needs nothing else, so"
        " it can be kept with an incident or a build. Rules tell what retention to preview; by default that of the DAG"
        " checkpoint_maintenance. Nothing is changed.",
        (
            ("s3://lake/orders --output orders.html", "the history of a store"),
            ("s3://lake/orders --keep-last 3 --keep-daily 14", "what would these rules take, and when?"),
        ),
        "report:run",
        known.REPORT,
    ),
    Verb(
        "diagnose",
        "Say why a streaming query does not start, and what helps.",
        "For checkpoint directories that Spark wrote itself. Reads what Spark reads when it starts and more: tells"
        " what Spark would say, what is really wrong, which fix is exact, and which batches can be gone back to. It"
        " also finds what Spark passes over in silence, such as a flipped bit in a RocksDB file. Nothing is changed."
        " Exit code 1 says that the query cannot go on as it is.",
        (
            ("s3://lake/checkpoints/clicks", "why does it not start?"),
            ("s3://lake/checkpoints/clicks --depth presence", "a quick look, without reading state"),
            ("s3://lake/checkpoints/clicks --file-sink s3://lake/clicks", "does its output fit, and is it whole?"),
            ("/data/checkpoints/clicks --json | jq '.recoverable'", "for a program"),
        ),
        "diagnose:run",
        known.DIAGNOSE,
    ),
    Verb(
        "seal",
        "Keep the digests of the files that a batch needs.",
        "For checkpoint directories that Spark wrote itself. Proves a batch and writes down the SHA-256 of each file"
        " it needs, beside the directory. From then on validate compares digests: that is quick, and finds a file that"
        " is whole and wrong, such as an older copy. Sealing again only compares; changed files are an error.",
        (
            ("s3://lake/checkpoints/clicks", "the newest batch"),
            ("s3://lake/checkpoints/clicks 41 42", "two batches"),
        ),
        "seal:run",
        known.SEAL,
    ),
    Verb(
        "synthesize",
        "Make a new directory for a changed query.",
        "For checkpoint directories that Spark wrote itself. A query whose operators have changed cannot go on from its"
        " old directory. The new one has a single batch, which has read exactly what the given batch had, and no state;"
        " a changed query that keeps no state goes on from there. Newer versions of Spark refuse one that does.",
        (
            ("/data/checkpoints/clicks 41 --to /data/checkpoints/clicks-new", "start where batch 41 stood"),
            ("/data/checkpoints/clicks 41 --to /data/checkpoints/clicks-new --json", "for a program"),
        ),
        "synthesize:run",
        (known.checkpoint_id("the batch"), *known.SYNTHESIZE),
    ),
    Verb(
        "audit",
        "Show who changed what, and when.",
        "Every run that changes a store leaves a record before it begins and one when it has ended. A run without an"
        " end was interrupted; running it again finishes it.",
        (
            ("s3://lake/orders", "the last 20 runs"),
            ("s3://lake/orders -n 100 --json", "for a program"),
        ),
        "audit:run",
        known.AUDIT,
    ),
)
