"""Listings that come in another order are put in order on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.core.model import Listed
from penstock.sources import listing_order
from penstock.sources.listing_order import in_order, order

if TYPE_CHECKING:
    from pathlib import Path


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.lists(st.text("ab\udcffé", max_size=4), max_size=120),
    batch=st.integers(1, 7),
    run=st.integers(1, 9),
    fan=st.integers(2, 4),
    page=st.integers(1, 5),
)
def test_all_objects_come_in_the_order_of_their_bytes_each_as_often_as_it_was_given(
    tmp_path: Path, keys: list[str], batch: int, run: int, fan: int, page: int
) -> None:
    listed = [Listed(key, number, "", 0) for number, key in enumerate(keys)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing_order, "FAN", fan)
        patch.setattr(listing_order, "BATCH", page)
        batches = (listed[at : at + batch] for at in range(0, len(listed), batch))
        found = [one for some in in_order(batches, run, tmp_path) for one in some]
    assert sorted(found) == sorted(listed)
    assert [order(one) for one in found] == sorted(map(order, listed))
    assert list(tmp_path.iterdir()) == []


def test_few_runs_are_open_at_once(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing_order, "FAN", 4)
        batches = ([Listed(f"k{number % 97:03d}-{number}", 1, "", 0)] for number in range(300))
        merged = in_order(batches, 1, tmp_path)
        first = next(merged)
        (folder,) = tmp_path.iterdir()
        # 300 runs are 1 x 256, 2 x 16, 3 x 4 and none left.
        assert len(list(folder.iterdir())) == 1 + 0 + 2 + 3 + 0
        assert len(first) + sum(map(len, merged)) == 300
