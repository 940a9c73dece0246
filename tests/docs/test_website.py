"""The documentation as a site: its links lead somewhere, it is readable in a browser, and its search
answers the questions that people of the field ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest
from tests.support.browser import VIEWS, chromium, opened

from docs import drawings, website

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

PAGES = ("index", "slurm", "options")
# what people ask, and pages of which one must be among the first three answers
QUESTIONS = {
    "resume after kill": "tutorial runs",
    "s3 credentials": "sources configuration",
    "exit status 7": "commands troubleshooting",
    "no space left": "troubleshooting",
    "quota": "troubleshooting filesystems",
    "beegfs": "how-to/beegfs filesystems",
    "reserved cores": "slurm",
    "training job waits": "training-jobs slurm",
    "sbatch dependency": "training-jobs slurm commands",
    "nightly audit": "how-to/nightly-audits audit",
    "repair damaged file": "audit troubleshooting",
    "rollback": "retention commands tutorial",
    "delete old releases": "retention",
    "file permissions group": "configuration tutorial site",
    "proxy certificate": "install sources",
    "bandwidth limit": "bandwidth configuration",
    "dry run": "commands runs tutorial",
    "prometheus alerts": "monitoring",
    "without network": "install",
    "site.yaml": "site",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    website.build(folder)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_pages_are_readable_and_load_nothing_from_elsewhere(
    site: Path, browser: Browser, width: int, scheme: Literal["light", "dark"]
) -> None:
    for name in PAGES:
        with opened(browser, site / f"{name}.html", width, scheme) as view:
            assert view.errors == [], name
            assert view.elsewhere == [], name
            assert view.wider_than_screen() <= 0, name
            assert view.unreadable() == [], name


def test_the_search_answers_questions_of_the_field(site: Path, browser: Browser) -> None:
    missed = {}
    with opened(browser, site / "index.html", 1280, "light") as view:
        view.page.keyboard.press("Control+k")
        for question, wanted in QUESTIONS.items():
            answers = _answers(view.page, question)
            if not set(answers).intersection(wanted.split()):
                missed[question] = answers
        assert view.elsewhere == []
    assert missed == {}


def _answers(page: Page, question: str) -> list[str]:
    """The pages of the first three answers to `question`, which stands in their links."""
    page.get_by_role("combobox").fill(question)
    asked = "h=" + question.replace(" ", "+")
    page.locator(f'a[role=option][href*="{asked}#"], a[role=option][href$="{asked}"]').first.wait_for()
    links = [str(option.get_attribute("href")) for option in page.get_by_role("option").all()[:3]]
    return [link.partition("?")[0].rpartition("/site/")[2].removesuffix(".html") for link in links]


@pytest.mark.parametrize("file", drawings.PICTURES, ids=lambda file: file.name)
def test_pictures_are_what_their_script_draws(file: Path) -> None:
    assert file.read_text(encoding="utf-8") == drawings.PICTURES[file]()
