"""docs/runbook.md has a heading with steps for each alert and exit status, and commands that parse."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path

import pytest
import yaml
from tests.docs.test_messages import texts_of_the_package

from penstock.cli import argument_parser
from penstock.core import errors

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "runbook.md").read_text(encoding="utf-8")
ALERTS = [
    rule
    for group in yaml.safe_load((DOCS / "monitoring/alerts.yaml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
STATUSES = re.findall(r"^\| (\d+) \| ", (DOCS / "commands.md").read_text(encoding="utf-8"), re.MULTILINE)
SECTIONS = dict(re.findall(r"^### (.+)\n((?:(?!##).*\n)*)", PAGE, re.MULTILINE))
COMMAND = re.compile(r"^ *(?:nohup )?penstock (.+?)(?: >.*)?$", re.MULTILINE)
COMMANDS = [
    command
    for block in re.findall(r"^ *```sh\n(.*?)^ *```$", PAGE, re.MULTILINE | re.DOTALL)
    for command in COMMAND.findall(block)
]
IN_TEXT = re.findall(r"`penstock ([a-z][^`]*)`", PAGE)


def anchor(heading: str) -> str:
    """The fragment by which GitHub and the site lead to a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_each_alert_leads_to_its_heading(rule: dict[str, dict[str, str]]) -> None:
    heading = str(rule["alert"])
    assert heading in SECTIONS
    assert rule["annotations"]["runbook"] == f"runbook.md#{anchor(heading)}"


@pytest.mark.parametrize("status", STATUSES)
def test_each_exit_status_has_its_heading(status: str) -> None:
    assert f"Exit status {status}" in SECTIONS


def test_each_status_of_an_error_has_its_heading() -> None:
    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind)]
    codes = {getattr(kind, "exit_code", 0) for kind in kinds}
    assert {f"Exit status {code}" for code in codes} <= SECTIONS.keys()


@pytest.mark.parametrize("heading", SECTIONS)
def test_each_heading_has_steps_whom_to_wake_and_an_end(heading: str) -> None:
    text = SECTIONS[heading]
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", text, re.MULTILINE)]
    assert numbers == [*range(1, len(numbers) + 1)]
    assert numbers
    assert "\n**Wake somebody:** " in text
    assert "\n**It is over when** " in text


def test_anchors_within_the_page_exist() -> None:
    headings = {anchor(heading) for heading in re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= headings


@pytest.mark.parametrize("command", sorted({*COMMANDS, *IN_TEXT}))
def test_the_real_parser_takes_each_command(command: str) -> None:
    words = shlex.split(command.removesuffix(" 2"))
    assert argument_parser.build().parse_args(words)


def quoted() -> set[str]:
    """The parts of messages that stand in the first column of the tables `it says`."""
    tables = re.findall(r"^ *\| it says \|.*\n *\|[-|]+\|\n((?: *\|.*\n)+)", PAGE, re.MULTILINE)
    cells = [row.strip().split(" | ")[0] for table in tables for row in table.splitlines()]
    texts = [text for cell in cells for text in re.findall(r"`([^`]+)`", cell)]
    return {part.strip() for text in texts for part in text.split("...")}


@pytest.mark.parametrize("part", sorted(quoted()))
def test_quoted_messages_are_those_of_the_package(part: str) -> None:
    texts = " ".join(text for _, text in texts_of_the_package())
    assert part.removeprefix("photos ") in texts


def test_commands_were_found() -> None:
    assert len(set(COMMANDS)) > 10
