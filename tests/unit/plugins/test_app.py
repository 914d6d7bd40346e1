"""The pages and actions over a real store on disk; only the rights are from a table."""

from __future__ import annotations

import re
import socket
import threading
import time
from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from fastapi import FastAPI

from airflow_provider_checkpoint.blobs import LocalBlobs
from airflow_provider_checkpoint.layouts.sidecar import SidecarLayout
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.pruning import plan_prune
from airflow_provider_checkpoint.lifecycle.records import read_audit, read_ledger, read_pins
from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
from airflow_provider_checkpoint.plugins.lookups import PER_STORE
from airflow_provider_checkpoint.plugins.rights import RecoveryDag, Used
from airflow_provider_checkpoint.plugins.settings import PageSettings
from tests.unit.cli import making
from tests.unit.reports.reading import HOSTILE, Page

PIPELINE = "/store/lake?pipeline=orders"
POINT = "/store/lake/checkpoint?pipeline=orders&id=5"
VALIDATE, PIN = "/store/lake/validate", "/store/lake/pin"
WANTED = {"pipeline": "orders", "checkpoint": "5"}
NEW_PIN = {**WANTED, "name": "audit", "reason": "audit of the year"}


def layout_of(folder):
    return SidecarLayout(LocalBlobs(folder))


# -- reading -----------------------------------------------------------------------------------------------------


def test_all_pipelines_in_one_line_each(client, lake):
    making.sidecar_store(lake.parent / "clicks", 2)
    page = Page.of(client().get("/").text)
    assert "5 checkpoints" in page.words
    assert "2 checkpoints" in page.words
    assert {"store/lake?pipeline=orders", "store/lake?pipeline=clicks"} <= set(page.links)


def test_a_pipeline_with_its_picture_table_and_links(client, lake):
    answer = client().get(PIPELINE)
    page = Page.of(answer.text)
    assert "1 to 5 of 5 checkpoints" in page.words
    assert "../store/lake/checkpoint?pipeline=orders&id=5" in page.links
    assert "picture" in answer.text


@pytest.mark.parametrize("conn_id", ["team/lake", "a/b/c", "lake/checkpoint/x"])
def test_a_connection_whose_id_holds_slashes_has_its_pages(client, connect, rights, tmp_path, conn_id):
    making.sidecar_store(tmp_path / "slashed" / "orders", 2)
    rights.stores.append(connect(conn_id, str(tmp_path / "slashed")))
    quoted = quote(conn_id, safe="")
    assert f"store/{quoted}?pipeline=orders" in Page.of(client().get("/").text).links
    page = Page.of(client().get(f"/store/{quoted}?pipeline=orders").text)
    assert "1 to 2 of 2 checkpoints" in page.words
    assert {"../", f"../store/{quoted}/checkpoint?pipeline=orders&id=2"} <= set(page.links)
    page = Page.of(client().get(f"/store/{quoted}/checkpoint?pipeline=orders&id=2").text)
    assert {"../../", f"../../store/{quoted}?pipeline=orders"} <= set(page.links)
    wanted = {"pipeline": "orders", "checkpoint": "2"}
    assert client("editor").post(f"/store/{quoted}/validate", json=wanted).json()["valid"] is True
    assert client("reader").post(f"/store/{quoted}/validate", json=wanted).status_code == 403
    # Somebody has typed it as it is written.
    typed = Page.of(client().get(f"/store/{conn_id}?pipeline=orders").text)
    assert f"{'../' * (1 + conn_id.count('/'))}store/{quoted}/checkpoint?pipeline=orders&id=2" in typed.links
    # Of what is not there, too, the way back is right.
    assert "../" in Page.of(client().get(f"/store/{quoted}?pipeline=nothing").text).links


@pytest.mark.parametrize("path", ["/store", "/store/", "/store//x"])
def test_a_store_without_a_name_has_no_page(client, path):
    assert client().get(path).status_code == 404


def test_an_entry_of_the_trash_that_cannot_be_read_is_told_and_hides_nothing(client, lake):
    layout = layout_of(lake)
    plan = plan_prune(layout, RetentionPolicy(keep_last=2), now=datetime.now(UTC))
    Executor(layout, by="ada").prune(plan)
    (lake / "trash" / "1" / "entry.json").write_text("{")
    page = Page.of(client().get(PIPELINE).text)
    assert "1 to 2 of 2 checkpoints" in page.words
    assert "Trash (3)" in page.words
    assert "the entry of checkpoint 1 in the trash cannot be read" in page.words
    assert "2 checkpoints" in Page.of(client().get("/").text).words
    assert client().get(POINT).status_code == 200


def test_a_lost_record_of_a_timeline_is_told_and_nothing_is_foretold_to_go_because_of_it(client, lake):
    layout = layout_of(lake)
    making.add_sidecar(layout, 6, hours=0.5, timeline=2)
    page = Page.of(client(settings=PageSettings(policy=RetentionPolicy(keep_last=1))).get(PIPELINE).text)
    assert "Some checkpoints shown as abandoned may not be: the record of timeline 2 is gone" in page.words
    assert "goes now" not in page.words


def test_a_store_that_is_itself_a_pipeline_is_shown_too(client, connect, rights, tmp_path):
    making.sidecar_store(tmp_path / "alone", 2)
    rights.stores.append(connect("alone", str(tmp_path / "alone")))
    assert "store/alone" in Page.of(client().get("/").text).links
    assert "2 checkpoints" in Page.of(client().get("/store/alone").text).words


def test_a_new_store_has_no_pipelines_yet(client, connect, rights, tmp_path):
    rights.stores.append(connect("empty", str(tmp_path)))
    assert "No pipelines yet" in client().get("/").text


def test_one_broken_store_does_not_hide_the_others(client, lake, connect, rights, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    rights.stores.append(connect("broken", str(tmp_path / "file")))
    page = Page.of(client().get("/").text)
    assert "the root is not a folder" in page.words
    assert "5 checkpoints" in page.words


def test_a_checkpoint_with_its_facts_and_forms(client, lake):
    page = Page.of(client("editor").get(POINT).text)
    assert "Checkpoint" in page.words
    assert page.tags.count("form") == 3
    assert "../../../api/v2/dags/checkpoint_recovery/dagRuns" in page.links
    assert f"writes x-checkpoint://lake/{quote('orders')}" in page.attributes


@pytest.mark.parametrize("prefix", ["/checkpoints", "/team/airflow/checkpoints"])
def test_every_link_of_a_page_leads_to_a_page_whatever_path_airflow_is_below(client, lake, prefix):
    browser = client("editor")
    outer = FastAPI()
    outer.mount(prefix, browser.app)
    browser.app = outer
    for start in ("/", PIPELINE, POINT):
        base = browser.get(f"{prefix}{start}")
        assert base.status_code == 200
        for link in Page.of(base.text).links:
            if (
                "api/v2" in link
                or link.startswith(("#", "../../../dags"))
                or "validate" in link
                or link.endswith("pin")
            ):
                continue
            found = browser.get(str(base.url.join(link)))
            assert found.status_code == 200, (start, link)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/store/nowhere?pipeline=orders", 404),
        ("/store/nowhere", 404),
        ("/store/lake?pipeline=nothing", 404),
        ("/store/lake?pipeline=../../etc", 404),
        ("/store/lake/checkpoint?pipeline=orders&id=99", 404),
        ("/store/lake/checkpoint?pipeline=orders&id=nonsense", 404),
        ("/store/lake/checkpoint?pipeline=orders", 422),
        ("/store/lake?pipeline=orders&page=0", 422),
        ("/store/lake?pipeline=orders&page=99", 200),
        ("/store/lake?pipeline=orders&from=x&to=y", 422),
        ("/store/lake?pipeline=orders&from=2020-01-01T00:00:00Z&to=2020-01-02T00:00:00Z", 200),
        ("/no/such/page", 404),
    ],
)
def test_what_is_not_there_is_told(client, lake, path, code):
    assert client().get(path).status_code == code


@pytest.mark.parametrize("text", [each for each in HOSTILE if each.isprintable() and "/" not in each and each != ".."])
def test_hostile_addresses_come_out_as_text(client, lake, text):
    for path in (f"/store/{quote(text, safe='')}", f"/store/lake?pipeline={quote(text, safe='')}"):
        answer = client().get(path)
        assert answer.status_code == 404
        Page.of(answer.text)


def test_every_answer_forbids_what_is_not_ours(client, lake):
    for path in ("/", PIPELINE, POINT, "/store/nowhere", "/nothing"):
        headers = client("editor").get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'self'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_there_is_no_description_of_the_interface_for_everybody(client):
    for path in ("/docs", "/redoc", "/openapi.json"):
        assert client(None).get(path).status_code == 404


# -- rights ------------------------------------------------------------------------------------------------------

GET, POST = "GET", "POST"
TABLE = [
    # what, who: nobody, starter, reader, editor
    ((GET, "/", None), (401, 200, 200, 200)),
    ((GET, PIPELINE, None), (401, 403, 200, 200)),
    ((GET, POINT, None), (401, 403, 200, 200)),
    ((GET, "/store/nowhere", None), (401, 403, 404, 404)),
    ((GET, "/dag/some", None), (401, 200, 200, 200)),
    ((GET, "/dag/some/run/any", None), (401, 200, 200, 200)),
    ((POST, VALIDATE, {**WANTED, "depth": "presence"}), (401, 403, 403, 200)),
    ((POST, PIN, NEW_PIN), (401, 403, 403, 200)),
]


@pytest.mark.parametrize(
    ("request_", "user", "code"),
    [
        (request, user, code)
        for request, codes in TABLE
        for user, code in zip((None, "starter", "reader", "editor"), codes, strict=True)
    ],
    ids=str,
)
def test_rights(client, lake, request_, user, code):
    method, path, body = request_
    assert client(user).request(method, path, json=body).status_code == code


def test_who_may_not_read_a_connection_sees_nothing_of_its_store(client, lake, rights):
    rights.used = [Used("lake", "orders")]
    for path in ("/", "/dag/some"):
        page = Page.of(client("starter").get(path).text)
        assert "checkpoints," not in page.words
        assert not any("store/lake" in link for link in page.links)


def test_every_route_has_a_guard(client):
    """A route that is added without one is open to anybody."""
    app = client().app
    for route in app.routes:
        assert route.dependant.dependencies, route.path


# -- changing ----------------------------------------------------------------------------------------------------


def test_validating_proves_and_notes_it_and_the_page_shows_it_at_once(client, lake):
    editor = client("editor")
    assert "unproven" in editor.get(POINT).text
    answer = editor.post(VALIDATE, json={**WANTED, "depth": "restore"})
    assert answer.json() == {"valid": True, "message": "Valid at depth restore."}
    layout = layout_of(lake)
    assert read_ledger(layout.blobs, layout)[layout.parse_id("5")].valid
    assert "valid at depth restore" in editor.get(POINT).text


def test_an_invalid_checkpoint_is_found_and_shown(client, lake):
    making.corrupt_sidecar(lake, 5)
    answer = client("editor").post(VALIDATE, json=WANTED)
    assert answer.json()["valid"] is False
    page = Page.of(client().get(PIPELINE).text)
    assert "The newest checkpoint" in page.words
    assert "is no point to go back to" in client("editor").get(POINT).text


def test_pinning_leaves_a_pin_and_says_who(client, lake):
    assert client("editor").post(PIN, json={**NEW_PIN, "expires": "90d"}).json() == {"message": "Pinned as audit."}
    blobs = layout_of(lake).blobs
    [pin] = read_pins(blobs)
    assert (pin.name, str(pin.checkpoint_id), pin.owner.split()[0]) == ("audit", "5", "editor")
    assert pin.expires is not None
    assert {record.by for record in read_audit(blobs)} == {"editor by airflow, page of checkpoints"}
    assert "pinned as audit" in client().get(POINT).text


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        (PIN, {**NEW_PIN, "checkpoint": "99"}, 404),
        (PIN, {**NEW_PIN, "checkpoint": "nonsense"}, 400),
        (PIN, {**NEW_PIN, "name": ""}, 422),
        (PIN, {**NEW_PIN, "name": "\N{SNOWMAN}" * 90}, 400),
        (PIN, {**NEW_PIN, "expires": "soon"}, 400),
        (PIN, {**NEW_PIN, "unknown": 1}, 422),
        (VALIDATE, {**WANTED, "depth": "deeper"}, 422),
        (VALIDATE, {**WANTED, "checkpoint": "99"}, 404),
        (VALIDATE, [], 422),
        ("/store/nowhere/pin", NEW_PIN, 404),
    ],
)
def test_wishes_that_make_no_sense_change_nothing(client, lake, path, body, code):
    answer = client("editor").post(path, json=body)
    assert answer.status_code == code
    assert answer.json()["detail"]
    assert read_pins(layout_of(lake).blobs) == []


def test_a_name_that_is_taken_is_a_conflict(client, lake):
    assert client("editor").post(PIN, json=NEW_PIN).status_code == 200
    assert client("editor").post(PIN, json={**NEW_PIN, "checkpoint": "4"}).status_code == 409


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "multipart/form-data; boundary=x"}, 415),
        ({"content-type": ""}, 415),
        ({"content-type": "application/json", "sec-fetch-site": "cross-site"}, 403),
        ({"content-type": "application/json", "sec-fetch-site": "same-site"}, 403),
        ({"content-type": "application/json", "origin": "https://evil.example"}, 403),
        ({"content-type": "application/json", "origin": "null"}, 403),
        ({"content-type": "application/json; charset=utf-8", "sec-fetch-site": "same-origin"}, 200),
        ({"content-type": "application/json", "origin": "http://testserver"}, 200),
    ],
)
def test_what_another_site_could_send_is_refused(client, lake, headers, code):
    import json

    assert client("editor").post(PIN, content=json.dumps(NEW_PIN), headers=headers).status_code == code


def test_nothing_changes_by_reading_an_address(client, lake):
    before = making.everything_in(lake)
    for path in (VALIDATE, PIN):
        # Read, such an address is that of a store whose id ends so.
        assert client("editor").get(path, params=NEW_PIN).status_code == 404
    for path in ("/", PIPELINE, POINT):
        client("editor").get(path)
    assert making.everything_in(lake) == before


@pytest.mark.parametrize(
    ("dag", "told"),
    [
        (RecoveryDag(exists=False, paused=False, may_start=True), "There is no DAG checkpoint_recovery here"),
        (RecoveryDag(exists=True, paused=False, may_start=False), "You need the right to start checkpoint_recovery"),
        (RecoveryDag(exists=True, paused=True, may_start=True), "is paused"),
    ],
)
def test_why_a_recovery_cannot_be_started_is_told(client, lake, rights, dag, told):
    rights.dag = dag
    assert told in client("editor").get(POINT).text


# -- tabs --------------------------------------------------------------------------------------------------------


def test_the_tab_shows_the_pipelines_that_tasks_work_on(client, lake, rights):
    rights.used = [Used("lake", "orders"), Used("lake", "nothing"), Used("gone", "x"), Used(None, None)]
    page = Page.of(client().get("/dag/some/run/manual__2026-11-15T12:00:00+00:00").text)
    assert "5 checkpoints" in page.words
    assert "There is no such connection" in page.words
    assert "told by each run" in page.words
    assert "../../../store/lake?pipeline=orders" in page.links


def test_a_dag_that_has_nothing_to_do_with_checkpoints_says_so(client, rights):
    rights.used = []
    assert "names a checkpoint store" in client().get("/dag/some").text
    rights.used = None
    assert client().get("/dag/some").status_code == 404


# -- slow and dead stores ----------------------------------------------------------------------------------------


@pytest.fixture
def silent():
    """An object store that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_store_that_never_answers_is_told_within_a_second_and_harms_no_other(
    client, lake, connect, rights, silent, monkeypatch
):
    for name, value in {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}.items():
        monkeypatch.setenv(name, value)
    rights.stores.insert(0, connect("dead", "s3://bucket/prefix", endpoint_url=silent, region="us-east-1"))
    browser = client("reader", PageSettings(store_timeout=0.5))
    browser.get(PIPELINE)
    for _ in range(3):
        began = time.monotonic()
        page = browser.get("/")
        took = time.monotonic() - began
        assert took < 1.5, "half a second for the store, the rest for a busy machine"
        assert "slow or dead" in page.text
        assert "5 checkpoints" in page.text
        assert re.search(r'http-equiv="refresh" content="2"', page.text)
    began = time.monotonic()
    answer = browser.get("/store/dead?pipeline=orders")
    assert time.monotonic() - began < 1.5
    assert answer.status_code == 503
    assert "does not answer" in answer.text
    began = time.monotonic()
    assert browser.get(PIPELINE).status_code == 200
    assert time.monotonic() - began < 0.5


def test_proving_that_takes_longer_is_answered_at_once_and_can_be_asked_for_again(client, lake, monkeypatch):
    from airflow_provider_checkpoint.plugins import stores

    real = stores.prove

    def slow(*arguments):
        time.sleep(0.4)
        return real(*arguments)

    monkeypatch.setattr(stores, "prove", slow)
    editor = client("editor", PageSettings(store_timeout=0.1))
    codes = []
    while not codes or codes[-1] == 202:
        codes.append(editor.post(VALIDATE, json=WANTED).status_code)
        assert len(codes) < 50
    assert codes[0] == 202
    assert codes[-1] == 200


def test_a_pin_that_takes_longer_is_answered_at_once_and_can_be_asked_for_again(client, lake, monkeypatch):
    from airflow_provider_checkpoint.plugins import stores

    real = stores.pin

    def slow(*arguments, **more):
        time.sleep(0.4)
        return real(*arguments, **more)

    monkeypatch.setattr(stores, "pin", slow)
    editor = client("editor", PageSettings(store_timeout=0.1))
    codes = []
    while not codes or codes[-1] == 202:
        codes.append(editor.post(PIN, json=NEW_PIN).status_code)
        assert len(codes) < 50
    assert codes[0] == 202
    assert codes[-1] == 200
    assert len(read_pins(layout_of(lake).blobs)) == 1


def test_validating_again_looks_again(client, lake):
    editor = client("editor")
    assert editor.post(VALIDATE, json=WANTED).json()["valid"] is True
    making.corrupt_sidecar(lake, 5)
    assert editor.post(VALIDATE, json=WANTED).json()["valid"] is False


def test_a_refused_pin_can_be_asked_for_again_once_the_name_is_free(client, lake):
    editor = client("editor")
    assert editor.post(PIN, json={**NEW_PIN, "checkpoint": "4"}).status_code == 200
    assert editor.post(PIN, json=NEW_PIN).status_code == 409
    Executor(layout_of(lake), by="a test").unpin("audit")
    assert editor.post(PIN, json=NEW_PIN).status_code == 200


def test_a_tab_with_many_pipelines_of_one_store_shows_them_all(client, lake, rights):
    names = [f"p{number}" for number in range(PER_STORE * 3)]
    for name in names:
        making.sidecar_store(lake.parent / name, 2)
    rights.used = [Used("lake", name) for name in names]
    page = Page.of(client().get("/dag/some").text)
    assert page.words.count("2 checkpoints") == len(names)
    assert "not been answered" not in page.words


def test_a_tab_that_waits_for_a_store_looks_again_by_itself(client, lake, rights, monkeypatch):
    from airflow_provider_checkpoint.plugins import stores

    gate = threading.Event()
    monkeypatch.setattr(stores, "look_at_some", lambda *_: gate.wait(20))
    rights.used = [Used("lake", "orders")]
    try:
        text = client("reader", PageSettings(store_timeout=0.1)).get("/dag/some").text
    finally:
        gate.set()
    assert "slow or dead" in text
    assert 'http-equiv="refresh"' in text


def test_an_error_that_nobody_foresaw_in_one_store_does_not_hide_the_others(client, lake, connect, rights, monkeypatch):
    from airflow_provider_checkpoint.plugins import stores

    real = stores.look_at_all

    def look(connection, settings):
        if connection == "odd":
            raise RuntimeError("secret words of a library")
        return real(connection, settings)

    monkeypatch.setattr(stores, "look_at_all", look)
    rights.stores.append(connect("odd", str(lake)))
    answer = client().get("/")
    assert answer.status_code == 200
    assert "5 checkpoints" in answer.text
    assert "RuntimeError" in answer.text
    assert "secret words" not in answer.text


def test_an_error_that_nobody_foresaw_is_a_page_with_the_same_protection(client, lake, monkeypatch):
    from airflow_provider_checkpoint.plugins import stores

    def look(*_):
        raise RuntimeError("secret words of a library")

    monkeypatch.setattr(stores, "look", look)
    answer = client().get(PIPELINE)
    assert answer.status_code == 500
    assert "RuntimeError" in Page.of(answer.text).words
    assert "secret words" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("content", [b"{", b"\xff", b'{"pipeline": "orders"', b"[" * 10_000], ids=range(4))
def test_who_asks_is_looked_at_before_what_they_send(client, lake, content):
    json_ = {"content-type": "application/json"}
    for user, code in ((None, 401), ("reader", 403), ("editor", 422)):
        assert client(user).post(PIN, content=content, headers=json_).status_code == code


def test_a_wish_that_is_far_too_long_is_not_read(client, lake):
    answer = client("editor").post(PIN, json={**NEW_PIN, "reason": "x" * 1_000_000})
    assert answer.status_code == 413


def test_a_question_that_makes_no_sense_is_answered_by_a_page(client, lake):
    answer = client().get("/store/lake/checkpoint?pipeline=orders")
    assert answer.status_code == 422
    assert answer.headers["content-type"].startswith("text/html")
    assert "id: Field required" in Page.of(answer.text).words


def test_a_checkpoint_is_told_to_be_slow_as_soon_as_its_pipeline_is(client, lake, monkeypatch):
    from airflow_provider_checkpoint.plugins import stores

    real_look, real_detail = stores.look, stores.detail

    def look(*arguments):
        time.sleep(0.6)
        return real_look(*arguments)

    def detail(*arguments):
        time.sleep(2)
        return real_detail(*arguments)

    monkeypatch.setattr(stores, "look", look)
    monkeypatch.setattr(stores, "detail", detail)
    reader = client("reader", PageSettings(store_timeout=1.0))
    began = time.monotonic()
    assert reader.get(POINT).status_code == 503
    assert time.monotonic() - began < 1.4


@pytest.mark.parametrize(
    "name",
    ["/etc", "orders/../orders", ".", "./orders", "orders\x00", "orders/manifests", "orders\\..", "~", "x" * 999],
)
def test_no_name_of_a_pipeline_leads_elsewhere(client, lake, name):
    assert client().get(f"/store/lake?pipeline={quote(name, safe='')}").status_code == 404


@pytest.mark.parametrize(
    ("path", "maker"),
    [("/", "pipelines"), (PIPELINE, "pipeline"), (POINT, "checkpoint"), ("/dag/some", "of_tasks")],
)
def test_pages_are_made_beside_the_loop(client, lake, monkeypatch, path, maker):
    """That of twenty thousand checkpoints takes a third of a second, in which nobody else would be served."""
    from airflow_provider_checkpoint.plugins import shell

    real, threads = getattr(shell, maker), []

    def make(*arguments, **more):
        threads.append(threading.current_thread())
        return real(*arguments, **more)

    monkeypatch.setattr(shell, maker, make)
    assert client().get(path).status_code == 200
    [thread] = threads
    assert thread is not threading.main_thread()
