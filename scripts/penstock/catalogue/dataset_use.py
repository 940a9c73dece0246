"""`penstock du`: the areas of one dataset (its releases, what lies hidden beside them, its state, the rest),
and how much room they take (`disk_use`)."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from penstock.catalogue.disk_use import Place, Use, elapsed
from penstock.catalogue.holders import nobody
from penstock.catalogue.reading import Folder
from penstock.catalogue.releases import dataset_row
from penstock.core.layout import DATA
from penstock.vendors.registry import pool_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.core.documents.catalogue_rows import DatasetRow
    from penstock.core.documents.disk_use import DiskUse
    from penstock.core.layout import DatasetLayout

EVERY = 0.2
"""Seconds between two reports of progress."""


def used(
    layout: DatasetLayout,
    spend: Callable[[int], None],
    progress: Callable[[int, int], None],
    *,
    filesystem: str = "auto",
) -> DiskUse:
    """What a walk of the dataset's folder finds. `spend(n)` is called before n calls to the file system, and
    may raise to end the walk; `progress(files, bytes)` now and then. Raises no OSError: what cannot be opened
    is said, or counted."""
    began = time.monotonic()
    found: DiskUse = {
        "dataset": layout.dataset, "path": str(layout.folder), "problem": "", "areas": [], "shared_files": 0,
        "shared_bytes": 0, "outside_files": 0, "outside_bytes": 0, "files": 0, "folders": 0, "bytes": 0,
        "owners": [], "seconds": 0.0,
    }  # fmt: skip
    try:
        with ExitStack() as opened, Use() as use:
            folder = opened.enter_context(Folder(layout.folder))
            shown = began

            def spent(count: int) -> None:
                nonlocal shown
                spend(count)
                if time.monotonic() - shown >= EVERY:
                    shown = time.monotonic()
                    progress(use.files, use.bytes)

            row = dataset_row(layout, nobody)
            found["problem"] = row["problem"]
            for place in _places(layout, folder, row, opened, filesystem):
                use.add(place, spent)
            sums = use.ended()
            found["areas"] = list(use.areas())
            found["owners"] = sums.owners()
            found["shared_files"], found["shared_bytes"] = sums.shared
            found["outside_files"], found["outside_bytes"] = sums.outside
    except FileNotFoundError:
        found["problem"] = "nothing is published or staged here yet"
    except OSError as error:
        found["problem"] = str(error.strerror)
    found["folders"] = sum(one["folders"] for one in found["areas"])
    found["files"] = sum(one["files"] for one in found["owners"]) - found["folders"]
    found["bytes"] = sum(one["bytes"] for one in found["owners"])
    found["seconds"] = elapsed(began)
    return found


def _places(
    layout: DatasetLayout, folder: Folder, row: DatasetRow, opened: ExitStack, filesystem: str
) -> Iterator[Place]:
    above = layout.releases.name
    for release in row["releases"]:
        name, state = release["release"], "current" if release["current"] else ""
        pool = pool_of(layout.release(name) / DATA, named=filesystem)
        yield Place("release", name, state, folder.fd, [f"{above}/{name}"], pool)
    for one in row["stagings"]:
        yield Place(one["kind"], one["name"], one["state"], folder.fd, [f"{above}/{one['name']}"])
    if layout.state_root is None:
        yield Place("state", layout.state.name, "", folder.fd, [layout.state.name])
    elif layout.state.is_dir():
        state_folder = opened.enter_context(Folder(layout.state.parent))
        yield Place("state", str(layout.state), "", state_folder.fd, [layout.state.name])
    listed = {layout.releases.name} | ({layout.state.name} if layout.state_root is None else set())
    rest = [name for name in sorted(os.listdir(folder.fd)) if name not in listed]
    yield Place("other", ", ".join(rest), "", folder.fd, rest, "", ["", above])
