"""The rooms of the package beside their budget: `python docs/rooms.py` (`make lint`).

The budget stands in pyproject.toml, `[tool.penstock.rooms]`, as what a room had when it was written: modules,
lines, lines of docstrings for each 100 lines of code, and vague names (`VAGUE`). A room that grows beyond it
loses something else, or its line there is raised by a commit that says why. A module's docstring has at most
`HEAD` lines, unless it holds a table. Exit status 1 where something is over.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGE = CHECKOUT / "scripts/penstock"


HEAD = 12
VAGUE = frozenset({"one", "found", "seen", "told", "there", "known", "given"})
"""Names that do not say what a variable, parameter, function or class holds or does."""


class Size(NamedTuple):
    """What a room has, or may have."""

    modules: int
    lines: int  # blank lines and docstrings included
    docstrings: int  # lines for each 100 lines of code, rounded up
    vague: int  # names


def measured(modules: list[Path]) -> Size:
    """The size of a room that has these modules."""
    lines = code = documented = vague = 0
    for path in modules:
        text = path.read_text()
        tree = ast.parse(text)
        texts = {number for node in ast.walk(tree) if _is_text(node) for number in _span(node)}
        lines += len(text.splitlines())
        documented += len(texts)
        code += sum(
            bool(line.strip()) and line.lstrip()[0] != "#"
            for number, line in enumerate(text.splitlines(), 1)
            if number not in texts
        )
        vague += sum(_name(node) in VAGUE for node in ast.walk(tree))
    return Size(len(modules), lines, -(-100 * documented // max(1, code)), vague)


def long_head(path: Path) -> bool:
    """Whether the module's docstring has more than `HEAD` lines, and no table: no `|`, and no line that is
    indented by four blanks."""
    tree = ast.parse(path.read_text())
    text = ast.get_docstring(tree) or ""
    return len(text.splitlines()) > HEAD and "|" not in text and "\n    " not in text


def _is_text(node: ast.AST | None) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _span(node: ast.AST | None) -> range:
    assert isinstance(node, ast.Expr)
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _name(node: ast.AST) -> str:
    """The name that the node binds; "" where it binds none."""
    if isinstance(node, ast.Name):
        return node.id if isinstance(node.ctx, ast.Store) else ""
    if isinstance(node, ast.arg):
        return node.arg
    return node.name if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else ""


def main() -> int:
    table = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["penstock"]["rooms"]
    budget = {room: Size(*limits) for room, limits in table.items()}
    rooms = {
        folder.name: measured(list(folder.rglob("*.py")))
        for folder in sorted(path.parent for path in PACKAGE.glob("*/__init__.py"))
    }
    wrong = sorted(budget.keys() - rooms.keys())
    print(f"{'room':<10} {'modules':>7} {'lines':>7} {'docstrings, %':>13} {'vague':>5}")
    for room, size in rooms.items():
        over = [
            f"{key} {most}"
            for key, most, has in zip(Size._fields, budget.get(room, Size(0, 0, 0, 0)), size, strict=True)
            if has > most
        ]
        wrong += [room] * bool(over)
        row = f"{room:<10} {size.modules:>7} {size.lines:>7,} {size.docstrings:>13} {size.vague:>5}"
        print(f"{row}  over: {', '.join(over)}" if over else row)
    modules, lines = (sum(size[place] for size in rooms.values()) for place in (0, 1))
    print(f"{'in all':<10} {modules:>7} {lines:>7,}")
    if wrong:
        print(f"over their budget, or no rooms any more: {', '.join(wrong)}")
    if heads := [str(path.relative_to(PACKAGE)) for path in sorted(PACKAGE.rglob("*.py")) if long_head(path)]:
        print(f"a docstring of more than {HEAD} lines without a table: {', '.join(heads)}")
    return 1 if wrong or heads else 0


if __name__ == "__main__":
    sys.exit(main())
