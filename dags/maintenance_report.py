"""The report of ``checkpoint_maintenance``: one line for each pipeline."""

from __future__ import annotations

from typing import Any

STEPS = ("validate", "prune", "sweep", "orphans")


def rows_of(names: list[str], instance: Any) -> list[dict[str, Any]]:
    """What each step answered for each pipeline; None where it did not get that far."""
    found = {
        step: [instance.xcom_pull(task_ids=f"care.{step}", map_indexes=index) for index in range(len(names))]
        for step in STEPS
    }
    return [{"pipeline": name, **{step: found[step][index] for step in STEPS}} for index, name in enumerate(names)]


def table_of(rows: list[dict[str, Any]]) -> str:
    """The rows as text."""
    lines = [("PIPELINE", "PROVEN", "INVALID", "LEFT", "PRUNED", "SWEPT", "ORPHANS", "FREED BYTES")]
    for row in rows:
        validate, prune, sweep, orphans = (row[step] or {} for step in STEPS)
        freed = sum(answer.get("bytes_done", 0) for answer in (sweep, orphans))
        cells = (
            validate.get("valid", "-"),
            validate.get("invalid", "-"),
            validate.get("left", "-"),
            len(prune["removed"]) if prune else "-",
            len(sweep["swept"]) if sweep else "-",
            orphans.get("orphans", "-"),
            freed,
        )
        lines.append((row["pipeline"], *map(str, cells)))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def troubles_of(rows: list[dict[str, Any]]) -> list[str]:
    """What a person should look at."""
    troubles = []
    for row in rows:
        missing = [step for step in STEPS if row[step] is None]
        if missing:
            troubles.append(f"{row['pipeline']}: {', '.join(missing)} did not finish")
        validate = row["validate"] or {}
        if validate.get("invalid"):
            troubles.append(f"{row['pipeline']}: cannot be restored: {', '.join(validate['invalid_ids'])}")
    return troubles
