"""The rooms of the package beside their budget: `python docs/rooms.py` (`make lint`).

The budget stands in pyproject.toml, `[tool.penstock.rooms]`: for each room the modules and the lines that it
may have: what stood in it when the budget was written. Where a room grows beyond it, either something
can go, or the line there is raised by a commit that says why.
Exit status 1 where a room is over its budget, or stands in one of the two places alone.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGE = CHECKOUT / "scripts/penstock"


class Size(NamedTuple):
    """What a room has, or may have."""

    modules: int
    lines: int


def measured() -> dict[str, Size]:
    """Each room's modules and lines, blank lines and docstrings included."""
    rooms = {}
    for folder in sorted(path.parent for path in PACKAGE.glob("*/__init__.py")):
        modules = list(folder.rglob("*.py"))
        rooms[folder.name] = Size(len(modules), sum(len(path.read_bytes().splitlines()) for path in modules))
    return rooms


def main() -> int:
    table = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["penstock"]["rooms"]
    budget = {room: Size(*limits) for room, limits in table.items()}
    rooms = measured()
    wrong = sorted(budget.keys() - rooms.keys())
    print(f"{'room':<10} {'modules':>7} {'of':>4} {'lines':>7} {'of':>7}")
    for room, size in rooms.items():
        limit = budget.get(room, Size(0, 0))
        over = size.modules > limit.modules or size.lines > limit.lines
        wrong += [room] * over
        row = f"{room:<10} {size.modules:>7} {limit.modules:>4} {size.lines:>7,} {limit.lines:>7,}"
        print(f"{row}  over its budget" if over else row)
    whole = Size(*map(sum, zip(*rooms.values(), strict=True)))
    print(f"{'in all':<10} {whole.modules:>7} {'':>4} {whole.lines:>7,}")
    if wrong:
        print(f"over their budget, or no rooms any more: {', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
