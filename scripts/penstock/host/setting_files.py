"""Reads a setting in a file of `name = value` lines, such as SLURM's cgroup.conf, as its program reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.documents.node_cores import FileValue
from penstock.core.text import printable

if TYPE_CHECKING:
    from pathlib import Path


def setting(path: Path, name: str) -> FileValue:
    """Return the last value of this name, in any case; `#` begins a comment. Never raises."""
    shown = printable(str(path))
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return FileValue(shown)
    except OSError as error:
        return FileValue(shown, error=error.strerror or str(error))
    last = None
    for line in lines:
        key, equals, value = line.partition("#")[0].partition("=")
        if equals and key.strip().lower() == name.lower():
            last = printable(value.strip().strip("\"'"))
    return FileValue(shown, last)
