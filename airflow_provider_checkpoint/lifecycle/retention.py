"""Which checkpoints stay: small rules over facts, joined by "any keeps it", each answer with its reason.

Pure: the facts and the time are handed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from airflow_provider_checkpoint.lifecycle.spans import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from airflow_provider_checkpoint.model import CheckpointId


class RetentionPolicy(BaseModel):
    """What to keep. Rules are ORed: a checkpoint goes only if no rule keeps it.

    ``min_age`` is a guard rather than a rule: nothing younger goes, whatever the rules say. With ``keep_last`` it
    demands a count AND an age before anything is removed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    keep_last: int | None = Field(None, ge=0, description="The newest N that can be restored; pinned ones not counted.")
    keep_within: Span | None = Field(None, description="Everything younger, and the newest one before.")
    keep_hourly: int | None = Field(None, ge=0, description="The newest of each of the last N hours that have one.")
    keep_daily: int | None = Field(None, ge=0, description="Likewise per day.")
    keep_weekly: int | None = Field(None, ge=0, description="Likewise per ISO week.")
    keep_monthly: int | None = Field(None, ge=0, description="Likewise per month.")
    keep_yearly: int | None = Field(None, ge=0, description="Likewise per year.")
    every_n_epochs: int | None = Field(None, ge=1, description="The first of every N epochs.")
    min_age: Span | None = Field(None, description="Nothing younger than this goes.")
    time_zone: str = Field("UTC", description="Where hours, days, weeks, months and years begin.")

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(f"unknown time zone {name!r}; write it like 'Europe/Berlin'") from error
        return name

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if not any(getattr(self, name) is not None for name in RULES):
            raise ValueError(f"a policy without a rule would remove everything; give one of: {', '.join(RULES)}")
        return self


RULES = (
    "keep_last",
    "keep_within",
    "keep_hourly",
    "keep_daily",
    "keep_weekly",
    "keep_monthly",
    "keep_yearly",
    "every_n_epochs",
)


@dataclass(frozen=True, slots=True)
class Item:
    """What retention needs to know of one checkpoint."""

    id: CheckpointId
    created: datetime
    epoch: int = 0
    restorable: bool = True
    """Proven as far as the caller asked, sinks settled."""
    on_branch: bool = True
    """Part of the current history, not of a branch that was left."""
    pins: tuple[str, ...] = ()
    bases: frozenset[CheckpointId] = frozenset()
    """Checkpoints whose artifacts it needs."""
    protected: tuple[str, ...] = ()
    """Reasons from outside: a commit under way, the start of the current timeline, a savepoint."""
    unfit: str = ""
    """Why it is not restorable."""


@dataclass(frozen=True, slots=True)
class Verdict:
    id: CheckpointId
    keep: bool
    reasons: tuple[str, ...]


def decide(items: Iterable[Item], policy: RetentionPolicy, now: datetime) -> list[Verdict]:
    """One verdict per item, newest first.

    The newest is the one whose id was given out last, as it is for a recovery: a clock that was set back makes no
    checkpoint older. Spans and calendar periods go by the time a checkpoint was made.

    Whatever the policy says, these stay: the newest restorable checkpoint, pinned and protected ones, what a kept one
    depends on, and what is dated in the future, because then a clock is wrong and its age means nothing. If nothing is
    restorable, nothing goes.
    """
    # Python compares and subtracts two times of one zone by the face of its clock, wrong when that is set back.
    now = now.astimezone(UTC)
    ordered = sorted(items, key=_given_out, reverse=True)
    reasons: dict[CheckpointId, list[str]] = {item.id: [] for item in ordered}
    fit = [item for item in ordered if item.restorable and item.on_branch and item.created <= now]

    for item in ordered:
        reasons[item.id].extend(_own_reasons(item, policy, now))
    if fit:
        reasons[fit[0].id].append("newest restorable")
    else:
        # Without one good checkpoint there is no evidence that anything is superfluous.
        for item in ordered:
            reasons[item.id].append("nothing here can be restored: kept until a person has looked")
    _apply_rules(fit, policy, now, reasons)
    _keep_bases(ordered, reasons)
    no_rule = _no_rule(policy)
    return [
        Verdict(item.id, bool(kept), tuple(kept) if kept else (_why_removed(item, no_rule),))
        for item in ordered
        for kept in (reasons[item.id],)
    ]


def _given_out(item: Item) -> tuple[bool, int | str]:
    """Sorts as its id does, and much faster: by a comparison that is Python's own."""
    return isinstance(item.id.value, str), item.id.value


def _own_reasons(item: Item, policy: RetentionPolicy, now: datetime) -> list[str]:
    reasons = [f"pinned as {name!r}" for name in item.pins]
    reasons.extend(item.protected)
    if item.created > now:
        return [*reasons, "dated in the future: a clock is wrong"]
    if policy.min_age is not None and now - policy.min_age < item.created:
        reasons.append(f"younger than min_age {policy.min_age}")
    if policy.keep_within is not None and now - policy.keep_within <= item.created:
        reasons.append(f"within {policy.keep_within}")
    return reasons


def _apply_rules(
    fit: Sequence[Item], policy: RetentionPolicy, now: datetime, reasons: Mapping[CheckpointId, list[str]]
) -> None:
    if policy.keep_last is not None:
        counted = [item for item in fit if not item.pins]
        for position, item in enumerate(counted[: policy.keep_last], start=1):
            reasons[item.id].append(f"last {position} of {policy.keep_last}")
    by_time = sorted(fit, key=lambda item: item.created.astimezone(UTC), reverse=True)
    if policy.keep_within is not None:
        # The state at the start of the window is reached only through the newest one before it.
        before = next((item for item in by_time if item.created < now - policy.keep_within), None)
        if before is not None:
            reasons[before.id].append(f"newest before the window of {policy.keep_within}")
    zone = ZoneInfo(policy.time_zone)
    for rule, unit, period in _CALENDAR:
        count = getattr(policy, rule)
        if count:
            # Made one by one: the newest few mostly are enough.
            periods = (period(item.created.astimezone(zone)) for item in by_time)
            _keep_periods(by_time, count, unit, periods, reasons)
    if policy.every_n_epochs is not None:
        _keep_epochs(fit, policy.every_n_epochs, reasons)


def _keep_periods(
    by_time: Sequence[Item],
    count: int,
    unit: str,
    periods: Iterable[object],
    reasons: Mapping[CheckpointId, list[str]],
) -> None:
    """The newest of each of the last ``count`` periods that have one; if there are fewer, the oldest of all as well."""
    last: object = None
    kept = 0
    for item, current in zip(by_time, periods, strict=True):
        if current == last:
            continue
        last = current
        kept += 1
        reasons[item.id].append(f"{unit} {kept} of {count}")
        if kept == count:
            return
    if by_time and not any(reason.startswith(f"{unit} ") for reason in reasons[by_time[-1].id]):
        reasons[by_time[-1].id].append(f"{unit} (oldest there is)")


def _keep_epochs(fit: Sequence[Item], every: int, reasons: Mapping[CheckpointId, list[str]]) -> None:
    seen: set[int] = set()
    for item in sorted(fit, key=lambda item: (item.epoch, item.id)):
        if item.epoch // every not in seen:
            seen.add(item.epoch // every)
            reasons[item.id].append(f"first of {every} epochs")


def _keep_bases(ordered: Sequence[Item], reasons: Mapping[CheckpointId, list[str]]) -> None:
    """What a kept checkpoint depends on stays, and what that depends on."""
    by_id = {item.id: item for item in ordered}
    pending = [item for item in ordered if reasons[item.id]]
    while pending:
        item = pending.pop()
        for base in sorted(item.bases):
            if base in by_id:
                if not reasons[base]:
                    pending.append(by_id[base])
                reasons[base].append(f"base of {item.id}")


def _no_rule(policy: RetentionPolicy) -> str:
    asked = [f"{name}={getattr(policy, name)}" for name in RULES if getattr(policy, name) is not None]
    return f"no rule keeps it ({', '.join(asked)})"


def _why_removed(item: Item, no_rule: str) -> str:
    if not item.restorable:
        return f"cannot be restored: {item.unfit}" if item.unfit else "cannot be restored"
    if not item.on_branch:
        return "on an abandoned branch"
    return no_rule


def _hour(moment: datetime) -> Any:
    # The hour that a change of the clock repeats is two hours, told apart by their offset.
    return (moment.date(), moment.hour, moment.utcoffset())


_CALENDAR: tuple[tuple[str, str, Callable[[datetime], Any]], ...] = (
    ("keep_hourly", "hourly", _hour),
    ("keep_daily", "daily", lambda moment: moment.date()),
    ("keep_weekly", "weekly", lambda moment: moment.isocalendar()[:2]),
    ("keep_monthly", "monthly", lambda moment: (moment.year, moment.month)),
    ("keep_yearly", "yearly", lambda moment: moment.year),
)
