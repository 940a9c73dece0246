"""The documents name what the code has: packages, files, columns, fields; and their links lead somewhere."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

from penstock.core import (
    element_documents,
    layout,
    row_codec,
    run_documents,
)
from penstock.core.run_documents import ProbeReport
from penstock.core.seal import Seal
from penstock.dataset.holder import Holder
from penstock.jobs import audits_and_adoptions

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = CHECKOUT / "scripts/penstock"
FORMATS = (CHECKOUT / "docs/formats.md").read_text()
ARCHITECTURE = (CHECKOUT / "docs/architecture.md").read_text()
PAGES = sorted({*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/**/*.md"), *CHECKOUT.glob("benchmarks/*.md")})


def names_in(module: Path) -> set[str]:
    """Names of files and folders that a module writes out, without their numbers."""
    constants = {
        node.value
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return {
        one
        for one in constants
        if re.fullmatch(r"[a-z][a-z0-9-]*(\.(json|jsonl|parquet|xxh128|sha256))?", one)
    }


def test_each_file_that_the_layout_names_stands_in_formats() -> None:
    names = names_in(Path(layout.__file__)) | {"cancelled.json"}
    names |= {one for one in names_in(Path(audits_and_adoptions.__file__)) if "." in one}
    assert {"lock", "claims", "plan.json", "seen", "manifest.parquet"} <= names | {"seen"}
    missing = {one for one in names if not re.search(rf"[`/.]{re.escape(one)}\b", FORMATS)}
    assert not missing


@pytest.mark.parametrize(
    "document",
    [
        run_documents.RunInfo,
        run_documents.PlanInfo,
        run_documents.ShardInfo,
        Holder,
        Seal,
        ProbeReport,
        run_documents.TrialOutcome,
    ],
)
def test_each_field_stands_in_formats(document: type) -> None:
    missing = {name for name in inspect.get_annotations(document) if f"`{name}`" not in FORMATS}
    assert not missing


def test_each_column_of_a_row_stands_in_formats() -> None:
    tables = (row_codec.LISTING, row_codec.SHARD, row_codec.RECORDS, row_codec.MANIFEST)
    asked = {one.name for one in row_codec.COLUMNS if any(table in one.stands for table in tables)}
    assert not {name for name in asked if f"`{name}`" not in FORMATS}


def test_the_table_of_elements_has_each_column_with_its_unit() -> None:
    rows = "".join(f"| `{one.name}` | {one.unit} | {one.means} |\n" for one in element_documents.COLUMNS)
    assert rows in FORMATS


def test_each_room_stands_in_the_drawing_and_in_the_table() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    drawing, _, rest = ARCHITECTURE.partition("| room | what it holds")
    for package in packages:
        assert re.search(rf"^\d  (.*\| )?{package}( \||  )", drawing, re.MULTILINE), package
        assert re.search(rf"^\| `{package}` \|", rest, re.MULTILINE), package


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        assert re.match(r"https?://", target) or (page.parent / target).exists(), target


def anchors(page: Path) -> set[str]:
    """The fragments that lead to the headings of a page."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_links_lead_to_headings(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target, fragment in re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", text):
        where = page.parent / target if target else page
        if "://" not in target and where.suffix == ".md":
            assert fragment in anchors(where), (target, fragment)


def test_each_decision_is_listed() -> None:
    listed = (CHECKOUT / "docs/decisions/README.md").read_text()
    for page in (CHECKOUT / "docs/decisions").glob("0*.md"):
        assert f"({page.name})" in listed
        text = page.read_text()
        assert [line for line in text.splitlines() if line.startswith("## ")] == [
            "## Problem",
            "## Alternatives",
            "## Outcome",
        ]
        assert re.search(r"^Date: 20\d\d-\d\d-\d\d", text, re.MULTILINE)


TO_BE_SHOWN = [
    "N5",
    "N6",
    "N8",
    "O1",
    "O2",
    "O3",
    "O5",
    "A1",
    "A2",
    "A4",
    "A5",
    "A7",
    "A8",
    "L6",
    "L7",
    "L8",
    "L9",
]


SHOWN_OF_SLURM = ["L1", "L2", "L3", "L4", "L5", "Z1", *(f"S{number}" for number in range(22, 30))]
SHOWN_BY = re.compile(r"\|(?: ([A-Z]\d+))? \| .+ \| (`tests/[^`]+`(?:, `tests/[^`]+`)*) \|")


@pytest.mark.parametrize(
    ("page", "ids"), [("filesystems-tests", TO_BE_SHOWN), ("slurm-tests", SHOWN_OF_SLURM)]
)
def test_the_page_names_a_test_that_carries_the_id_of_each_requirement(page: str, ids: list[str]) -> None:
    _, _, text = (CHECKOUT / f"docs/{page}.md").read_text().partition("\n## Which test shows what\n")
    table = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("|")][2:]
    rows = [(line, SHOWN_BY.fullmatch(line)) for line in table]
    assert not [line for line, row in rows if row is None]
    shown = [(row[1], module) for _, row in rows if row for module in re.findall(r"`([^`]+)`", row[2])]
    assert set(ids) <= {name for name, _ in shown}
    for name, module in shown:
        tests = (CHECKOUT / module).read_text()
        assert not name or re.search(rf"\b{name}\b|test_(\w+_)?{name.lower()}_", tests), (name, module)
