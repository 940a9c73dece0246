"""The results of list, plan and a dry run, as text. Guarantee: every name is escaped."""

from __future__ import annotations

import textwrap
from itertools import chain, repeat
from typing import TYPE_CHECKING

from penstock.core import human
from penstock.core.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.documents.step_results import (
        DryRunResult,
        ListResult,
        PlanResult,
        Preview,
    )

WIDTH = 14
COLUMNS = 80
"""A line has no more, but for a long path or URL."""


def listing(result: ListResult) -> str:
    """How much there is, what was left out, and the release that it makes."""
    amount = f"{human.counted(result['files'], 'file')}, {human.size(result['bytes'])}"
    rows = [
        ("Scanned", human.counted(result["scanned"], "object")),
        ("Left out", ", ".join(human.of_kinds(result["ignored"]))),
        ("To stage", "" if result["published"] else amount),
        ("Release", f"{result['release']}{', published already' if result['published'] else ''}"),
        ("Current", result["current"] or "none"),
    ]
    return _block(result["dataset"], rows)


def plan(result: PlanResult) -> str:
    """What is copied and what is linked; how many shards, how much room and time, and why."""
    files, size = result["files"] - result["unchanged"], result["bytes"] - result["unchanged_bytes"]
    unchanged = f"{human.counted(result['unchanged'], 'file')}, {human.size(result['unchanged_bytes'])}"
    rows = [
        ("Release", f"{result['release']}{', published already' if result['published'] else ''}"),
        ("To copy", f"{human.counted(files, 'file')}, {human.size(size)}"),
        ("Unchanged", f"{unchanged}, of {result['base']}" if result["unchanged"] else ""),
        ("Renamed", f"{human.count(result['renamed'])} of them" if result["renamed"] else ""),
        ("Giants", human.count(result["giants"]) if result["giants"] else ""),
        ("Shards", human.count(result["shards"]) if result["shards"] else ""),
        *(("", text) for text in result["why"]),
    ]
    return _block(result["dataset"], rows)


def preview(result: DryRunResult, step: str = "run") -> str:
    """Of `steps.dry_run`: a block a dataset, and what a dry run does not do."""
    datasets = result["datasets"]
    verb = "read back" if step == "audit" else "staged"
    lines = [f"Dry run: {human.counted(len(datasets), 'dataset')} would be {verb}. No source was listed, "]
    lines[0] += "nothing was changed."
    return "\n".join(lines) + "\n" + "".join(_would(found) for found in datasets.values())


def _would(found: Preview) -> str:
    amount = ""
    if found.get("current") and "files" in found:
        amount = f": {human.counted(found['files'], 'file')}, {human.size(found.get('bytes', 0))}"
    rows = [
        *(("Source", url) for url in found["sources"]),
        ("Target", f"{found['target']} ({found['backend']} elements)"),
        ("Current", f"{found['current']}{amount}" if found.get("current") else "none"),
        ("State", found.get("state", "")),
        ("Locked", found.get("lock", "")),
        ("Would", found.get("would", "")),
        ("Problem", " ".join(found.get("problem", "").split())),
    ]
    return _block(found["dataset"], rows)


def _block(dataset: str, rows: Sequence[tuple[str, str]]) -> str:
    lines = [dataset]
    for title, text in rows:
        wrapped = textwrap.wrap(
            printable(text), COLUMNS - WIDTH - 2, break_long_words=False, break_on_hyphens=False
        )
        titles = chain([title], repeat(""))
        lines += [f"  {name:<{WIDTH}}{part}" for name, part in zip(titles, wrapped, strict=False)]
    return "\n".join(lines) + "\n"
