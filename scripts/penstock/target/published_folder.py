"""Puts a small file, such as a signature, beside the seal (`release.json`) of a published release."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from penstock.core.errors import IMPOSSIBLE, FailedError
from penstock.fs.errno_map import storage_error
from penstock.target.reveal import open_to_readers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.core.layout import DatasetLayout


def put_beside(layout: DatasetLayout, release: str, name: str, write: Callable[[Path], None]) -> None:
    """Have `write` make the file, whole and durable; it gets the modes of the manifests.

    The release's own folder has its owner's write bit meanwhile, `data` never. Idempotent after a crash.
    Raises FailedError.
    """
    folder = layout.release(release)
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            mode = stat.S_IMODE(os.fstat(fd).st_mode)
            os.fchmod(fd, mode | 0o300)
        finally:
            os.close(fd)
        try:
            write(folder / name)
        finally:
            open_to_readers(folder)
    except OSError as error:
        raise storage_error(error, f"{name} cannot be written beside the seal", str(folder)) from error
    if not (folder / name).is_file():
        raise FailedError(
            "a file that was written beside the seal is not there", where=str(folder / name), hint=IMPOSSIBLE
        )
