"""Documents and docstrings avoid the phrases that readers stumbled over.

A phrase is listed with what to write instead. The list holds only phrases that are hardly ever right here.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = CHECKOUT / "scripts/penstock"
PAGES = [
    *CHECKOUT.glob("*.md"),
    *CHECKOUT.glob("docs/**/*.md"),
    *CHECKOUT.glob("workflow/**/*.smk"),
    CHECKOUT / "Makefile",
    CHECKOUT / "config.yaml",
    CHECKOUT / "Snakefile",
    CHECKOUT / "workflow/schemas/config.schema.yaml",
]
PHRASES = {
    r"\b(is|are|was|were|be|been|it|not) told\b(?! apart)": "is reported",
    r"\btells? (of|whether|what|how|that|the|it|a|an)\b": "reports, states, shows",
    r"\b(be|is|are) patient\b": "waits",
    r"\b(hold|holds|held) against\b": "compare with, validate against",
    r"\bmend(s|ed|ing)?\b(?!\()": "repair, correct",
    r"\b(be|is|are|was) had\b": "is available",
    r"\basked for again\b": "requested again, retried",
    r"\bon wish\b": "if configured",
    r"\bas ever\b": "as before",
    r"\bwhat is met\b": "the error that occurs",
    r"\bgone on with\b": "continued",
    r"\blies afar\b": "is remote",
}


def docstrings(module: Path) -> Iterator[tuple[int, str]]:
    """Each text that stands alone: docstrings, and those below constants and fields."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            for part in node.body:
                if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant):
                    text = part.value.value
                    if isinstance(text, str):
                        yield part.lineno, text


def found_in(text: str) -> list[str]:
    text = " ".join(re.sub(r"`[^`]*`", "``", text).split())
    return [
        f"{match[0]!r}: better {instead}"
        for phrase, instead in PHRASES.items()
        for match in re.finditer(phrase, text)
    ]


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_documents(page: Path) -> None:
    assert not found_in(page.read_text())


@pytest.mark.parametrize(
    "module", sorted(PACKAGE.rglob("*.py")), ids=lambda one: str(one.relative_to(PACKAGE))
)
def test_docstrings(module: Path) -> None:
    found = [f"line {line}: {one}" for line, text in docstrings(module) for one in found_in(text)]
    assert not found


def test_a_banned_phrase_is_found_and_others_are_not() -> None:
    assert found_in("What waits is told.") == ["'is told': better is reported"]
    assert found_in("Versions cannot be told apart; the amended rows; `mend` in code") == []
