"""Reads and writes the JSON documents of a dataset's state (`core.documents`), with errors for people.

| what is there             | `load`            | `find_whole` | `find`      | `need`      |
|---------------------------|-------------------|--------------|-------------|-------------|
| a whole document          | it                | it           | it          | it          |
| nothing                   | FileNotFoundError | None         | None        | FailedError |
| no such document: damaged | ValueError        | None         | FailedError | FailedError |
| what cannot be read       | OSError           | FailedError  | FailedError | FailedError |
| another version's format  | NewerFormatError or OlderVersionError                        |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from penstock.core.errors import STATE_ANEW, FailedError
from penstock.fs import small_files
from penstock.fs.errno_map import storage_error

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.typed_json import Document

T = TypeVar("T")


def load(kind: Document[T], path: Path) -> T:
    """Read a document, by the table above."""
    return kind.from_json(small_files.read(path), path)


def find_whole(kind: Document[T], path: Path) -> T | None:
    """Read a document that can be made again: damage counts as missing. By the table above."""
    try:
        return load(kind, path)
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        raise _unreadable(kind, path, error, STATE_ANEW) from error


def find(kind: Document[T], path: Path, hint: str = STATE_ANEW) -> T | None:
    """Read a document, by the table above; `hint` says what to do if it is damaged."""
    try:
        return load(kind, path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _unreadable(kind, path, error, hint) from error


def need(kind: Document[T], path: Path, hint: str = STATE_ANEW) -> T:
    """As `find`, for a document that must exist."""
    try:
        return load(kind, path)
    except (OSError, ValueError) as error:
        raise _unreadable(kind, path, error, hint) from error


def _unreadable(kind: Document[T], path: Path, error: Exception, hint: str) -> FailedError:
    return FailedError(f"{kind.what} cannot be read", where=str(path), why=str(error), hint=hint)


def write(kind: Document[T], path: Path, document: T) -> None:
    """Write a document durably, with missing folders above it. Raises by `errno_map.storage_error`:
    NoSpaceError on a full target."""
    try:
        small_files.make_dirs(path.parent)
        small_files.write_json(path, kind.to_json(document))
    except OSError as error:
        raise storage_error(error, f"{kind.what} cannot be written", str(path)) from error


def create(kind: Document[T], path: Path, document: T) -> bool:
    """As `write`, unless the file exists: then return False and leave it. One of several processes
    succeeds."""
    try:
        small_files.make_dirs(path.parent)
        return small_files.create_file(path, small_files.json_line(kind.to_json(document)))
    except OSError as error:
        raise storage_error(error, f"{kind.what} cannot be written", str(path)) from error
