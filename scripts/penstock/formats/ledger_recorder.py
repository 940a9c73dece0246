"""Writes down how links and unlinks moved ctimes (`formats.ledger_file`): loads pyarrow when something is
written."""

from __future__ import annotations

import time
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

from penstock.errors import NoSpaceError
from penstock.formats.ledger_segments import Moves

if TYPE_CHECKING:
    from pathlib import Path

RECORDED, RECORDED_AFTER = 65_536, 5.0


class Recorder:
    """Writes moves down as they come, from any thread: a segment after RECORDED moves or RECORDED_AFTER
    seconds, and at the end. What a kill leaves out of the ledger is read back."""

    def __init__(self, folder: Path | None, name: str) -> None:
        """`folder`: None: nowhere."""
        self._folder, self._name = folder, name
        self._lock = Lock()
        self._moves, self._since = Moves(), time.monotonic()

    def __call__(self, inode: int, before_ns: int, after_ns: int) -> None:
        with self._lock:
            self._moves.add(inode, before_ns, after_ns)
            if len(self._moves) < RECORDED and time.monotonic() - self._since < RECORDED_AFTER:
                return
            due, self._moves, self._since = self._moves, Moves(), time.monotonic()
        self._write(due)

    def close(self) -> None:
        """All is written down. Raises FailedError."""
        due, self._moves = self._moves, Moves()
        self._write(due)

    def _write(self, moves: Moves) -> None:
        if self._folder is not None and moves:
            from penstock.formats.ledger_file import write

            # Where no space is left the removal goes on: it makes room, and the files are read back.
            with suppress(NoSpaceError):
                write(self._folder, self._name, moves)
