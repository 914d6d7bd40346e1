"""The picture: told apart without colour, no larger for thousands, and well-formed."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from xml.etree import ElementTree as ET

import pytest

from airflow_provider_checkpoint.lifecycle.trash import TrashEntry
from airflow_provider_checkpoint.model import CheckpointId
from airflow_provider_checkpoint.reports.picture import FINE, legend, picture
from airflow_provider_checkpoint.reports.views import State, Windows, view
from tests.unit.reports.facts_made import NOW, checkpoint, facts, fork, pin


def drawn(made, link=lambda points: f"#p{points[0].id}") -> ET.Element:
    found = view(made, Windows())
    return ET.fromstring(str(picture(found.points, found.trash, found.forks, link=link)))


def shapes(root: ET.Element) -> dict[str, str]:
    """Kind of element and the form of each mark, by its class."""
    return {
        each.get("class"): f"{each.tag} {re.sub('[^a-zA-Z]', '', each.get('d') or '')}"
        for each in root.iter()
        if (each.get("class") or "").startswith(("mark", "pin"))
    }


def test_every_state_has_a_shape_of_its_own():
    points = [checkpoint(number, hours=10 - number) for number in range(1, 6)]
    trash = TrashEntry(
        checkpoint_id=CheckpointId(9), trashed=NOW, by="ada", run="r", reasons=("old",), keys=(), artifacts=()
    )
    made = facts(
        points,
        proven=(1,),
        invalid=(3,),
        pins=(pin("keep", 1),),
        timelines=(fork(2, 1, 3),),
        trash=(trash,),
    )
    found = shapes(drawn(made))
    assert set(found) == {f"mark {state}" for state in State} | {"pin"}
    # Full and open circles differ in their filling.
    assert len(set(found.values())) >= len(found) - 1
    for each in found:
        assert each in str(legend())


def test_marks_lead_to_their_checkpoint_and_say_what_they_are():
    root = drawn(facts([checkpoint(1, hours=2), checkpoint(2, hours=1)], invalid=(2,)))
    links = {each.get("href"): each.get("aria-label") for each in root.iter("a")}
    assert set(links) == {"#p1", "#p2"}
    assert "2: invalid, epoch 2" in links["#p2"]


@pytest.mark.parametrize("number", [1, 2, 50, 1000])
def test_thousands_of_checkpoints_make_no_larger_a_picture(number):
    root = drawn(facts([checkpoint(each, hours=number - each) for each in range(1, number + 1)]))
    marks = list(root.iter("a"))
    assert 1 <= len(marks) <= FINE
    assert len(ET.tostring(root)) < 60_000
    told = sum(int(text.text) for text in root.iter("text") if "count" in text.get("class", ""))
    singles = sum(1 for each in root.iter() if (each.get("class") or "").startswith("mark"))
    assert told + singles == number, "each checkpoint is in the picture"


def test_a_group_with_an_invalid_one_shows_that():
    points = [checkpoint(each, hours=(100 - each) / 100) for each in range(1, 101)]
    points.insert(0, checkpoint(0, hours=1000))
    root = drawn(facts(points, invalid=(50,)))
    assert any(each.get("class") == "group invalid" for each in root.iter())
    assert any(each.get("class") == "mark invalid" for each in root.iter())


def test_branches_that_were_left_have_lanes_and_many_share_them():
    points, timelines = [checkpoint(1, hours=100)], []
    for number in range(2, 30):
        points.append(checkpoint(number, hours=100 - number, timeline=number - 1, epoch=number))
        timelines.append(fork(number, 1 if number == 2 else number - 1, 1, minutes=60 * (100 - number)))
    root = drawn(facts(points, timelines=tuple(timelines)))
    labels = [each.text for each in root.iter("text")]
    assert labels.count("history") == 1
    assert 1 <= labels.count("left behind") <= 5


def test_all_at_one_moment_is_drawn_too():
    made = facts([checkpoint(each, hours=1) for each in (1, 2, 3)])
    assert [each.text for each in drawn(made).iter("text") if each.get("class", "").startswith("count")] == ["3"]


def test_an_empty_store_has_no_picture():
    assert "no checkpoints" in str(picture([], [], [], link=lambda _: None))


def test_bars_show_full_against_delta():
    root = drawn(facts([checkpoint(1, hours=2), checkpoint(2, hours=1)]))
    bars = {
        kind: [float(each.get("height")) for each in root.iter("rect") if each.get("class") == kind]
        for kind in ("full", "delta")
    }
    assert bars["full"] == pytest.approx([76 * 1000 / 1200] * 2, rel=0.01)
    assert bars["delta"] == pytest.approx([76 * 200 / 1200] * 2, rel=0.01)


@pytest.mark.parametrize("edges", [("max",), ("min",), ("min", "max")])
def test_the_ends_of_the_calendar_are_drawn_too(edges):
    """What a manifest says of its time may be anything."""
    points = [
        checkpoint(number, hours=0, created=getattr(datetime, edge).replace(tzinfo=UTC))
        for number, edge in enumerate(edges, 1)
    ]
    root = drawn(facts(points, timelines=(fork(2, 1, 1),)))
    assert len(list(root.iter("a"))) == len(edges)


def test_whoever_cannot_see_the_picture_reaches_the_marks_in_it():
    """What is inside an image is hidden from a screen reader."""
    assert drawn(facts([checkpoint(1, hours=1)])).get("role") == "group"


def test_times_are_told_with_their_zone():
    there = timezone(timedelta(hours=9))
    made = facts([checkpoint(1, hours=0, created=(NOW - timedelta(hours=1)).astimezone(there)), checkpoint(2, hours=0)])
    labels = [each.text for each in drawn(made).iter("text")]
    assert "UTC" in labels
    assert "11-15 11:00" in labels


def test_the_number_of_a_group_is_read_though_one_in_it_is_pinned():
    points = [checkpoint(each, hours=(100 - each) / 100) for each in range(1, 101)]
    root = drawn(facts([checkpoint(0, hours=1000), *points], pins=(pin("keep", 50),)))
    [ring] = [each.get("d") for each in root.iter("path") if each.get("class") == "pin"]
    [number] = [each for each in root.iter("text") if each.text == "100"]
    top, height = (float(word) for word in re.findall(r"M[0-9.]+ ([0-9.]+) l([0-9.]+)", ring)[0])
    assert top + 2 * height < float(number.get("y")) - 8
