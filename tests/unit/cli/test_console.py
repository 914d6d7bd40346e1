"""Tables: readable on 80 columns, one line per row in a pipe, no colour where none is wanted."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_checkpoint.cli.console import Column, Console, Row
from airflow_provider_checkpoint.cli.text import age, ago, counted, short_span
from tests.unit.cli.making import partitioned_store

NOW = datetime(2026, 11, 15, 14, 5, tzinfo=UTC)


def console() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(json=False, now=NOW, out=out, err=io.StringIO()), out


def test_in_a_pipe_a_row_is_a_line_however_long(monkeypatch):
    made, out = console()
    made.table((Column("A"), Column("B")), [Row(("x" * 300, "y " * 100)), Row(("1", "2"))])
    assert len(out.getvalue().splitlines()) == 3
    assert not any(line.endswith(" ") for line in out.getvalue().splitlines())


def test_on_a_narrow_screen_long_cells_are_folded_and_nothing_is_lost(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    made, out = console()
    made.table((Column("ID", whole=True), Column("WHY")), [Row(("0123456789", "reason " * 20))])
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 40
    assert out.getvalue().count("reason") == 20
    assert "0123456789" in lines[1]


def test_on_a_screen_too_narrow_for_columns_each_cell_has_its_line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "24")
    made, out = console()
    columns = (Column("ID", whole=True), Column("SIZE", right=True, whole=True), Column("PROVEN"), Column("PINS"))
    made.table(columns, [Row(("0123456789", "1.0 kB", "presence 7s ago", "")), Row(("1", "2 B", "never", ["a", "b"]))])
    assert out.getvalue().splitlines() == [
        "ID      0123456789",
        "SIZE    1.0 kB",
        "PROVEN  presence 7s ago",
        "",
        "ID      1",
        "SIZE    2 B",
        "PROVEN  never",
        "PINS    a",
        "        b",
    ]


@pytest.mark.parametrize("columns", [40, 50, 60])
def test_nothing_of_a_list_is_lost_on_a_narrow_screen(run, tmp_path, monkeypatch, columns):
    ids = [str(checkpoint_id) for checkpoint_id in partitioned_store(tmp_path).candidates()]
    run("validate", tmp_path)
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = run("list", tmp_path).out
    for word in (*ids, "presence", "committed", "EPOCH", "PROVEN", "TIMELINE", "SINKS"):
        assert word in shown


def test_a_column_without_content_is_left_out_only_if_it_is_optional():
    made, out = console()
    made.table((Column("A"), Column("B", optional=True), Column("C")), [Row(("1", "", "")), Row(("2", "", ""))])
    assert out.getvalue().splitlines()[0].split() == ["A", "C"]


def test_cells_of_several_lines():
    made, out = console()
    made.table((Column("A"), Column("B")), [Row(("1", ["first", "second"]))])
    assert [line.split() for line in out.getvalue().splitlines()] == [["A", "B"], ["1", "first"], ["second"]]


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_a_list_of_uuids_with_pins_fits_and_can_be_copied(run, tmp_path, monkeypatch, columns):
    layout = partitioned_store(tmp_path)
    ids = [str(checkpoint_id) for checkpoint_id in layout.candidates()]
    run("pin", tmp_path, ids[0], "--name", "before-the-great-migration", "--reason", "x")
    run("validate", tmp_path)
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = run("list", tmp_path).out
    assert max(map(len, shown.splitlines())) <= columns
    for checkpoint_id in ids:
        assert sum(line.startswith(checkpoint_id) for line in shown.splitlines()) == 1


@pytest.mark.parametrize(("force", "no_color", "coloured"), [("1", None, True), ("1", "1", False), (None, None, False)])
def test_colour_only_on_a_terminal_and_not_against_the_users_will(monkeypatch, force, no_color, coloured):
    for name, value in (("FORCE_COLOR", force), ("NO_COLOR", no_color)):
        if value is not None:
            monkeypatch.setenv(name, value)
    made, out = console()
    made.line("x", "red")
    assert ("\x1b[31m" in out.getvalue()) is coloured


@pytest.mark.parametrize(
    ("seconds", "told"), [(0, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (7200, "2h"), (86_400 * 3 + 1, "3d")]
)
def test_ages_are_told_in_their_largest_unit(seconds, told):
    assert short_span(seconds) == told
    assert age(NOW - timedelta(seconds=seconds), NOW) == told
    assert ago(NOW - timedelta(seconds=seconds), NOW) == f"{told} ago"


def test_a_time_to_come_is_told_as_such():
    assert age(NOW + timedelta(hours=3), NOW) == ago(NOW + timedelta(hours=3), NOW) == "in 3h"


def test_numbers_agree_with_their_nouns():
    assert [counted(number, "checkpoint") for number in (0, 1, 2000)] == [
        "0 checkpoints",
        "1 checkpoint",
        "2,000 checkpoints",
    ]
