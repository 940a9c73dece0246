"""S17: who writes ends before `target.keep_free` is reached, and no earlier than it must."""

from __future__ import annotations

import struct
import types
from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import NoSpaceError
from penstock.fs import libc
from penstock.target import room_watch
from penstock.target.room_watch import EVERY, SHORTEST, RoomWatch

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30
KEEP = 10 * GIB


class Disk:
    """What statvfs says, and a clock; `after(seconds, taken)` lets both go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, free: float) -> None:
        self.free, self.now, self.looks = int(free), 0.0, 0
        monkeypatch.setattr(room_watch.os, "statvfs", self._statvfs)

    def _statvfs(self, _: Path) -> types.SimpleNamespace:
        self.looks += 1
        return types.SimpleNamespace(f_bavail=self.free, f_frsize=1)

    def after(self, seconds: float, taken: float = 0) -> None:
        self.now += seconds
        self.free -= int(taken)

    def clock(self) -> float:
        return self.now


def test_s17_one_that_begins_without_room_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, KEEP)
    with pytest.raises(NoSpaceError, match=r"keep_free is 10\.0 GiB"):
        RoomWatch(tmp_path, KEEP, None, reserves=False, clock=disk.clock)(0, 1)
    # Nothing is left to be written.
    RoomWatch(tmp_path, KEEP, None, reserves=False, clock=disk.clock)(0, 0)


@pytest.mark.parametrize("others", [0, 1, 9])
def test_s17_what_does_not_fit_ends_before_the_rest_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """Whoever takes it; at 1 GiB a second of each, looked at ten times a second."""
    disk = Disk(monkeypatch, KEEP + 100 * GIB)
    watch = RoomWatch(tmp_path, KEEP, None, reserves=False, clock=disk.clock)

    def copy() -> None:
        for moved in range(0, 1000 * GIB, GIB // 10):
            watch(moved, 1000 * GIB - moved)
            disk.after(0.1, (1 + others) * GIB / 10)

    with pytest.raises(NoSpaceError):
        copy()
    assert KEEP < disk.free <= KEEP + (1 + others) * GIB * (room_watch.ENDS + 5 * SHORTEST)


def test_s17_what_is_written_back_late_is_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's cache takes 80 GiB, and its server all of that in half a second."""
    disk = Disk(monkeypatch, KEEP + 92 * GIB)
    watch = RoomWatch(tmp_path, KEEP, None, reserves=False, clock=disk.clock)
    for moved in range(0, 80 * GIB, GIB // 10):
        watch(moved, 90 * GIB - moved)
        disk.after(0.1)
    for moved in range(80 * GIB, 90 * GIB, GIB // 10):
        watch(moved, 90 * GIB - moved)
        disk.after(0.1, min(12 * GIB, disk.free - (KEEP + 92 * GIB - moved)))
    watch(90 * GIB, 0)


@pytest.mark.parametrize("planned", [43 << 20, 10 * GIB])
def test_s17_what_this_process_has_written_and_not_counted_yet_is_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planned: int
) -> None:
    """All streams write at once, and count half a second later, when their blocks are in the journal."""
    uncounted = min(planned, room_watch.UNCOUNTED)
    disk = Disk(monkeypatch, KEEP + 2 * planned)
    watch = RoomWatch(tmp_path, KEEP, None, reserves=False, clock=disk.clock)
    watch(0, planned)
    disk.after(0.1, uncounted)
    watch(0, planned)
    disk.after(0.5)
    watch(uncounted, planned - uncounted)


def test_s17_what_fits_alone_ends_as_planned_with_nothing_to_spare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, KEEP + 100 * GIB)
    watch = RoomWatch(tmp_path, KEEP, None, reserves=False, clock=disk.clock)
    for moved in range(0, 100 * GIB, GIB // 10):
        watch(moved, 100 * GIB - moved)
        disk.after(0.1, GIB // 10)
    disk.free = KEEP
    watch(100 * GIB, 0)


def test_s17_blocks_that_are_reserved_at_once_are_no_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, KEEP + 3 * GIB)
    watch = RoomWatch(tmp_path, KEEP, None, reserves=True, clock=disk.clock)
    watch(0, 2 * GIB)
    disk.after(0.1, 2 * GIB)
    for tenth in range(21):
        watch(tenth * GIB // 10, 2 * GIB - tenth * GIB // 10)
        disk.after(0.1)


def test_s17_the_holes_of_a_sparse_file_take_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of 100 GiB with a few blocks, where 10 GiB are free: a local file system counts at once."""
    disk = Disk(monkeypatch, KEEP + 10 * GIB)
    watch = RoomWatch(tmp_path, KEEP, None, reserves=False, local=True, clock=disk.clock)
    for moved in range(0, 100 * GIB, 10 * GIB):
        watch(moved, 100 * GIB - moved)
        disk.after(0.1, 4096)


def test_s17_one_that_is_called_late_ends_so_much_the_sooner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine is loaded: every two seconds, at 1 GiB a second."""
    disk = Disk(monkeypatch, KEEP + 100 * GIB)
    watch = RoomWatch(tmp_path, KEEP, None, reserves=False, clock=disk.clock)

    def copy() -> None:
        for moved in range(0, 1000 * GIB, 2 * GIB):
            watch(moved, 1000 * GIB - moved)
            disk.after(2, 2 * GIB)

    with pytest.raises(NoSpaceError):
        copy()
    assert disk.free - 2 * GIB >= KEEP


def test_s17_it_looks_once_a_minute_where_much_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, 1 << 50)
    watch = RoomWatch(tmp_path, KEEP, None, reserves=False, clock=disk.clock)
    for _ in range(10 * 601):
        watch(0, GIB)
        disk.after(0.1)
    assert disk.looks == pytest.approx(600 / EVERY, abs=1)


def test_s17_what_the_file_system_does_not_say_stops_nobody(tmp_path: Path) -> None:
    RoomWatch(tmp_path / "gone", KEEP, None, reserves=False)(0, GIB)


def test_s17_a_quota_that_is_used_up_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel counts it, of the files' group; looked at once a minute."""
    used = 0

    def answer(_fd: int, _device: str, command: int, _number: int) -> bytes:
        if command >> 8 == 0x5805:  # Q_XGETQSTAT: limits of groups are in force
            return struct.pack("=2H", 0, 0x08) + bytes(100)
        return struct.pack("=8Q", 10, 0, used, 0, 0, 0, 0, 0) + bytes(100)

    monkeypatch.setattr(libc, "quotactl", answer)
    disk = Disk(monkeypatch, 1 << 50)
    watch = RoomWatch(tmp_path, KEEP, 9, reserves=False, clock=disk.clock)
    watch(0, GIB)
    used = 10 << 10
    disk.after(EVERY / 2)
    watch(0, GIB)
    disk.after(EVERY / 2)
    with pytest.raises(NoSpaceError, match="quota of group 9"):
        watch(0, GIB)
