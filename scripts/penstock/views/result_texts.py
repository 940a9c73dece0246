"""The results of list, plan and a dry run, as text. Guarantee: every name is escaped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import human
from penstock.views import text_block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.documents.step_results import (
        DryRunResult,
        ListResult,
        PlanResult,
        Preview,
    )

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
        lines += text_block.field(title, text, COLUMNS) if text else []
    return "\n".join(lines) + "\n"
