"""The contract of claims over the disk and the RAM file system of this machine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.contracts.claims_contract import ClaimsContract, ClaimsPlace

if TYPE_CHECKING:
    from collections.abc import Iterator


class TestHere(ClaimsContract):
    @pytest.fixture(params=["disk", "/dev/shm"])
    def claims_place(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClaimsPlace]:
        base = tmp_path if request.param == "disk" else Path(request.param)
        with tempfile.TemporaryDirectory(prefix="penstock-claims-", dir=base) as name:
            folder = Path(name)
            yield ClaimsPlace([folder], folder)
