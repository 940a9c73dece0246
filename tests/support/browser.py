"""Pages in a real browser: Chromium without a window, driven by Playwright.

`opened` yields a page with errors of the console, and with requests that leave the machine.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, NamedTuple

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright
from tests.target.conftest import need

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

VIEWS: tuple[tuple[int, Literal["light", "dark"]], ...] = ((1280, "light"), (390, "dark"))  # widths in pixels


class Opened(NamedTuple):
    page: Page
    errors: list[str]  # of the console and of scripts
    elsewhere: list[str]  # addresses of requests that leave this machine

    def unreadable(self) -> list[str]:
        """Return findings of axe-core that are serious or critical."""
        violations = Axe().run(self.page).response["violations"]
        return [
            f"{violation['id']}: {node['target']}"
            for violation in violations
            if violation["impact"] in ("serious", "critical")
            for node in violation["nodes"]
        ]

    def wider_than_screen(self) -> int:
        """Return by how many pixels the page is wider than the window: readers would scroll sideways."""
        script = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(script))


@contextmanager
def chromium() -> Iterator[Browser]:
    program = need("chromium")
    with sync_playwright() as playwright:
        # as root, and in containers, Chromium starts only without its sandbox, and /dev/shm may be small
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, file: Path, width: int, scheme: Literal["light", "dark"]) -> Iterator[Opened]:
    """Open `file`, as by a double click, and wait until it is complete."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    errors: list[str] = []
    elsewhere: list[str] = []

    def answered(address: str) -> None:
        if not address.startswith(("file:", "data:", "blob:")):
            elsewhere.append(address)

    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: answered(request.url))
    page.goto(file.as_uri())
    page.wait_for_load_state("networkidle")
    yield Opened(page, errors, elsewhere)
    page.close()
