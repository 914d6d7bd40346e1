"""Whole pages: what they tell, and that nothing in a store can break out of them."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from airflow_provider_checkpoint.lifecycle.records import Proof
from airflow_provider_checkpoint.lifecycle.trash import TrashEntry
from airflow_provider_checkpoint.model import CheckpointId, KafkaPartition, KafkaPosition, MysqlCdcPosition
from airflow_provider_checkpoint.reports.checkpoint import Actions, Detail, Recovery, checkpoint_page
from airflow_provider_checkpoint.reports.file import report
from airflow_provider_checkpoint.reports.markup import document
from airflow_provider_checkpoint.reports.overview import PipelineRow, StoreRows, overview
from airflow_provider_checkpoint.reports.parts import SiteLinks
from airflow_provider_checkpoint.reports.pipeline import PAGE, Shown, pipeline_page
from airflow_provider_checkpoint.reports.views import Windows, view
from tests.unit.reports.facts_made import NOW, checkpoint, facts, fork, hostile_facts
from tests.unit.reports.reading import HOSTILE, Page

ANY = st.one_of(st.sampled_from([each for each in HOSTILE if each != "\ud800"]), st.text(min_size=1))
WINDOWS = Windows()


def shown(made, part: Shown | None = None, links=None) -> Page:
    body = pipeline_page(view(made, WINDOWS), made, links or SiteLinks("../", "lake", "orders"), part or Shown())
    return Page.of(document("t", *body, scripted=True))


def actions(text: str = "lake", **more) -> Actions:
    recovery = Recovery(text, "../../../api/v2/dags/x/dagRuns", "../../../dags/x/runs/", restart_dags=(text,), **more)
    return Actions(may_change=True, recovery=recovery, connection=text, pipeline=text)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(ANY)
@example("²")
def test_whatever_names_a_store_holds_no_page_is_broken_by_them(text):
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    made = hostile_facts(text)
    links = SiteLinks("../", text, text)
    found = view(made, WINDOWS)
    Page.of(report(made, title=text, windows=WINDOWS))
    shown(made, links=links)
    shown(made, Shown(window=(NOW - timedelta(days=1), NOW)), links)
    rows = [StoreRows(text, text, (PipelineRow(text, found.summary), PipelineRow(text, None, text)))]
    Page.of(document(text, *overview(rows, now=NOW, nothing=text), scripted=True))
    known = made.store.known[1]
    detail = Detail(found.points[0], known.checkpoint, made.store.ledger[known.id], NOW)
    for state in (found.points[0], found.points[-1]):
        one = Detail(state, detail.checkpoint, detail.proof, NOW)
        Page.of(document(text, *checkpoint_page(one, links, actions(text)), scripted=True))


def test_an_invalid_newest_checkpoint_is_told_first():
    page = shown(facts([checkpoint(1, hours=2), checkpoint(2, hours=1)], invalid=(2,)))
    assert "The newest checkpoint" in page.words
    assert any("store/lake/checkpoint?pipeline=orders&id=2" in link for link in page.links)


def test_a_pipeline_without_any_point_of_recovery_says_so():
    assert "No checkpoint here can be restored" in shown(facts([checkpoint(1, hours=2)], invalid=(1,))).words
    assert "No checkpoint here can be restored" in shown(facts([])).words


def test_recoveries_are_told_with_who_and_why():
    made = facts(
        [checkpoint(1, hours=2), checkpoint(2, hours=1)], timelines=(fork(2, 1, 1, owner="ada", reason="bad data"),)
    )
    page = shown(made)
    assert "Recoveries" in page.words
    assert "bad data" in page.words
    assert "ada" in page.words


@pytest.mark.parametrize(("page", "rows"), [(1, PAGE), (2, PAGE), (3, 20), (99, 20)])
def test_a_long_table_comes_in_pages(page, rows):
    made = facts([checkpoint(each, hours=200 - each) for each in range(1, 121)])
    found = shown(made, Shown(page=page))
    assert sum(link.startswith("../store/lake/checkpoint") for link in found.links) >= rows
    assert found.tags.count("tr") - 3 <= rows + 5
    assert any("page=2" in link for link in found.links)


def test_a_report_shows_every_checkpoint_and_can_do_nothing():
    made = facts([checkpoint(each, hours=200 - each) for each in range(1, 121)])
    text = report(made, title="orders", windows=WINDOWS)
    page = Page.of(text)
    assert page.tags.count("form") == page.tags.count("script") == 0
    assert all(link.startswith("#c") for link in page.links)
    assert all(f'id="{link[1:]}"' in text for link in page.links)
    assert "1 to 120 of 120 checkpoints" in page.words


def test_the_page_of_a_thousand_is_made_in_a_moment():
    made = facts([checkpoint(each, hours=1000 - each) for each in range(1, 1001)], proven=tuple(range(1, 990)))
    began = time.perf_counter()
    shown(made)
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize(
    ("change", "refusal", "forms"), [(True, "", 3), (False, "", 1), (True, "no such DAG", 2), (False, "no", 0)]
)
def test_only_what_somebody_may_do_is_offered(change, refusal, forms):
    made = facts([checkpoint(1, hours=1)])
    found = view(made, WINDOWS)
    given_actions = Actions(change, actions(refusal=refusal).recovery, "lake", "orders")
    detail = Detail(found.points[0], made.store.checkpoints[0], None, NOW)
    page = Page.of(
        document("t", *checkpoint_page(detail, SiteLinks("../../", "lake", "orders"), given_actions), scripted=True)
    )
    assert page.tags.count("form") == forms


def test_nobody_is_offered_to_go_back_to_an_invalid_checkpoint():
    made = facts([checkpoint(1, hours=1)], invalid=(1,))
    detail = Detail(
        view(made, WINDOWS).points[0], made.store.checkpoints[0], made.store.ledger[made.store.known[0].id], NOW
    )
    assert isinstance(detail.proof, Proof)
    page = Page.of(document("t", *checkpoint_page(detail, SiteLinks("../../", "lake", "o"), actions()), scripted=True))
    assert "is no point to go back to" in page.words
    assert page.tags.count("form") == 2


def checkpoint_shown(made, detail) -> Page:
    return Page.of(document("t", *checkpoint_page(detail, SiteLinks("../../", "lake", "o"), actions()), scripted=True))


def test_a_source_without_numbers_is_not_told_to_stand_at_zero():
    made = facts([checkpoint(1, hours=1, sources={"cdc": MysqlCdcPosition(gtid_set="3E11FA47:1-5")})])
    detail = Detail(view(made, WINDOWS).points[0], made.store.checkpoints[0], None, NOW)
    words = checkpoint_shown(made, detail).words
    assert "3E11FA47:1-5" in words
    assert "3E11FA47:1-5" in shown(made).words


def test_thousands_of_partitions_make_no_endless_page():
    many = KafkaPosition(partitions=tuple(KafkaPartition(topic="t", partition=n, offset=n) for n in range(5000)))
    made = facts([checkpoint(1, hours=1, sources={"s": many})])
    detail = Detail(view(made, WINDOWS).points[0], made.store.checkpoints[0], None, NOW)
    for page in (shown(made), checkpoint_shown(made, detail)):
        assert page.tags.count("tr") < 250
        assert "and 4,900 more" in page.words


def test_no_link_leads_to_a_checkpoint_that_is_gone():
    made = facts([checkpoint(3, hours=1, parent=CheckpointId(2))], timelines=(fork(2, 1, 1),))
    assert not any("id=1" in link for link in shown(made).links)
    found = view(made, WINDOWS)
    rows = [StoreRows("lake", "", (PipelineRow("orders", found.summary),))]
    overviewed = Page.of(document("t", *overview(rows, now=NOW, nothing=""), scripted=True))
    assert not any("id=1" in link for link in overviewed.links)
    assert "went back to" in overviewed.words
    detail = Detail(found.points[0], made.store.checkpoints[0], None, NOW)
    assert not any("id=2" in link for link in checkpoint_shown(made, detail).links)


@pytest.mark.parametrize("made", [facts([]), facts([checkpoint(1, hours=0.1)], invalid=(1,))])
def test_a_pipeline_that_cannot_be_recovered_says_so_in_its_line(made):
    rows = [StoreRows("lake", "", (PipelineRow("orders", view(made, WINDOWS).summary),))]
    words = Page.of(document("t", *overview(rows, now=NOW, nothing=""), scripted=True)).words
    assert "no recovery point" in words
    assert "stale" not in words


def test_a_checkpoint_from_the_future_is_not_simply_fresh():
    assert "in the future" in shown(facts([checkpoint(1, hours=-24)])).words
    assert "in the future" not in shown(facts([checkpoint(1, hours=-0.01)])).words


def test_what_the_trash_takes_up_is_told():
    entry = TrashEntry(
        checkpoint_id=CheckpointId(7), trashed=NOW, by="a", run="r", reasons=(), keys=(), artifacts=(), size=2_500_000
    )
    assert "1 in the trash, 2.5 MB" in shown(facts([checkpoint(1, hours=1)], trash=(entry,))).words


def test_pages_that_are_left_out_are_hinted_at():
    made = facts([checkpoint(each, hours=1000 - each) for each in range(1, 1001)])
    assert shown(made).words.count("\N{HORIZONTAL ELLIPSIS}") == 1
    assert shown(made, Shown(page=10)).words.count("\N{HORIZONTAL ELLIPSIS}") == 2


def test_an_empty_history_needs_no_legend():
    assert "legend" not in shown(facts([])).attributes
