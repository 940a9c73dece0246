"""Locks and files of which one process may make one, where hard links are refused or silently made symbolic
links."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.filesystems.bed import Bed

from penstock.core.errors import LockedError
from penstock.dataset.dataset_lock import DatasetLock, try_out
from penstock.fs.small_files import create_file

if TYPE_CHECKING:
    from pathlib import Path


def lock(path: Path) -> DatasetLock:
    return DatasetLock(
        path, "data", run="r", command="run", holder_ended=lambda *_: None, patience=0.3, heartbeat=0.05
    )


@pytest.mark.parametrize("links", ["none", "folder", "symlink"])
def test_one_process_takes_a_name(links: str) -> None:
    with Bed(nodes=2, links=links) as bed:
        here, there = (node / "claim" for node in bed.nodes)
        assert create_file(here, b"mine\n")
        assert not create_file(there, b"theirs\n")
        assert there.read_bytes() == b"mine\n"
        assert not there.is_symlink()
        try_out(bed.nodes[0], "data")
        with lock(bed.nodes[0] / "lock") as held:
            held.assert_held()
            with pytest.raises(LockedError), lock(bed.nodes[1] / "lock"):
                pass
            held.assert_held()
        with lock(bed.nodes[1] / "lock") as held:
            held.assert_held()
        assert sorted(os.listdir(bed.store)) == ["claim"]


def test_a_lock_whose_maker_was_killed_while_it_was_a_link_is_taken_over() -> None:
    with Bed(links="symlink") as bed:
        (bed.nodes[0] / ".lock.0123").write_text("half")
        os.link(bed.nodes[0] / ".lock.0123", bed.nodes[0] / "lock")
        assert (bed.nodes[0] / "lock").is_symlink()
        with lock(bed.nodes[0] / "lock") as held:
            held.assert_held()
