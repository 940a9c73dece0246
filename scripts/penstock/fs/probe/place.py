"""The folders that one trial of the probe works in, and the small things that trials have in common."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.documents.probe_report import NO, VALUE, YES, TrialOutcome
from penstock.host.proc import PROC

if TYPE_CHECKING:
    from pathlib import Path


class TrialFolders(NamedTuple):
    """The folders of one trial, which no other uses."""

    work: Path
    """An empty folder."""
    beside: Path | None = None
    """An empty folder below the folder beside; None where none was given."""
    proc: str = PROC

    def file(self, name: str, content: bytes = b"") -> Path:
        """A new file. Raises OSError."""
        path = self.work / name
        path.write_bytes(content)
        return path

    def folder(self, name: str) -> Path:
        """A new folder. Raises OSError."""
        path = self.work / name
        path.mkdir()
        return path


def answered(does: bool, why: str = "") -> TrialOutcome:
    """`yes`, or `no` with what was seen instead."""
    return TrialOutcome(YES) if does else TrialOutcome(NO, why=why)


def valued(value: int, why: str = "") -> TrialOutcome:
    return TrialOutcome(VALUE, value, why=why)


def write_whole(fd: int, content: bytes, offset: int = 0) -> None:
    """Raises OSError; a write that takes only some of the bytes is continued."""
    view = memoryview(content)
    while view:
        done = os.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done
