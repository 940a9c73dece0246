"""`history.jsonl`: what became of a dataset's releases, one JSON object a line, kept apart from them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.layout import DatasetLayout


def lines(layout: DatasetLayout) -> Iterator[dict[str, Any]]:
    """The lines, newest first; of no history none. A line that a crash left torn is passed over.
    Raises OSError when the file is there and cannot be read."""
    try:
        content = layout.history.read_bytes()
    except FileNotFoundError:
        return
    for raw in reversed(content.splitlines()):
        try:
            told = json.loads(raw)
        except ValueError:
            continue
        if isinstance(told, dict):
            yield told


def published_seal(layout: DatasetLayout, release: str) -> str | None:
    """`sha256:<hex>` of the release's seal as it was published, None where no line says so. Raises as
    `lines`."""
    for told in lines(layout):
        if (told.get("event"), told.get("release")) == ("publish", release):
            return str(told.get("seal"))
    return None


def claim_of(layout: DatasetLayout, run: str) -> int:
    """The number of the claim by which the run was published last, 0 where no line says so. Raises as
    `lines`."""
    for told in lines(layout):
        if (told.get("event"), told.get("run")) == ("publish", run):
            return int(told.get("claim") or 0)
    return 0


def last_claim(layout: DatasetLayout) -> int:
    """The highest number of a claim that a line names, 0 without one. Raises as `lines`."""
    return max((int(told.get("claim") or 0) for told in lines(layout)), default=0)
