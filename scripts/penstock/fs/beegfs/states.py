"""BeeGFS 8: whether files are stubs, whose data lies in a remote target (`beegfs entry info`).

A stub is a small file with the address of its data. Its state says how it is restored: `manual-restore`,
`auto-restore` or `delayed-restore`; penstock restores none. States have these names from 8.4
(`common/beegfs/entry.go` of beegfs-go); earlier they are numbers in the same order (8.3.1). So are locks: 1
against reading, 2 against writing, 3 against both. A file locked against reading is left alone too: opening
it would wait for minutes. BeeGFS 7 has no stubs.

`beegfs` reads the paths from its standard input and prints them as they are below the mount.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from penstock.fs.beegfs import addresses, v8
from penstock.fs.data_states import DEADLINE, Said
from penstock.fs.stores.facts import DataState
from penstock.host import command

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from penstock.fs.beegfs.addresses import CommandPaths
    from penstock.fs.data_states import Ask

LOCAL = ("available", "local", "none", "0")
STUBS = {
    "manualrestore": "manual", "autorestore": "auto", "delayedrestore": "delayed",
    "1": "manual", "2": "auto", "3": "delayed", "offloaded": "manual",
}  # fmt: skip


def ask(mounted: CommandPaths, paths: Sequence[str]) -> Said:
    """As `data_states.Ask`, for the file system of a mount."""
    asked = {mounted.of(path): path for path in paths}
    answer = command.run(argv(mounted.mount), deadline=DEADLINE, given="".join(f"{path}\0" for path in asked))
    states = read(answer.out, [*asked], mounted.root)
    return Said.by(answer, {asked[path]: state for path, state in states.items()})


def argv(mount: tuple[str, ...] = ()) -> list[str]:
    """Return the command; each path on its standard input ends with a NUL."""
    columns = ("--columns", "path,type,access,state")
    where = ("--mount", mount[0]) if mount else ()
    return [v8.BEEGFS, "entry", "info", *columns, *v8.LINES, *where, r"--stdin-delimiter=\x00", "-"]


def find(point: str, proc: str | os.PathLike[str]) -> Ask | None:
    """Find what queries the command for the mount at `point`; None where the command is missing."""
    if not command.present(v8.BEEGFS):
        return None
    return partial(ask, addresses.find(point, proc))


def read(out: str, paths: Sequence[str], point: str) -> dict[str, DataState]:
    """Parse the states of the rows, by the path asked for. Rows of anything but regular files are skipped."""
    base = point.rstrip("/")
    asked = {path.removeprefix(base): path for path in paths if path.startswith(f"{base}/")}
    asked |= {path: path for path in paths}
    states = {}
    for row in v8.rows(out):
        path = asked.get(str(row.get("path", "")))
        state = None if path is None else state_of(str(row.get("access", "")), str(row.get("state", "")))
        if path is not None and state is not None:
            states[path] = state
    return states


def state_of(access: str, state: str) -> DataState | None:
    """Judge the columns `access` and `state`.

    | state                  | access           | the data is                        |
    |------------------------|------------------|------------------------------------|
    | `(n/a)`, or none       | any              | not said: it is no regular file    |
    | available, 0           | locked for       | offline: nobody reads it now       |
    |                        | reads, 1, 3      |                                    |
    | available, 0           | any other        | local                              |
    | manual-restore, 1, ... | any              | offline: a stub                    |
    | anything else          | any              | offline, under that name           |
    """
    word, lock = (re.sub(r"[^a-z0-9]", "", text.lower()) for text in (state, access))
    if word in ("", "na"):
        return None
    if word in STUBS:
        return DataState("offline", f"a stub (BeeGFS restores it: {STUBS[word]})")
    if word not in LOCAL:
        return DataState("offline", f"BeeGFS calls its data {word}")
    if lock in ("1", "3") or ("locked" in lock and "read" in lock):
        return DataState("offline", "BeeGFS has locked it against reading")
    return DataState("local")
