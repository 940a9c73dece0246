"""Measures what stat and open cost here for a file with a second name in another folder, against a file with
one name.

BeeGFS keeps the inode of a file with one name in that name's folder entry. A hard link moves it out for good
(since 7.4), and an open may then ask two metadata servers.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING

from penstock.core.run_documents import LinkCost

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILES = 8
ROUNDS = 3


def link_cost(folder: Path, between: Callable[[], object]) -> LinkCost:
    """Return medians of some dozen calls of each kind, in turn; `folder` is empty. `between` is called now
    and then, and may wait. Raises OSError where links are impossible."""
    first, linked = folder / "first", folder / "linked"
    for place in (first, linked):
        place.mkdir()
    between()
    for number in range(FILES):
        (first / f"one-{number}").write_bytes(b"x")
        (first / f"two-{number}").write_bytes(b"x")
    between()
    for number in range(FILES):
        os.link(first / f"two-{number}", linked / f"two-{number}", follow_symlinks=False)
    took: dict[str, list[float]] = {name: [] for name in LinkCost._fields}
    for _ in range(ROUNDS):
        between()
        for number in range(FILES):
            for kind, path in (("first", first / f"one-{number}"), ("linked", linked / f"two-{number}")):
                began = time.perf_counter()
                os.stat(path, follow_symlinks=False)
                looked = time.perf_counter()
                os.close(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC))
                took[f"{kind}_stat"].append(looked - began)
                took[f"{kind}_open"].append(time.perf_counter() - looked)
    return LinkCost(**{name: round(statistics.median(some) * 1e6, 1) for name, some in took.items()})
