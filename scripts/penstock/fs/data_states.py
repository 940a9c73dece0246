"""Finds out where the data of files is, before any of the files is opened.

With an archive or a tier behind the file system (BeeGFS' stubs, Lustre's HSM, WEKA's object stores), opening
or reading a file fetches its bytes. An audit would bring a whole archive back, or wait for it. So sizes are
read by lstat, which fetches nothing. The vendor's command then reports the states of hundreds of files at a
time. For files that it leaves out, a size without blocks is a hint.

Limits: data that moves away between the query and the read is fetched. Only the vendor's command detects a
stub that keeps blocks. Local disks are not queried (DMF on XFS is not known). GPFS is judged only by its
blocks.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple, Self

from penstock.core.human import is_utf8, printable
from penstock.fs.stores import DataState
from penstock.fs.tree import Calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.host.command import Answer

    Ask = Callable[[Sequence[str]], "Said"]
    """A function that queries a vendor's command about files by their absolute paths."""

PATHS = 500  # number of files in one command, at most
# number of characters of a command's paths, at most, since they may be arguments (Linux allows 2 MiB of
# arguments)
LETTERS = 100_000
DEADLINE = 20.0  # seconds that a command may take
# number of consecutive queries of a single file without an answer, after which the command is no longer run
PATIENCE = 20
INODE = 4096  # bytes; a smaller file may be stored in its inode (GPFS), and so have no blocks
HINT = DataState("offline", "it has a size and no blocks", hinted=True)


class Said(NamedTuple):
    """A command's answer for some files."""

    states: Mapping[str, DataState]  # {path, as in the query: state}; files without an answer are missing
    silence: str = ""  # why files are missing in `states`; "" if unknown, or if no file is missing
    ended: bool = True  # whether the command ended in time; False also if it could not be started

    @classmethod
    def by(cls, answer: Answer, states: Mapping[str, DataState]) -> Self:
        """Combine the command's answer with the states read from its output."""
        return cls(states, answer.words, answer.code is not None)


class DataStates:
    """Finds out where the data of the files below a folder is. For a single thread; must be closed."""

    def __init__(self, folder: Path, ask: Ask | None, *, stubs: bool) -> None:
        """`ask` runs the vendor's command for absolute paths; it is None if there is no command. `stubs`:
        whether a file with a size and no blocks may be a stub. Raises OSError if the folder cannot be
        opened."""
        self._folder = os.path.realpath(folder)
        self._command, self._stubs = ask, stubs
        self._fd = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._calls = Calls()
        self._spoke, self._mute = False, 0
        # the reason why the vendor's command is no longer run; "" while it is run
        self.silence = ""

    def close(self) -> None:
        self._calls.close()
        os.close(self._fd)

    def away(self, paths: Sequence[str], *, hints: bool = True) -> dict[str, DataState]:
        """Return the files (paths below the folder) whose data is not here, or not all of it. Missing and
        empty files are never among them.

        `hints` says whether to judge by blocks, too. An error of a file is never raised.

        | the command's answer | the file's blocks         | result             |
        |----------------------|---------------------------|--------------------|
        | local                | any                       | not returned       |
        | tiered, or offline   | any                       | that state         |
        | none                 | none; the file is beyond  | offline, `hinted`  |
        |                      | INODE, on a kind with     |                    |
        |                      | `stubs`                   |                    |
        | none                 | any other case            | not returned       |
        """
        states: dict[str, DataState] = {}
        unique = list(dict.fromkeys(paths))
        without_blocks = zip(unique, self._calls.each(self._looks, unique), strict=True)
        empty = {path: without for path, without in without_blocks if without is not None}
        said = self._said([*empty])
        for path, without in empty.items():
            state = said.get(path)
            if state is None and hints and self._stubs and without:
                state = HINT
            if state is not None and state.place != "local":
                states[path] = state
        return states

    def _looks(self, paths: Sequence[str]) -> list[bool | None]:
        """Return, for each path, whether the file has no blocks and is larger than INODE; None if it is no
        file with a size."""
        answers: list[bool | None] = []
        for path in paths:
            try:
                status = os.stat(path, dir_fd=self._fd, follow_symlinks=False)
            except OSError:
                # The file is missing or unreadable; this will be reported when it is opened.
                answers.append(None)
                continue
            without = status.st_blocks == 0 and status.st_size > INODE
            answers.append(without if stat.S_ISREG(status.st_mode) and status.st_size else None)
        return answers

    def _said(self, paths: Sequence[str]) -> dict[str, DataState]:
        """Run the vendor's command. Return its states by path below the folder."""
        if self._command is None:
            return {}
        # Commands accept and print text, so a file whose path is no text is judged by its blocks.
        whole = {os.path.join(self._folder, path): path for path in paths if _is_text(path)}
        states: dict[str, DataState] = {}
        for some in _batches([*whole]):
            if self.silence:
                break
            for path, state in self._ask(some).items():
                if path in whole:
                    states[whole[path]] = state
        return states

    def _ask(self, paths: Sequence[str]) -> dict[str, DataState]:
        """Query the states of these files. If a command fails, perhaps because a file vanished, the files are
        queried by halves. The command is not run again if it did not end in time, or never answered. It is
        not run again either after PATIENCE consecutive single files without an answer."""
        if self.silence or self._command is None:
            return {}
        said = self._command(paths)
        states = dict(said.states)
        if states:
            self._spoke, self._mute = True, 0
        left = [path for path in paths if path not in states]
        if not left:
            return states
        if len(paths) == 1:
            self._mute += 1
        if not said.ended or self._mute == (PATIENCE if self._spoke else 2):
            self.silence = printable(said.silence) or "it gave no answer"
        elif len(paths) > 1:
            if not self._spoke:
                # The first and the last file show whether the command answers at all.
                left = [left[0], left[-1], *left[1:-1]] if len(left) > 1 else left
                for path in left[:2]:
                    states |= self._ask([path])
                left = [path for path in left[2:] if path not in states]
            middle = (len(left) + 1) // 2
            for half in (left[:middle], left[middle:]):
                states |= self._ask(half) if half else {}
        return states


def _is_text(path: str) -> bool:
    return is_utf8(path) and "\0" not in path


def _batches(paths: Sequence[str]) -> Iterator[list[str]]:
    some: list[str] = []
    letters = 0
    for path in paths:
        if some and (len(some) == PATHS or letters + len(path) > LETTERS):
            yield some
            some, letters = [], 0
        some.append(path)
        letters += len(path)
    if some:
        yield some
