"""A real browser on Airflow's pages, signed in as one of its users."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tests.e2e.stage import LocalAirflow

# Pages of Airflow's own take more than the usual five seconds on a busy machine.
expect.set_options(timeout=60_000)

DESKTOP = {"width": 1280, "height": 900}
NARROW = {"width": 390, "height": 800}


def chromium() -> str:
    found = shutil.which("chromium")
    assert found is not None, "chromium is missing; ./dev test installs it (apt-get install chromium)"
    return found


class Surfer:
    """Opens pages as a user, and watches that none loads from elsewhere or breaks its own rules."""

    def __init__(self, browser: Browser, airflow: LocalAirflow, folder: Path) -> None:
        self._browser = browser
        self._airflow = airflow
        # To renew the pictures of the documentation: SCREENSHOTS=docs/screenshots
        self._folder = Path(os.environ.get("SCREENSHOTS", folder))
        self.requests: list[str] = []
        self.errors: list[str] = []

    @contextmanager
    def as_user(self, name: str = "admin", *, view: dict[str, int] = DESKTOP, theme: str = "light") -> Iterator[Page]:
        settings: dict[str, Any] = {"viewport": view, "color_scheme": theme}
        context = self._browser.new_context(**settings)
        context.add_cookies([{"name": "_token", "value": self._airflow.token(name), "url": self._airflow.url}])
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        try:
            yield page
        finally:
            context.close()

    def shoot(self, page: Page, name: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{name}.png"
        page.screenshot(path=path, animations="disabled")
        assert path.stat().st_size < 200_000, f"{path} is too large for a repository"

    def require_calm(self) -> None:
        """Nothing came from another host, and no page broke the rules that its server gave it."""
        elsewhere = {url for url in self.requests if not url.startswith((self._airflow.url, "data:", "blob:"))}
        assert elsewhere == set()
        assert [error for error in self.errors if "Content Security Policy" in error] == []


def fits(page: Page) -> bool:
    """Whether nothing sticks out of the window sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))
