"""Reads small files of a dataset's folder that may be foreign, damaged or malicious: it follows no link,
waits for no writer, and holds nothing large."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from penstock.fs import small_files
from penstock.fs.safe_open import OPEN_FOLDER, open_beneath

if TYPE_CHECKING:
    from pathlib import Path


class Folder:
    """A folder by its descriptor; a context manager."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, NotADirectoryError for a link too."""
        self.path = path
        self.fd = os.open(path, OPEN_FOLDER)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def names(self, below: str) -> list[str]:
        """Return the names in a folder below. Raises OSError."""
        fd = open_beneath(self.fd, below, OPEN_FOLDER)
        try:
            return sorted(os.listdir(fd))
        finally:
            os.close(fd)

    def lstat(self, below: str) -> os.stat_result:
        """Return the lstat of this path, following no link on the way. Raises OSError."""
        above, _, name = below.rpartition("/")
        fd = open_beneath(self.fd, above, OPEN_FOLDER) if above else os.dup(self.fd)
        try:
            return os.stat(name, dir_fd=fd, follow_symlinks=False)
        finally:
            os.close(fd)

    def read(self, below: str) -> bytes:
        """Return the bytes of a document. Raises OSError, `small_files.NotPlainError` among them."""
        path = self.path / below
        try:
            fd = open_beneath(self.fd, below, small_files.FLAGS)
        except OSError as error:
            raise small_files.refused(error, path) from None
        return small_files.content(fd, path=path)
