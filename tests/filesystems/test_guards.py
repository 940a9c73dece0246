"""What penstock does under the gravest tempers, and the same with its guard off: a test that passes either
way would test nothing. (Power cuts, with two guards off, are in test_power.py.)"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest
import xxhash
from tests.contracts.storage_contract import make_writer, put
from tests.filesystems.bed import Bed

from penstock.config.settings import EngineConfig
from penstock.core.errors import LockedError, NoSpaceError, PenstockError, TransientError
from penstock.core.model import Expected, of_hex
from penstock.dataset import dataset_lock, holder
from penstock.dataset.dataset_lock import DatasetLock
from penstock.engine import shard_readings, shard_run
from penstock.engine.shard_readings import AuditTask
from penstock.fs import small_files
from penstock.host import waits
from penstock.tables.run_tables import EXPECTED, ShardWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SIZE = 50_000


# A quota that only fsync tells ------------------------------------------------------------------


def over_quota(durability: str) -> int:
    """Bytes that lie under the final name of a file that the quota does not take, where nobody noticed."""
    with Bed(named="weka-writecache", quota_bytes=SIZE - 1) as bed:
        with make_writer(bed.nodes[0], durability=durability) as writer:
            put(writer, "f", bytes(SIZE))
        return (bed.store / "f").stat().st_size


def test_a_quota_that_fsync_alone_tells_is_noticed() -> None:
    with pytest.raises(NoSpaceError, match="quota"):
        over_quota("fsync")


def test_without_that_fsync_an_empty_file_has_the_name() -> None:
    assert over_quota("syncfs") == 0


def test_a_late_error_leaves_no_name_and_the_file_is_written_anew() -> None:
    with Bed(named="weka-writecache") as bed, make_writer(bed.nodes[0], durability="fsync") as writer:
        put(writer, "d/before", b"x")
        bed.order("fail", bytes=0, errno="EIO")
        with pytest.raises(PenstockError, match="cannot complete"):
            put(writer, "d/f", bytes(SIZE))
        bed.order("fail", bytes=1 << 40, errno="EIO")
        assert os.listdir(bed.store / "d") == ["before"]
        put(writer, "d/f", bytes(SIZE))
        assert (bed.store / "d/f").stat().st_size == SIZE


# Links that become symbolic ones ----------------------------------------------------------------


def lock(path: Path, pause: Callable[[float], None] = waits.pause, *, heartbeat: float = 0.1) -> DatasetLock:
    return DatasetLock(
        path, "data", run="r", command="run", holder_ended=lambda *_: None, patience=0.6, heartbeat=heartbeat,
        pause=pause,
    )  # fmt: skip


class WaitsError(Exception):
    """A process waits for the lock that it has just made."""


def wait(seconds: float) -> None:
    raise WaitsError


def test_a_link_alone_holds_no_lock_and_no_claim_where_links_become_symbolic_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without `small_files.give_name`; test_names.py has it with it."""
    for module in (small_files, dataset_lock):
        monkeypatch.setattr(module, "give_name", lambda old, new: os.link(old, new, follow_symlinks=False))
    with Bed(links="symlink") as bed:
        assert small_files.create_file(bed.nodes[0] / "claim", b"mine")
        assert not (bed.nodes[0] / "claim").exists()
        with pytest.raises(WaitsError):
            lock(bed.nodes[0] / "lock", wait).__enter__()


# Servers that are away for longer than a lock's patience -----------------------------------------


@contextlib.contextmanager
def held_on_another_node(path: Path, beats: threading.Event) -> Iterator[None]:
    """A lock of a process on a node of which this one knows nothing. It lives, and beats since `beats`."""
    me = holder.this_process("r", "run")
    path.write_bytes(dataclasses.replace(me, host="node17", boot="another boot").to_json())
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(0.1):
            if beats.is_set():
                with contextlib.suppress(FileNotFoundError):  # it lost its lock
                    os.utime(path)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def over_an_outage(bed: Bed, begins: threading.Event) -> Iterator[Callable[[float], None]]:
    """A pause between two looks, in whose first call the servers go away, for longer than a lock's patience.
    `begins` is set then. The node that looks reaches them first again, and has looked once before the other
    node does: each client tries again at moments of its own. At the end all nodes reach them."""
    timer = threading.Timer(1.5, bed.order, ["back"], {"nodes": [1]})
    away: list[int] = []

    def pause(seconds: float) -> None:
        if not begins.is_set():
            bed.order("away")
            away.append(0)
            begins.set()
            timer.start()
        elif away:
            bed.order("back", nodes=[away.pop()])
        waits.pause(seconds)

    try:
        yield pause
    finally:
        if begins.is_set():
            timer.join()
        if away:
            bed.order("back", nodes=away)


def test_a_living_holder_keeps_its_lock_over_an_outage() -> None:
    away = threading.Event()
    with (
        Bed(nodes=2) as bed,
        held_on_another_node(bed.nodes[0] / "lock", away),
        over_an_outage(bed, away) as pause,
    ):
        with pytest.raises(LockedError, match="node17"):
            lock(bed.nodes[1] / "lock", pause).__enter__()
        assert b"node17" in (bed.store / "lock").read_bytes()


def test_by_a_deadline_alone_it_would_lose_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def watch(self: DatasetLock, first: object, patience: float) -> None:
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            self._pause(0.05)
            if self._look() != first:
                raise LockedError("it beats", why="")

    monkeypatch.setattr(DatasetLock, "_watch", watch)
    away = threading.Event()
    with (
        Bed(nodes=2) as bed,
        held_on_another_node(bed.nodes[0] / "lock", away),
        over_an_outage(bed, away) as pause,
        # A look that takes as long as a heartbeat is not believed: here none does.
        lock(bed.nodes[1] / "lock", pause, heartbeat=60.0),
    ):
        assert b"node17" not in (bed.store / "lock").read_bytes()


def replaced_between_open_and_read(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another node takes the lock over when this one has opened it, and has not read it."""
    other, stat = bed.nodes[1] / "lock", os.fstat
    # Another time than the one under which this node keeps the file's bytes: it will ask the server.
    os.utime(other, (1, 1))

    def replaced(fd: int) -> os.stat_result:
        monkeypatch.undo()
        new = other.with_suffix(".new")
        new.write_bytes(dataclasses.replace(holder.this_process("r", "run"), host="node17").to_json())
        new.rename(other)
        return stat(fd)

    monkeypatch.setattr(os, "fstat", replaced)


def test_a_lock_that_is_replaced_while_it_is_read_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    with Bed(named="nfs3", nodes=2) as bed, lock(bed.nodes[0] / "lock") as held:
        replaced_between_open_and_read(bed, monkeypatch)
        with pytest.raises(LockedError, match="node17"):
            held.assert_held()


def test_read_once_it_would_be_a_failure_of_the_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    with Bed(named="nfs3", nodes=2) as bed, lock(bed.nodes[0] / "lock") as held:
        replaced_between_open_and_read(bed, monkeypatch)
        looks = small_files.STALE_LOOKS
        small_files.STALE_LOOKS = 1
        try:
            with pytest.raises(TransientError, match="Stale file handle"):
                held.assert_held()
        finally:
            small_files.STALE_LOOKS = looks


# A stub that restores itself when it is opened ---------------------------------------------------


def audited(folder: Path) -> tuple[list[str], dict[tuple[str, str], bytearray]]:
    """What an audit's element asked of a stub and of the file beside it, and what it left unopened."""
    with Bed(named="beegfs8") as bed:
        rows = []
        for name in ("beside", "stub"):
            (bed.nodes[0] / name).write_bytes(name.encode() * SIZE)
            digest = of_hex(xxhash.xxh3_128_hexdigest(name.encode() * SIZE))
            rows.append(Expected(name, len(name) * SIZE, digest=digest))
        writer = ShardWriter(folder / "shard", 0, EXPECTED)
        writer.add(rows)
        shard = writer.close()
        bed.order("stub", path="stub")
        task = AuditTask(
            shard, folder / "shard", bed.nodes[0], folder / "seen", EngineConfig(workers=1), named="beegfs"
        )
        _, seen = shard_readings.audit_shard(task, lambda *_: None, lambda: None)
        assert seen.left == 0
        assert not seen.bad
        return [one.path for one in bed.operations() if one.name == "restore"], seen.away


def test_s16_an_audit_restores_no_stub(tmp_path: Path) -> None:
    assert audited(tmp_path) == ([], {("offline", "it has a size and no blocks"): bytearray(b"\0\1")})


def test_an_audit_that_asks_nothing_restores_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_run, "data_states", lambda *_: None)
    assert audited(tmp_path) == (["stub"], {})
