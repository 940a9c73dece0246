"""The power is cut at moments of a run, where all that no fsync covered is gone.

The runs and the oracle are those of tests/faults/test_power_cut.py, whose disks keep some of what was never
synced: these keep nothing. On FUSE syncfs reaches no server, so only `durability: fsync` is tried. The
controls are the product with a guard off, which the oracle must find out.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.test_power_cut import MOMENTS, Staging, judge
from tests.filesystems.bed import Bed
from tests.filesystems.sets import SETS
from tests.support import injected

if TYPE_CHECKING:
    from pathlib import Path

CUTS: dict[str, dict[str, Any]] = {
    **{name: {"named": name} for name in SETS},
    "names by fsync alone": {"names_by_fsync": True},
}
FIRST = {step: number for number, (step, _) in reversed([*enumerate(MOMENTS)])}
"""The first moment in each step."""
NO_FOLDER_FSYNC = """
import os, stat
fsync = os.fsync
os.fsync = lambda fd: None if stat.S_ISDIR(os.fstat(fd).st_mode) else fsync(fd)
"""


class BedDisk:
    """A bed in the place of a disk."""

    def __init__(self, bed: Bed) -> None:
        self.bed, self.point = bed, bed.nodes[0]

    def cut(self) -> None:
        self.bed.order("cut")

    def again(self) -> None:
        self.bed.again()


def staging_on(bed: Bed, folder: Path) -> Staging:
    return Staging(folder, BedDisk(bed))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["beegfs8", "names by fsync alone"])
def test_no_cut_leaves_anything_partial(tmp_path: Path, kind: str) -> None:
    cut_in(tmp_path, kind, "copy", "publish")


@pytest.mark.every_set
@pytest.mark.parametrize("kind", CUTS)
def test_no_cut_in_any_step_does(tmp_path: Path, kind: str) -> None:
    cut_in(tmp_path, kind, "copy", "permissions", "verify", "publish")


def cut_in(tmp_path: Path, kind: str, *steps: str) -> None:
    with Bed(power=True, **CUTS[kind]) as bed:
        staging = staging_on(bed, tmp_path)
        for number in map(FIRST.__getitem__, steps):
            staging.change(number)
            published = staging.run_until(*MOMENTS[number])
            bed.again()
            judge(staging, published=published)
            staging.rerun()
            judge(staging, published=True)


def test_the_oracle_sees_data_that_was_never_synced(tmp_path: Path) -> None:
    """With `durability: syncfs`, which does not reach the servers here."""
    with Bed(named="beegfs8", power=True) as bed:
        staging = staging_on(bed, tmp_path)
        staging.durability = "syncfs"
        staging.change(0)
        assert staging.run_until("end", 0)
        bed.again()
        with pytest.raises(AssertionError):
            judge(staging, published=True)


def test_the_oracle_sees_names_that_were_never_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bed(names_by_fsync=True, power=True) as bed:
        staging = staging_on(bed, tmp_path)
        python = injected.python(tmp_path / "python", NO_FOLDER_FSYNC)
        monkeypatch.setattr(sys, "executable", python)
        staging.change(0)
        assert staging.run_until("end", 0)
        bed.again()
        with pytest.raises((AssertionError, OSError)):
            judge(staging, published=True)
