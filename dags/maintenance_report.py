"""The report of ``checkpoint_maintenance``: one line for each pipeline."""

from __future__ import annotations

from typing import Any

STEPS = ("validate", "prune", "sweep", "orphans")


def rows_of(names: list[str], instance: Any) -> list[dict[str, Any]]:
    """What each step answered for each pipeline, without its plan; None where it did not get that far.

    A step that fails may have answered before, so what did not succeed is told apart, as ``undone``.
    """
    ended = instance.get_task_breadcrumbs(dag_id=instance.dag_id, run_id=instance.run_id)
    done = {(each["task_id"], each["map_index"]) for each in ended if each["state"] == "success"}
    rows = []
    for index, name in enumerate(names):
        row: dict[str, Any] = {"pipeline": name}
        for step in STEPS:
            answer = instance.xcom_pull(task_ids=f"care.{step}", map_indexes=index)
            row[step] = answer and {key: value for key, value in answer.items() if key != "plan"}
        row["undone"] = [step for step in STEPS if (f"care.{step}", index) not in done]
        rows.append(row)
    return rows


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
        if row["undone"]:
            troubles.append(f"{row['pipeline']}: {', '.join(row['undone'])} did not finish")
        validate = row["validate"] or {}
        if validate.get("invalid"):
            troubles.append(f"{row['pipeline']}: cannot be restored: {', '.join(validate['invalid_ids'])}")
    return troubles
