"""The pages in a running Airflow, in a real browser: seen, clicked through, and closed to whoever has no right."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from airflow_provider_checkpoint.lifecycle.timelines import read_timelines
from airflow_provider_checkpoint.reports.file import report
from airflow_provider_checkpoint.reports.views import Windows
from tests.e2e.browsing import DESKTOP, NARROW, Surfer, fits
from tests.unit.cli import making
from tests.unit.reports.facts_made import checkpoint, facts, hostile_facts

if TYPE_CHECKING:
    from collections.abc import Iterator

# One Airflow serves all of them, so they run in one process.
pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("airflow")]

RECOVERY = "checkpoint_recovery"
STORE = "/checkpoints/store/pages"


@pytest.fixture
def surfer(browser, airflow, tmp_path) -> Iterator[Surfer]:
    made = Surfer(browser, airflow, tmp_path / "screenshots")
    yield made
    made.require_calm()


@pytest.fixture(scope="module")
def pages(airflow, tmp_path_factory):
    """A connection ``pages`` with a pipeline ``orders`` that no job writes, and one ``many`` of a thousand."""
    root = tmp_path_factory.mktemp("pages")
    making.templates = tmp_path_factory.mktemp("templates")
    making.sidecar_store(root / "orders", 5)
    making.sidecar_store(root / "many", 1000)
    airflow.add_connection("pages", "checkpoint_store", host=str(root))
    return root


# -- rights ------------------------------------------------------------------------------------------------------

WANTED = {"pipeline": "orders", "checkpoint": "5"}
DRY = {"pipeline": "orders", "connection": "pages", "dry_run": True, "restart_dag": None}
ASK = {
    "all pipelines": ("GET", "/checkpoints/", None),
    "a pipeline": ("GET", f"{STORE}?pipeline=orders", None),
    "a checkpoint": ("GET", f"{STORE}/checkpoint?pipeline=orders&id=5", None),
    "unknown connection": ("GET", "/checkpoints/store/nobody-has-this", None),
    "tab of a DAG": ("GET", "/checkpoints/dag/orders_pipeline", None),
    "tab of an unknown DAG": ("GET", "/checkpoints/dag/nobody-has-this", None),
    "tab of an unknown run": ("GET", "/checkpoints/dag/orders_pipeline/run/never", None),
    "validate": ("POST", f"{STORE}/validate", {**WANTED, "depth": "presence"}),
    "pin": ("POST", f"{STORE}/pin", {**WANTED, "name": "kept", "reason": "a test"}),
    "start a recovery": ("POST", f"/api/v2/dags/{RECOVERY}/dagRuns", {"logical_date": None, "conf": DRY}),
}
#: Airflow's roles. In its simple auth manager connections begin with the op; starting DAGs with the user.
#: nobody, viewer, user, op, admin
TABLE = {
    "all pipelines": (401, 200, 200, 200, 200),
    "a pipeline": (401, 403, 403, 200, 200),
    "a checkpoint": (401, 403, 403, 200, 200),
    "unknown connection": (401, 403, 403, 404, 404),
    "tab of a DAG": (401, 200, 200, 200, 200),
    "tab of an unknown DAG": (401, 404, 404, 404, 404),
    "tab of an unknown run": (401, 404, 404, 404, 404),
    "validate": (401, 403, 403, 200, 200),
    "pin": (401, 403, 403, 200, 200),
    "start a recovery": (401, 403, 200, 200, 200),
}
USERS = (None, "vera", "uwe", "olga", "admin")


@pytest.mark.parametrize(
    ("what", "user", "code"),
    [(what, user, code) for what, codes in TABLE.items() for user, code in zip(USERS, codes, strict=True)],
)
def test_rights(airflow, pages, what, user, code):
    answer = airflow.ask(*ASK[what], user=user)
    while answer.status_code == 202:
        # A busy machine has not finished the proof yet; asking again joins it.
        time.sleep(0.5)
        answer = airflow.ask(*ASK[what], user=user)
    assert answer.status_code == code, answer.text[:500]


@pytest.mark.parametrize("user", ["vera", "uwe"])
def test_who_may_not_read_a_connection_sees_nothing_of_it(airflow, pages, user):
    for path in ("/checkpoints/", "/checkpoints/dag/orders_pipeline"):
        assert "/store/" not in airflow.ask("GET", path, user=user).text
        assert str(pages) not in airflow.ask("GET", path, user=user).text


# -- clicking through --------------------------------------------------------------------------------------------


def test_from_an_invalid_newest_checkpoint_to_a_new_timeline(airflow, stage, surfer):
    stage.more_orders(5)
    stage.run_pipeline()
    damaged = stage.damage_newest()
    with surfer.as_user("olga") as page:
        page.goto(airflow.url)
        page.get_by_role("button", name="Browse").click()
        page.get_by_role("menuitem", name="Checkpoints").click()
        frame = page.frame_locator("iframe")
        listed = frame.locator("section", has_text=stage.conn_id).get_by_role("link", name="orders", exact=True)
        listed.click()

        # Nobody has looked yet. Prove the two newest: one is found invalid, one valid.
        frame.locator("table.points a").first.click()
        frame.locator("#validate summary").click()
        frame.get_by_role("button", name="Validate now").click()
        expect(frame.get_by_role("alert")).to_contain_text("SHA-256")
        expect(frame.locator("#recover")).to_contain_text("is no point to go back to")
        surfer.shoot(page, "checkpoint-invalid")
        frame.get_by_role("navigation").get_by_role("link", name="orders").click()
        expect(frame.get_by_role("alert")).to_contain_text("The newest checkpoint")
        frame.locator("table.points a").nth(1).click()
        frame.locator("#validate summary").click()
        frame.get_by_role("button", name="Validate now").click()
        expect(frame.locator(".facts").first).to_contain_text("valid at depth content")
        frame.locator("#pin summary").click()
        frame.locator("#pin input[name=name]").fill("before-the-incident")
        frame.locator("#pin input[name=reason]").fill("to look into it later")
        frame.get_by_role("button", name="Pin").click()
        expect(frame.locator(".facts").first).to_contain_text("pinned as before-the-incident")

        # Go back to the one before, as the page fills it in.
        frame.get_by_role("navigation").get_by_role("link", name="orders").click()
        chosen = frame.locator("table.points a code").nth(2).get_attribute("title")
        frame.locator("table.points a").nth(2).click()
        frame.locator("#recover summary").click()
        expect(frame.locator("#recover input[name=restart_dag]")).to_have_value("orders_pipeline")
        frame.locator("#recover input[name=reason]").fill("the newest is damaged")
        frame.locator("#recover textarea").fill(json.dumps(stage.job_conf))
        surfer.shoot(page, "start-recovery")
        frame.get_by_role("button", name="Start recovery from here").click()
        frame.get_by_role("link", name="Open the run in Airflow").click()
        page.wait_for_url(f"**/dags/{RECOVERY}/runs/**")
        run = airflow.get(f"/api/v2/dags/{RECOVERY}/dagRuns?order_by=-run_after")["dag_runs"][0]
        assert run["conf"]["checkpoint"] == chosen
        assert run["triggering_user_name"] == "olga"
        run_id = run["dag_run_id"]

        # Approve it in Airflow's own page.
        airflow.wait_for_task(RECOVERY, run_id, "approve", "awaiting_input")
        page.goto(f"{airflow.url}/dags/{RECOVERY}/runs/{quote(run_id, safe='')}/tasks/approve/required_actions")
        approve = page.get_by_role("button", name=f"Go back to {chosen[:8]}\N{HORIZONTAL ELLIPSIS}{chosen[-8:]}")
        expect(approve).to_be_visible()
        surfer.shoot(page, "approval")
        approve.scroll_into_view_if_needed()
        surfer.shoot(page, "approval-options")
        approve.click()
        assert airflow.wait_for_run(RECOVERY, run_id) == "success", airflow.tasks(RECOVERY, run_id)
        assert airflow.wait_for_run("orders_pipeline", f"recovery__{run_id}") == "success"
        assert stage.differences() == []

        # The new timeline is there, and what was left behind is seen.
        page.goto(f"{airflow.url}/plugin/checkpoints")
        listed.click()
        expect(frame.locator("table.forks")).to_contain_text("the newest is damaged")
        expect(frame.locator("svg.picture")).to_contain_text("left behind")
        shown = frame.locator("table.points tr", has=page.locator(f"[title='{damaged}']"))
        expect(shown).to_contain_text("abandoned")
        surfer.shoot(page, "pipeline-desktop-light")

    timelines = read_timelines(stage.layout.blobs)
    assert any(each.reason == "the newest is damaged" and str(each.fork_checkpoint) == chosen for each in timelines)

    for name, view, theme in (
        ("pipeline-desktop-dark", DESKTOP, "dark"),
        ("pipeline-narrow-light", NARROW, "light"),
        ("pipeline-narrow-dark", NARROW, "dark"),
    ):
        with surfer.as_user("olga", view=view, theme=theme) as page:
            page.goto(f"{airflow.url}/checkpoints/store/{stage.conn_id}?pipeline=orders")
            expect(page.locator("svg.picture")).to_be_visible()
            assert fits(page)
            surfer.shoot(page, name)

    # The tabs of the DAG and of the run lead to the same page, and so does the link of a task.
    with surfer.as_user("olga") as page:
        page.goto(f"{airflow.url}/dags/orders_pipeline")
        page.locator("a[href$='/plugin/checkpoints_of_dag']").click()
        expect(page.frame_locator("iframe").locator("table.pipelines")).to_contain_text("orders")
        surfer.shoot(page, "tab-of-a-dag")
        page.goto(f"{airflow.url}/dags/{RECOVERY}/runs/{quote(run_id, safe='')}")
        page.locator("a[href$='/plugin/checkpoints_of_run']").click()
        frame = page.frame_locator("iframe")
        frame.get_by_role("link", name="orders").first.click()
        expect(frame.get_by_role("heading", name="History")).to_be_visible()
    path = f"/api/v2/dags/{RECOVERY}/dagRuns/{run_id}/taskInstances/restore/links"
    links = airflow.get(path)["extra_links"]
    assert links == {"Checkpoints": f"checkpoints/store/{stage.conn_id}?pipeline=orders"}


# -- as it looks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "theme"), [(DESKTOP, "light"), (DESKTOP, "dark"), (NARROW, "light"), (NARROW, "dark")]
)
def test_all_pages_fit_their_window_in_both_themes(airflow, pages, surfer, view, theme):
    width = "desktop" if view is DESKTOP else "narrow"
    with surfer.as_user("admin", view=view, theme=theme) as page:
        for name, path in (
            ("pipelines", "/checkpoints/"),
            ("checkpoint", f"{STORE}/checkpoint?pipeline=orders&id=4"),
            ("thousand", f"{STORE}?pipeline=many"),
        ):
            page.goto(f"{airflow.url}{path}")
            # A page that waits for a store looks again by itself.
            expect(page.get_by_role("heading").first).not_to_contain_text("does not answer")
            expect(page.locator("main")).not_to_contain_text("slow or dead")
            assert fits(page), name
            if width == "desktop" or theme == "dark":
                surfer.shoot(page, f"{name}-{width}-{theme}")


@pytest.mark.parametrize("view", [DESKTOP, NARROW], ids=["desktop", "narrow"])
def test_names_without_end_make_no_page_wider_than_its_window(browser, tmp_path, view):
    text = "x" * 2000
    made = hostile_facts(text)
    path = tmp_path / "report.html"
    path.write_text(report(made, title=text, windows=Windows()))
    context = browser.new_context(viewport=view)
    page = context.new_page()
    page.goto(path.as_uri())
    for folded in page.locator("summary").all():
        folded.click()
    assert fits(page)
    context.close()


def test_a_narrow_window_shows_the_newest_end_of_the_picture_first(browser, tmp_path):
    path = tmp_path / "report.html"
    made = facts([checkpoint(number, hours=50 - number) for number in range(1, 50)])
    path.write_text(report(made, title="orders", windows=Windows()))
    context = browser.new_context(viewport=NARROW)
    page = context.new_page()
    page.goto(path.as_uri())
    seen = "[...document.querySelectorAll('svg.picture a')].map(each => each.getBoundingClientRect().right)"
    places = page.evaluate(seen)
    assert min(places) < 0 < max(places) <= NARROW["width"]
    context.close()


def test_the_page_follows_the_theme_that_airflow_shows(airflow, pages, surfer):
    with surfer.as_user("admin", theme="light") as page:
        page.goto(f"{airflow.url}/plugin/checkpoints")
        frame = page.frame_locator("iframe")
        expect(frame.get_by_role("heading", name="Checkpoints")).to_be_visible()
        page.evaluate("document.documentElement.className = 'dark'")
        expect(frame.locator("html")).to_have_attribute("data-theme", "dark")


def test_everything_is_reached_by_keyboard(airflow, pages, surfer):
    with surfer.as_user("admin") as page:
        page.goto(f"{airflow.url}{STORE}?pipeline=orders")
        for _ in range(12):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.closest('svg') !== null"):
                break
        else:
            pytest.fail("no mark of the picture was reached")
        page.keyboard.press("Enter")
        page.wait_for_url("**/checkpoint?**")
        for _ in range(12):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.matches('#pin > summary')"):
                break
        else:
            pytest.fail("the form was not reached")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", "whoever uses the keyboard sees where they are"
        page.keyboard.press("Enter")
        expect(page.locator("#pin input[name=name]")).to_be_visible()


def test_a_thousand_checkpoints_are_shown_in_pages_and_a_group_opens(airflow, pages, surfer, capsys):
    with surfer.as_user("admin") as page:
        page.goto(f"{airflow.url}{STORE}?pipeline=many")
        expect(page.locator("svg.picture a").first).to_be_visible()
        began = time.monotonic()
        page.goto(f"{airflow.url}{STORE}?pipeline=many&page=2")
        expect(page.locator("caption").first).to_contain_text("51 to 100 of 1,000 checkpoints")
        took = time.monotonic() - began
        page.locator("svg.picture a").nth(3).click()
        page.wait_for_url("**from=**")
        expect(page.get_by_role("link", name="Show all")).to_be_visible()
    with capsys.disabled():
        print(f"\na page of 1,000 checkpoints in the browser, already read: {took:.2f} s")
    assert took < 10


def test_airflows_own_forms_read_well(airflow, surfer):
    with surfer.as_user("admin", view={"width": 1280, "height": 1100}) as page:
        page.goto(f"{airflow.url}/connections")
        page.get_by_role("button", name="Add Connection").click()
        page.get_by_role("combobox").first.click()
        page.keyboard.type("Checkpoint")
        page.keyboard.press("Enter")
        expect(page.get_by_text("Store URI")).to_be_visible()
        page.get_by_role("button", name="Extra Fields", exact=True).click()
        expect(page.get_by_text("Storage connection", exact=True)).to_be_visible()
        page.wait_for_timeout(500)
        surfer.shoot(page, "connection-form")
        page.goto(f"{airflow.url}/dags/{RECOVERY}")
        page.get_by_role("button", name="Trigger").click()
        # Nothing has to be filled in to begin with.
        expect(page.get_by_role("button", name="Trigger").last).to_be_enabled()
        page.get_by_role("button", name="What to go back to").click()
        page.wait_for_timeout(500)
        surfer.shoot(page, "trigger-form")
