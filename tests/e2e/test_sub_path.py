"""The pages where Airflow itself is below a path, as behind a proxy that serves other things as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.e2e.browsing import Surfer
from tests.e2e.stage import LocalAirflow
from tests.unit.cli import making

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def below(tmp_path_factory) -> Iterator[LocalAirflow]:
    home, root = tmp_path_factory.mktemp("below"), tmp_path_factory.mktemp("stores")
    making.templates = tmp_path_factory.mktemp("templates")
    making.sidecar_store(root / "orders", 5)
    with LocalAirflow(home, below="/tools/airflow", components=("api-server",)) as running:
        running.add_connection("pages", "checkpoint_store", host=str(root))
        yield running


def test_every_step_stays_below_the_path(browser, below, tmp_path):
    surfer = Surfer(browser, below, tmp_path)
    with surfer.as_user() as page:
        page.goto(f"{below.url}/plugin/checkpoints")
        frame = page.frame_locator("iframe")
        frame.get_by_role("link", name="orders", exact=True).click()
        expect(frame.get_by_role("heading", name="History")).to_be_visible()
        frame.locator("table.points a").first.click()
        expect(frame.get_by_role("heading", name="5")).to_be_visible()

        # A change goes by the page's script to an address that it makes itself.
        frame.locator("#pin > summary").click()
        frame.locator("#pin input[name=name]").fill("kept")
        frame.locator("#pin input[name=reason]").fill("a test")
        frame.locator("#pin").get_by_role("button").click()
        expect(frame.locator("body")).to_contain_text("kept")
        frame.get_by_role("navigation").get_by_role("link", name="orders").click()
        expect(frame.get_by_role("heading", name="History")).to_be_visible()
    surfer.require_calm()
    pages = [url for url in surfer.requests if "/checkpoints/" in url]
    assert pages
    assert all(url.startswith(f"{below.url}/") for url in surfer.requests if not url.startswith(("data:", "blob:")))
