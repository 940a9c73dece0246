"""The folders of a trial of the probe, and what trials share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.run_documents import (
    NO,
    VALUE,
    YES,
    TrialOutcome,
)
from penstock.host.proc import PROC

if TYPE_CHECKING:
    from pathlib import Path


class TrialFolders(NamedTuple):
    """The folders of a trial, used by no other."""

    work: Path  # an empty folder
    beside: Path | None = None  # an empty folder below the folder beside; None: not given
    proc: str = PROC

    def file(self, name: str, content: bytes = b"") -> Path:
        """Make a file below `work`."""
        path = self.work / name
        path.write_bytes(content)
        return path

    def folder(self, name: str) -> Path:
        """Make a folder below `work`."""
        path = self.work / name
        path.mkdir()
        return path


def answered(does: bool, why: str = "") -> TrialOutcome:
    """Answer `yes`, or `no` with what was observed instead."""
    return TrialOutcome(YES) if does else TrialOutcome(NO, why=why)


def valued(value: int, why: str = "") -> TrialOutcome:
    return TrialOutcome(VALUE, value, why=why)


def write_whole(fd: int, content: bytes, offset: int = 0) -> None:
    """Write all bytes, also where a write takes only some."""
    view = memoryview(content)
    while view:
        done = os.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done
