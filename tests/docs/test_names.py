"""Names that say nothing do not last: in a scope of a module's functions they live three lines at most."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "scripts/penstock"
SAY_NOTHING = frozenset({"one", "found", "seen", "told", "here", "other"})
LINES = 3
SCOPES = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)


def own(scope: ast.AST) -> dict[str, list[int]]:
    """The lines on which a scope, without those within it, has each of the names."""
    lines: dict[str, list[int]] = {}
    left = list(ast.iter_child_nodes(scope))
    while left:
        node = left.pop()
        name = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else ""
        if name in SAY_NOTHING:
            lines.setdefault(name, []).append(node.lineno)  # type: ignore[attr-defined]
        if not isinstance(node, SCOPES):
            left += ast.iter_child_nodes(node)
    return lines


def lasting(source: str) -> list[str]:
    """`<first line> <name>` of each name that lives too long."""
    return [
        f"{min(lines)} {name}"
        for scope in ast.walk(ast.parse(source))
        if isinstance(scope, SCOPES)
        for name, lines in own(scope).items()
        if max(lines) - min(lines) >= LINES
    ]


@pytest.mark.parametrize("room", sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py")))
def test_no_such_name_lasts(room: str) -> None:
    found = {
        str(path.relative_to(PACKAGE)): lasting(path.read_text()) for path in (PACKAGE / room).rglob("*.py")
    }
    assert {path: names for path, names in found.items() if names} == {}


def test_a_name_that_lasts_is_noticed_and_a_short_one_is_not() -> None:
    assert lasting("def f(found):\n  a\n  b\n  return found\n") == ["1 found"]
    assert lasting("def f(rows):\n  for one in rows:\n    print(one)\n") == []
