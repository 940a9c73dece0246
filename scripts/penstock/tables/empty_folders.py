"""Reads, writes and compares a source's empty folders (`core.dataset_documents.EmptyFolders`), if the dataset
keeps them (`empty_folders: keep`)."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from penstock.core.dataset_documents import EMPTY_FOLDERS, EmptyFolders
from penstock.core.errors import STATE_ANEW, FailedError
from penstock.fs import small_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


def write(path: Path, folders: Sequence[str], *, mode: int = 0o600) -> None:
    """Write the folders' paths durably, in the given order. Raises OSError."""
    small_files.write_json(path, EMPTY_FOLDERS.to_json(EmptyFolders(folders)), mode=mode)


def read(path: Path) -> tuple[str, ...]:
    """Read the paths; () if the file is missing, since the release then keeps no empty folders. Raises
    FailedError for an unreadable file, NewerFormatError."""
    try:
        return tuple(EMPTY_FOLDERS.from_json(small_files.read(path), path).folders)
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise FailedError(
            "the list of empty folders cannot be read", where=str(path), why=str(error), hint=STATE_ANEW
        ) from None


def digest(folders: Iterable[str]) -> str:
    """Return `sha256:<hex>` of the paths in the given order; "" if there are no paths."""
    text = b"\0".join(map(os.fsencode, folders))
    return f"sha256:{hashlib.sha256(text).hexdigest()}" if text else ""


class Kept:
    """The listed empty folders of a tree, ticked off while the tree is walked."""

    def __init__(self, folders: Iterable[str]) -> None:
        self._missing = set(folders)
        self._known = set(self._missing)
        for folder in self._missing:
            above = folder.rpartition("/")[0]
            while above and above not in self._known:
                self._known.add(above)
                above = above.rpartition("/")[0]

    def meet(self, folder: str) -> bool:
        """Tick off a listed folder. Return whether it is listed, or contains a listed folder."""
        self._missing.discard(folder)
        return folder in self._known

    def missing(self) -> list[str]:
        """Return the listed folders that were not ticked off, in byte order."""
        return sorted(self._missing, key=os.fsencode)
