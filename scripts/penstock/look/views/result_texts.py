"""What a dry run would do, as text; and the block of titled rows that list and plan print too. Every name is
escaped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import human
from penstock.look.views import text_block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.step_results import DryRunResult, Preview

COLUMNS = 80  # columns of a line, but for long paths or URLs


def preview(result: DryRunResult, step: str = "run") -> str:
    """Return a block for each dataset of `run.rehearsal`, and what a dry run does not do."""
    datasets = result["datasets"]
    verb = "read back" if step == "audit" else "staged"
    head = f"Dry run: {human.counted(len(datasets), 'dataset')} would be {verb}. Nothing was changed.\n"
    return head + "".join(_would(preview_of_dataset) for preview_of_dataset in datasets.values())


def _would(preview: Preview) -> str:
    amount = ""
    if preview.get("current") and "files" in preview:
        amount = f": {human.counted(preview['files'], 'file')}, {human.size(preview.get('bytes', 0))}"
    rows = [
        *(("Source", url) for url in preview["sources"]),
        ("Target", f"{preview['target']} ({preview['backend']} elements)"),
        ("Current", f"{preview['current']}{amount}" if preview.get("current") else "none"),
        ("State", preview.get("state", "")),
        ("Locked", preview.get("lock", "")),
        ("Would", preview.get("would", "")),
        ("Takes", " ".join(preview.get("takes", "").split())),
        ("Problem", " ".join(preview.get("problem", "").split())),
    ]
    return block(preview["dataset"], rows)


def block(dataset: str, rows: Sequence[tuple[str, str]]) -> str:
    """Return the dataset, and its rows of title and text, wrapped; rows without a text are left out."""
    lines = [dataset]
    for title, text in rows:
        lines += text_block.field(title, text, COLUMNS) if text else []
    return "\n".join(lines) + "\n"
