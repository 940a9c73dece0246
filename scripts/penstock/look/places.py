"""The datasets below a target's root: folders that look like one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.core.errors import LOOK_AT_FILE, FailedError, PreflightError
from penstock.core.layout import DATASET_NAME, UNDER_WAY

if TYPE_CHECKING:
    from pathlib import Path

_SIGNS = ("releases", "current", ".penstock", UNDER_WAY)  # a folder with one of these is a dataset


def datasets(root: Path) -> list[str]:
    """Return the sorted names of the datasets below `root`, with folders and links of such names that cannot
    be read. Raises PreflightError if there is no such root or this account may not list it, FailedError if
    listing fails."""
    try:
        with os.scandir(root) as entries:
            return sorted(
                entry.name for entry in entries if DATASET_NAME.fullmatch(entry.name) and _is_dataset(entry)
            )
    except (FileNotFoundError, NotADirectoryError) as error:
        raise PreflightError(
            "there is no such target",
            where=str(root),
            why=str(error.strerror),
            hint="correct `target.root` or --root",
        ) from None
    except PermissionError as error:
        raise PreflightError(
            "this account may not list the target",
            where=str(root),
            why=str(error.strerror),
            hint="name datasets of the configuration, or ask the root's owner for the permission to read it",
        ) from None
    except OSError as error:
        raise FailedError(
            "the target cannot be listed", where=str(root), why=str(error.strerror), hint=LOOK_AT_FILE
        ) from None


def _is_dataset(entry: os.DirEntry[str]) -> bool:
    if entry.is_symlink():
        return any(os.path.lexists(os.path.join(entry.path, sign)) for sign in _SIGNS)
    if not entry.is_dir(follow_symlinks=False):
        return False
    try:
        with os.scandir(entry.path) as inside:
            return any(inner.name in _SIGNS for inner in inside)
    except OSError:
        return True
