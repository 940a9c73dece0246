"""WEKA: how much of files is on the SSDs, and how much only in the object store (`weka fs tier location`).

A read of a tiered file fetches it to the SSDs by itself. The command's table has the columns `PATH`, `FILE
TYPE`, `FILE SIZE`, `CAPACITY IN SSD (WRITE-CACHE)`, `CAPACITY IN SSD (READ-CACHE)`, `CAPACITY IN OBJECT
STORAGE` and `CAPACITY IN REMOTE STORAGE`. The reference of its command line names them `path`, `file_type`,
`file_size`, `ssd_write_cache_bytes`, `ssd_read_cache_bytes`, `object_storage_bytes` and
`remote_storage_bytes`. The keys in JSON are not documented: both are read.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from penstock.fs.data_states import DEADLINE, Said
from penstock.fs.stores.facts import DataState
from penstock.host import command

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from penstock.fs.data_states import Ask

WEKA = "weka"


def ask(paths: Sequence[str]) -> Said:
    """As `data_states.Ask`."""
    answer = command.run(argv(paths), deadline=DEADLINE)
    return Said.by(answer, read(answer.out, paths))


def argv(paths: Sequence[str]) -> list[str]:
    """Return the command: JSON, and sizes in bytes."""
    return [WEKA, "fs", "tier", "location", "--json", "--raw-units", *paths]


def find(point: str, proc: str | os.PathLike[str]) -> Ask | None:  # noqa: ARG001 (it finds the mount itself)
    """Find what queries the command; None where it is missing."""
    return ask if command.present(WEKA) else None


def read(out: str, paths: Sequence[str]) -> dict[str, DataState]:
    """Parse the states, by path. Rows without JSON, or without a size, are skipped."""
    try:
        rows = json.loads(out)
    except ValueError:
        return {}
    asked, states = frozenset(paths), {}
    for row in rows if isinstance(rows, list) else [rows]:
        if not isinstance(row, dict):
            continue
        cells = {re.sub(r"[^a-z]", "", str(name).lower()): value for name, value in row.items()}
        sizes = [_bytes(cells, *names) for names in _SIZES]
        path = str(cells.get("path", ""))
        if path in asked and None not in sizes:
            states[path] = state_of(*(size or 0 for size in sizes))
    return states


_SIZES = (
    ("filesize",),
    ("ssdwritecachebytes", "capacityinssdwritecache"),
    ("ssdreadcachebytes", "capacityinssdreadcache"),
    ("objectstoragebytes", "capacityinobjectstorage"),
)


def _bytes(cells: dict[str, Any], *names: str) -> int | None:
    value = next((cells[name] for name in names if name in cells), None)
    number = re.fullmatch(r"(\d+)(?: ?B)?", str(value).strip())
    return int(number[1]) if number else None


def state_of(size: int, written: int, cached: int, stored: int) -> DataState:
    """Judge the file's size and its bytes in the SSDs' write cache, in their read cache and in the object
    store.

    | on SSDs, in both caches | in the object store | the data is                           |
    |-------------------------|---------------------|---------------------------------------|
    | all of it, or more      | any                 | local                                 |
    | less                    | none                | local: holes take no room             |
    | less                    | some                | tiered: the rest is fetched by a read |
    """
    if written + cached >= size or not stored:
        return DataState("local")
    return DataState(
        "tiered", "in the object store" if not written + cached else "partly in the object store"
    )
