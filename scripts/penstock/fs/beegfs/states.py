"""BeeGFS 8: whether files are stubs, whose data lies in a remote target (`beegfs entry info`).

A stub is a small file with the address of its data. Its state says how it is restored, `manual-restore`,
`auto-restore` or `delayed-restore`; penstock restores none. From 8.4 on states have these names
(`common/beegfs/entry.go` of beegfs-go); earlier they are numbers, in the same order (8.3.1), and so are
locks: 1 against reading, 2 against writing, 3 against both. A file that is locked against reading is left
alone too: its opening would wait for minutes. BeeGFS 7 has no stubs.

`beegfs` reads the paths from its standard input and prints them as they are below the mount.
`fs.store_checks` finds this module, and `fs.data_states` calls what `find` returns. Starts `beegfs`; changes
nothing.
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
    """As `data_states.Ask`, for the file system of one mount."""
    given = {mounted.of(path): path for path in paths}
    answer = command.run(argv(mounted.mount), deadline=DEADLINE, given="".join(f"{path}\0" for path in given))
    states = read(answer.out, [*given], mounted.root)
    return Said.by(answer, {given[path]: state for path, state in states.items()})


def argv(mount: tuple[str, ...] = ()) -> list[str]:
    """The command; each path that it is given ends with a NUL."""
    columns = ("--columns", "path,type,access,state")
    where = ("--mount", mount[0]) if mount else ()
    return [v8.BEEGFS, "entry", "info", *columns, *v8.LINES, *where, r"--stdin-delimiter=\x00", "-"]


def find(point: str, proc: str | os.PathLike[str]) -> Ask | None:
    """What asks the command, for what is mounted at `point`; None where it is not there."""
    if not command.present(v8.BEEGFS):
        return None
    return partial(ask, addresses.find(point, proc))


def read(out: str, paths: Sequence[str], point: str) -> dict[str, DataState]:
    """The states of the rows, by the path that was asked. A row of anything but a regular file says
    nothing."""
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
    """The state by the columns `access` and `state`.

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
