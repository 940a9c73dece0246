"""The storage contract on every named set (`sets.SETS`)."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.contracts.storage_contract import StorageContract
from tests.filesystems.bed import Bed
from tests.filesystems.sets import SETS

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", params=[*SETS, "links-are-symlinks"])
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    named = request.param in SETS
    with Bed(named=request.param) if named else Bed(named="beegfs8", links="symlink") as made:
        yield made


class TestNamedSets(StorageContract):
    """On each set, and on a BeeGFS that is set to make symbolic links in place of hard ones."""

    @pytest.fixture
    def place(self, bed: Bed) -> Iterator[Path]:
        old = os.umask(0)
        yield Path(tempfile.mkdtemp(dir=bed.nodes[0]))
        os.umask(old)
