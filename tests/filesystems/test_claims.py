"""The contract of claims on every named set (`sets.SETS`), where links are symbolic ones, and where there are
none: two nodes, each with caches of its own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.contracts.claims_contract import ClaimsContract, ClaimsPlace
from tests.filesystems.bed import Bed
from tests.filesystems.sets import SETS

if TYPE_CHECKING:
    from collections.abc import Iterator

LINKS = {"links-are-symlinks": "symlink", "no-links": "none"}


@pytest.fixture(scope="module", params=[*SETS, *LINKS])
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    # A heartbeat of tests is shorter than a second, the grain of times of some sets.
    more = {"links": LINKS[request.param]} if request.param in LINKS else {}
    with Bed(named="beegfs8" if more else request.param, nodes=2, time_grain=1, **more) as made:
        yield made


class TestNamedSets(ClaimsContract):
    @pytest.fixture
    def claims_place(self, bed: Bed) -> ClaimsPlace:
        name = Path(tempfile.mkdtemp(dir=bed.store)).name
        return ClaimsPlace([node / name for node in bed.nodes], bed.store / name)

    @pytest.fixture
    def every(self) -> int:
        return 3
