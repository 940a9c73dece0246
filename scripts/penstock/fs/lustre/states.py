"""Lustre: whether the data of files was released to an archive (`lfs hsm_state`, of many files at once).

`lfs` opens each file without reading it (O_RDONLY | O_NONBLOCK, `llapi_hsm_state_get` in
lustre/utils/liblustreapi_hsm.c). That restores nothing: reading does. It prints a line for each file,
`<path>: (0x0000000d) released exists archived, archive_id:1`, and ends at the first that it cannot open.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.fs.data_states import DEADLINE, Said
from penstock.fs.stores.facts import DataState
from penstock.host import command

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from penstock.fs.data_states import Ask

LFS = "lfs"
RELEASED, LOST = 0x4, 0x40  # flags of `enum hsm_states` in lustre_user.h
_FLAGS = re.compile(r": \(0x([0-9a-f]{8})\)[^\n]*(?:\n|\Z)")


def ask(paths: Sequence[str]) -> Said:
    """As `data_states.Ask`."""
    answer = command.run(argv(paths), deadline=DEADLINE)
    return Said.by(answer, read(answer.out, paths))


def argv(paths: Sequence[str]) -> list[str]:
    return [LFS, "hsm_state", *paths]


def find(point: str, proc: str | os.PathLike[str]) -> Ask | None:  # noqa: ARG001 (it finds the mount itself)
    """Find what queries the command; None where it is missing."""
    return ask if command.present(LFS) else None


def read(out: str, paths: Sequence[str]) -> dict[str, DataState]:
    """Parse the states, by path. The lines are in the order of `paths`, and a path may hold line feeds."""
    states = {}
    at = 0
    for path in paths:
        line = _FLAGS.match(out, at + len(path)) if out.startswith(path, at) else None
        if line is None:
            break
        states[path] = state_of(int(line[1], 16))
        at = line.end()
    return states


def state_of(flags: int) -> DataState:
    """Judge the flags.

    | released | lost | the data is                              |
    |----------|------|------------------------------------------|
    | no       | any  | local, archived or not                   |
    | yes      | no   | offline: in the archive                  |
    | yes      | yes  | offline: the archive has lost it         |
    """
    if not flags & RELEASED:
        return DataState("local")
    return DataState(
        "offline", "released, and lost by the archive" if flags & LOST else "released to the archive"
    )
