"""`penstock du`: the areas of a dataset (releases, hidden folders beside them, state, other files), and the
space that they take (`dataset.disk_use`)."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.layout import DATA
from penstock.dataset.disk_use import Use, owned
from penstock.fs.quotas import project_known
from penstock.fs.safe_open import OPEN_FOLDER, open_beneath
from penstock.fs.store_checks import pool_of
from penstock.fs.tree import row as row_of
from penstock.look.releases import Folder, dataset_row, nobody

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.core.catalogue_rows import AreaUse, DatasetRow, DiskUse
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.disk_use import Area

EVERY = 0.2  # seconds between two calls of `progress`


class Place(NamedTuple):
    """The location of an area, and its name."""

    kind: str
    name: str
    state: str
    folder: int  # a descriptor of the folder that contains `names`; the caller closes it
    names: Sequence[str]  # paths below `folder` that belong to the area
    pool: str = ""
    # folders below `folder` that belong to the area without their content; "" is `folder` itself
    tops: Sequence[str] = ()


def used(
    layout: DatasetLayout,
    spend: Callable[[int], None],
    progress: Callable[[int, int], None],
    *,
    filesystem: str = "auto",
) -> DiskUse:
    """Walk the dataset's folder and return the use of its areas. Raises no OSError: problems are named or
    counted in the result. It calls `spend(n)` before n metadata operations, which may raise to end the walk.
    It calls `progress(files, bytes)` now and then."""
    began = time.monotonic()
    answer: DiskUse = {
        "dataset": layout.dataset, "path": str(layout.folder), "problem": "", "areas": [], "shared_files": 0,
        "shared_bytes": 0, "outside_files": 0, "outside_bytes": 0, "files": 0, "folders": 0, "bytes": 0,
        "owners": [], "last_pins": {}, "seconds": 0.0,
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
            pinned = ((release["release"], release["last_pin"]) for release in row["releases"])
            answer["last_pins"] = {release: pin for release, pin in pinned if pin}
            answer["problem"] = row["problem"]
            places = list(_places(layout, folder, row, opened, filesystem))
            areas = [_walked(use, place, spent) for place in places]
            sums = use.ended()
            answer["areas"] = [_shown(place, *area) for place, area in zip(places, areas, strict=True)]
            answer["owners"] = sums.owners()
            answer["shared_files"], answer["shared_bytes"] = sums.in_several
            answer["outside_files"], answer["outside_bytes"] = sums.outside
    except FileNotFoundError:
        answer["problem"] = "nothing is published or staged here yet"
    except OSError as error:
        answer["problem"] = str(error.strerror)
    answer["folders"] = sum(area["folders"] for area in answer["areas"])
    answer["files"] = sum(owner["files"] for owner in answer["owners"]) - answer["folders"]
    answer["bytes"] = sum(owner["bytes"] for owner in answer["owners"])
    answer["seconds"] = round(time.monotonic() - began, 3)
    return answer


def _walked(use: Use, place: Place, spend: Callable[[int], None]) -> tuple[Area, int | None]:
    """Walk an area. Return it with the quota project of its first folder; None if that is unknown."""
    area, project = use.area(), None
    for name in place.tops:
        with suppress(OSError):
            top = os.stat(name or ".", dir_fd=place.folder, follow_symlinks=False)
            area.add_folder(row_of(top), 0)
    for name in place.names:
        try:
            fd = open_beneath(place.folder, name, OPEN_FOLDER)
        except NotADirectoryError:
            use.add_names(area, place.folder, [name], 0)
        except FileNotFoundError:
            continue
        except OSError:
            area.unreadable += 1
        else:
            project = project_known(fd) if project is None else project
            use.add_tree(area, fd, spend)
    return area, project


def _shown(place: Place, area: Area, project: int | None) -> AreaUse:
    return {
        "kind": place.kind,
        "name": place.name,
        "state": place.state,
        "files": area.all_files,
        "folders": area.folders.total(),
        "bytes": area.all_bytes,
        "unique_files": area.files.total(),
        "unique_bytes": area.bytes.total(),
        "frees": owned(area.files + area.folders, area.bytes),
        "project": project,
        "pool": place.pool,
        "unreadable": area.unreadable,
    }


def _places(
    layout: DatasetLayout, folder: Folder, row: DatasetRow, opened: ExitStack, filesystem: str
) -> Iterator[Place]:
    above = layout.releases.name
    for release in row["releases"]:
        name, state = release["release"], "current" if release["current"] else ""
        pool = pool_of(layout.release(name) / DATA, named=filesystem)
        yield Place("release", name, state, folder.fd, [f"{above}/{name}"], pool)
    for staging in row["stagings"]:
        yield Place(
            staging["kind"], staging["name"], staging["state"], folder.fd, [f"{above}/{staging['name']}"]
        )
    if layout.state_root is None:
        yield Place("state", layout.state.name, "", folder.fd, [layout.state.name])
    elif layout.state.is_dir():
        state_folder = opened.enter_context(Folder(layout.state.parent))
        yield Place("state", str(layout.state), "", state_folder.fd, [layout.state.name])
    listed = {layout.releases.name} | ({layout.state.name} if layout.state_root is None else set())
    rest = [name for name in sorted(os.listdir(folder.fd)) if name not in listed]
    yield Place("other", ", ".join(rest), "", folder.fd, rest, "", ["", above])
