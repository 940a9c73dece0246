"""Files of other accounts, which only root makes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def give(path: Path, uid: int, gid: int) -> None:
    """chown(2), where -1 keeps what is. Skips an account that may not."""
    try:
        os.chown(path, uid, gid)
    except PermissionError:
        if os.geteuid() == 0:
            raise
        pytest.skip("only root gives files to other accounts")
