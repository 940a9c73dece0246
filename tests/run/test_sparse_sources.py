"""Files with holes, onto a target with less room than their sizes (f2): what they take counts."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.images import file_system
from tests.support.staging_runs import context_for
from tests.support.whole_way import go

from penstock.config.settings import PlanConfig
from penstock.core.errors import NoSpaceError
from penstock.fs.placement import SizeClasses
from penstock.jobs.forecast import Totals
from penstock.sources.posix_reader import PosixReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.dataset.context import Context

MIB, GIB = 1 << 20, 1 << 30
DATA = b"penstock" * 1024


@pytest.fixture(params=["ext4", "xfs", "btrfs", "tmpfs"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with file_system(tmp_path, request.param) as point:
        (point / "root").mkdir(mode=0o755)
        yield point / "root"


def holed(path: Path, size: int, *at: int) -> None:
    """A file of holes, but for 8 KiB at these places."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
        for place in at:
            file.seek(place)
            file.write(DATA)
        file.flush()
        os.fsync(file.fileno())


def staged(target: Path, tmp_path: Path) -> Context:
    context = context_for(tmp_path, tmp_path / "source")
    context.config = replace(context.config, target=replace(context.config.target, root=target, keep_free=0))
    return context


def test_a_sparse_file_that_is_larger_than_the_target_is_staged(target: Path, tmp_path: Path) -> None:
    """f2."""
    holed(tmp_path / "source" / "disk.img", GIB, 4096, GIB // 2, GIB - len(DATA))
    context = staged(target, tmp_path)
    go(context)
    copied = context.layout("data").current / "data" / "disk.img"
    assert copied.stat().st_size == GIB
    assert copied.stat().st_blocks * 512 < MIB
    with copied.open("rb") as file:
        for place in (4096, GIB // 2, GIB - len(DATA)):
            assert os.pread(file.fileno(), len(DATA), place) == DATA


@pytest.mark.parametrize("target", ["xfs", "btrfs", "tmpfs"], indirect=True)
def test_a_sparse_giant_counts_by_its_blocks_too(target: Path, tmp_path: Path) -> None:
    """f2: 300 GiB that hold 8 KiB; planned alone, since even zeros take time."""
    holed(target.parent / "source" / "disk.img", 300 * GIB, 150 * GIB)
    context = context_for(tmp_path, target.parent / "source")
    context.config = replace(context.config, target=replace(context.config.target, root=target, keep_free=0))
    context.config = replace(context.config, plan=PlanConfig(giant_bytes=64 * GIB))
    go(context, upto="plan")


def test_a_full_file_of_the_same_size_is_refused(target: Path, tmp_path: Path) -> None:
    path = tmp_path / "source" / "disk.img"
    holed(path, GIB)
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, GIB)
    with pytest.raises(NoSpaceError, match=r"needs 1\.00 GiB"):
        go(staged(target, tmp_path), upto="plan")


def test_small_files_count_whole(target: Path, tmp_path: Path) -> None:
    """No file below 256 MiB is opened by plan."""
    for number in range(3):
        holed(tmp_path / "source" / str(number), 200 * MIB)
    with pytest.raises(NoSpaceError, match=r"needs 600 MiB"):
        go(staged(target, tmp_path), upto="plan")


def test_the_data_of_a_file_is_counted_without_its_holes(tmp_path: Path) -> None:
    holed(tmp_path / "a", 64 * MIB, 0, 8 * MIB)
    (tmp_path / "b").write_bytes(b"x" * MIB)
    reader = PosixReader(str(tmp_path))
    assert 2 * len(DATA) <= reader.data_bytes("a", 64 * MIB) < MIB
    assert reader.data_bytes("a", 65 * MIB) == 65 * MIB
    assert reader.data_bytes("b", MIB) == MIB


def test_quotas_and_stores_are_asked_for_what_a_sparse_file_takes() -> None:
    """f2: the sums that room, quotas and vendors' stores are asked for."""
    totals = Totals(to_place=SizeClasses())
    totals.add([300 * GIB, 10, 300 * GIB], sparse=[(300 * GIB, 8192)])
    assert totals.bytes == 600 * GIB + 10
    assert totals.blocks == 300 * GIB + 8192 + 4096
    assert totals.to_place is not None
    assert sum(count * size for count, size in totals.to_place) == 300 * GIB + 8192 + 10
    totals.add_giant(100 * GIB, sparse=True)
    assert totals.blocks == 300 * GIB + 8192 + 4096
    assert totals.taken_bytes == 100 * GIB
