"""Reads one setting of a file of `name = value` lines, such as SLURM's cgroup.conf, as its program reads
it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.documents.node_cores import FileValue
from penstock.core.text import printable

if TYPE_CHECKING:
    from pathlib import Path


def setting(path: Path, name: str) -> FileValue:
    """The last line of this name, whatever the size of its letters; what `#` begins is a comment. A file that
    is not there sets nothing. Never raises."""
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
