"""One holder at a time: racers, dead holders, foreign hosts, by the table in dataset.dataset_lock."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
from typing import TYPE_CHECKING

import pytest
from tests.support.forked import killed_at_line, lines_after_changes

from penstock.cluster.slurm import environment
from penstock.core.errors import FailedError, LockedError
from penstock.dataset import holder as holders
from penstock.dataset.dataset_lock import DatasetLock
from penstock.host import kernel_facts, waits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.core.layout import DatasetLayout

ME = holders.this_process("run", "copy")
DEAD = dataclasses.replace(ME, pid=2**22 + 1, start="1")
REUSED = dataclasses.replace(ME, pid=1, start="not the start time of process 1")
AWAY = dataclasses.replace(ME, host="node17", boot="another boot", job="4711", cluster="alpha")
REBOOTED = dataclasses.replace(ME, boot="another boot")
CONTAINED = dataclasses.replace(ME, namespace="pid:[1]")


def unknown(job: str, cluster: str) -> bool | None:
    return None


def lock(
    layout: DatasetLayout, ended: Callable[[str, str], bool | None] = unknown, **over: object
) -> DatasetLock:
    options = {"run": "0123", "command": "publish", "patience": 0.4, "heartbeat": 0.1}
    return DatasetLock(layout.lock, layout.dataset, holder_ended=ended, **{**options, **over})  # type: ignore[arg-type]


def plant(layout: DatasetLayout, holder: holders.Holder) -> None:
    layout.lock.write_bytes(holder.to_json())


def clean(layout: DatasetLayout) -> bool:
    return not [n for n in os.listdir(layout.state) if "lock" in n or "dead" in n]


def test_held_and_given_back(layout: DatasetLayout) -> None:
    for _ in range(3):
        with lock(layout) as held:
            held.assert_held()
            with pytest.raises(LockedError) as caught, lock(layout):
                pass
            assert caught.value.exit_code == 7
            for part in (
                "penstock step publish",
                socket.gethostname(),
                str(os.getpid()),
                "run 0123",
                "since",
            ):
                assert part in str(caught.value)
        assert clean(layout)
    with pytest.raises(LockedError, match="was lost"):
        held.assert_held()


def test_given_back_on_an_error(layout: DatasetLayout) -> None:
    with pytest.raises(KeyError), lock(layout):
        raise KeyError
    assert clean(layout)


@pytest.mark.parametrize(
    ("holder", "ended", "taken"),
    [
        (ME, None, False),
        (ME, True, False),
        (DEAD, None, True),
        (DEAD, False, True),
        (REUSED, None, True),
        (AWAY, True, True),
        (AWAY, False, False),
        (AWAY, None, True),  # its heartbeat stands still here
        (REBOOTED, None, True),
        (CONTAINED, None, True),
    ],
)
def test_who_is_taken_over(
    layout: DatasetLayout, holder: holders.Holder, ended: bool | None, taken: bool
) -> None:
    plant(layout, holder)
    asked: list[str] = []

    def answer(job: str, cluster: str) -> bool | None:
        asked.append(f"{job} of {cluster}")
        return ended

    if taken:
        with lock(layout, answer) as held:
            held.assert_held()
    else:
        with pytest.raises(LockedError), lock(layout, answer):
            pass
        assert holders.parse(layout.lock.read_bytes()) == holder
    assert set(asked) <= {"4711 of alpha"}


def test_nobody_waits_where_the_case_is_clear(layout: DatasetLayout) -> None:
    def never(seconds: float) -> None:
        raise AssertionError("waited")

    for holder in (DEAD, REUSED):
        plant(layout, holder)
        with lock(layout, lambda *_: True, pause=never):
            pass


def test_the_scheduler_shortens_the_wait_and_never_replaces_the_heartbeat(layout: DatasetLayout) -> None:
    told: list[str] = []
    waited: list[float] = []
    plant(layout, AWAY)
    with lock(
        layout, lambda *_: True, patience=120.0, heartbeat=0.05, pause=waiting(waited), tell=told.append
    ):
        pass
    assert 0 < sum(waited) < 0.3, "three heartbeats, not the patience"
    assert [text.split(":")[0] for text in told] == [
        f"{word} {AWAY.describe().split(':')[0]}" for word in ("waiting for", "took over the lock of")
    ]
    plant(layout, AWAY)
    with pytest.raises(LockedError, match="node17"):
        lock(layout, lambda *_: True, pause=lambda _: os.utime(layout.lock)).__enter__()
    assert holders.parse(layout.lock.read_bytes()) == AWAY


def waiting(seconds: list[float]) -> Callable[[float], None]:
    """Waits, and notes how long."""

    def pause(some: float) -> None:
        seconds.append(some)
        waits.pause(some)

    return pause


def test_what_killed_takers_left_is_removed_when_it_is_old(layout: DatasetLayout) -> None:
    for name in ("dead", "lock"):
        (layout.state / f".{name}.{'0' * 32}").write_bytes(DEAD.to_json())
    with lock(layout, patience=60.0):
        assert not clean_but_for_the_lock(layout)
    left = {name: os.stat(layout.state / name).st_ctime for name in os.listdir(layout.state)}
    while not all(os.stat(layout.state).st_ctime - at > 0.4 for at in left.values()):
        waits.pause(0.05)
        os.utime(layout.state)
    with lock(layout):
        assert clean_but_for_the_lock(layout)
    assert clean(layout)


def clean_but_for_the_lock(layout: DatasetLayout) -> bool:
    return [n for n in os.listdir(layout.state) if "lock" in n or "dead" in n] == ["lock"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": 1}'])
def test_a_lock_that_says_nothing_is_watched(layout: DatasetLayout, content: bytes) -> None:
    layout.lock.write_bytes(content)
    with lock(layout):
        pass
    layout.lock.write_bytes(content)
    with pytest.raises(LockedError), lock(layout, pause=lambda _: os.utime(layout.lock)):
        pass


def test_a_heart_that_beats_elsewhere(layout: DatasetLayout) -> None:
    plant(layout, AWAY)
    with pytest.raises(LockedError, match="node17"), lock(layout, pause=lambda _: os.utime(layout.lock)):
        pass


def test_the_heart_beats(layout: DatasetLayout) -> None:
    with lock(layout, heartbeat=0.01):
        os.utime(layout.lock, ns=(1, 1))
        for _ in range(6000):
            if layout.lock.stat().st_mtime_ns != 1:
                break
            waits.pause(0.01)
        assert layout.lock.stat().st_mtime_ns != 1


def test_a_requeued_job_takes_over_its_own_lock(layout: DatasetLayout, tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("0::/slurm/uid_0/job_4711/step_batch\n")
    said = {"SLURM_JOB_ID": "4711", "SLURM_RESTART_COUNT": "1"}
    for cluster, taken in (("alpha", True), ("beta", False)):
        plant(layout, dataclasses.replace(AWAY, restart="0"))
        kernel_facts.enter_job(environment.read({**said, "SLURM_CLUSTER_NAME": cluster}, tmp_path))
        if taken:
            with lock(layout, lambda *_: False) as held:
                held.assert_held()
        else:
            with pytest.raises(LockedError, match="4711 of cluster alpha"), lock(layout, lambda *_: False):
                pass


def test_a_lost_lock_is_noticed_and_left_alone(layout: DatasetLayout) -> None:
    with lock(layout) as held:
        layout.lock.unlink()
        plant(layout, AWAY)
        with pytest.raises(LockedError, match="was lost") as caught:
            held.assert_held()
        assert "node17" in str(caught.value)
    assert holders.parse(layout.lock.read_bytes()) == AWAY


def test_twenty_racers_and_one_winner(layout: DatasetLayout) -> None:
    for first in (None, DEAD):
        if first:
            plant(layout, first)
        go_read, go = os.pipe()
        said, say = os.pipe()
        end_read, end = os.pipe()
        pids = []
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                os.close(end)
                os.close(go)
                os.read(go_read, 1)
                try:
                    with lock(layout) as held:
                        held.assert_held()
                        os.write(say, b"w")
                        os.read(end_read, 1)
                        held.assert_held()
                    os._exit(0)
                except LockedError:
                    os.write(say, b"l")
                    os._exit(7)
                finally:
                    os._exit(1)
            pids.append(pid)
        os.close(go)
        answers = b""
        while len(answers) < 20:
            answers += os.read(said, 20)
        assert answers.count(b"w") == 1
        os.close(end)
        codes = sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)
        assert codes == [0] + [7] * 19
        assert clean(layout)
        for fd in (go_read, said, say, end_read):
            os.close(fd)


@pytest.mark.parametrize("reaped", [True, False])
def test_a_killed_holder_is_taken_over_at_once(layout: DatasetLayout, reaped: bool) -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        with lock(layout):
            os.write(write, b"!")
            signal.pause()
        os._exit(0)
    os.read(read, 1)
    with pytest.raises(LockedError), lock(layout):
        pass
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if reaped:
        os.waitpid(pid, 0)
    with lock(layout) as held:
        held.assert_held()
    if not reaped:
        os.waitpid(pid, 0)
    os.close(read)
    os.close(write)


def test_killed_after_each_change_of_the_folder(layout: DatasetLayout) -> None:
    """A sample of the lines of the next test."""

    def state() -> object:
        return sorted((entry.name, entry.stat().st_nlink) for entry in os.scandir(layout.state))

    lines = lines_after_changes(lambda: taken_from_the_dead(layout), LOCKING, state)
    assert len(lines) >= 5
    for line in lines:
        assert killed_at_line(lambda: taken_from_the_dead(layout), LOCKING, line)
        with lock(layout) as held:
            held.assert_held()
        assert not layout.lock.exists()


LOCKING = ("dataset/dataset_lock.py", "dataset/holder.py")


def taken_from_the_dead(layout: DatasetLayout) -> None:
    plant(layout, DEAD)
    with lock(layout) as held:
        held.assert_held()


@pytest.mark.thorough
def test_killed_at_every_line(layout: DatasetLayout) -> None:
    for line in range(1, 1000):
        killed = killed_at_line(lambda: taken_from_the_dead(layout), LOCKING, line)
        with lock(layout) as held:
            held.assert_held()
        assert not layout.lock.exists()
        if not killed:
            break
    assert not killed
    assert line > 60


@pytest.mark.parametrize("made", ["refused", "symlink"])
def test_without_hard_links(layout: DatasetLayout, made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(old: str, new: str, *, follow_symlinks: bool = True) -> None:
        if made == "refused":
            raise PermissionError(1, "Operation not permitted")
        os.symlink(old, new)

    monkeypatch.setattr(os, "link", link)
    with lock(layout) as held:
        held.assert_held()
        with pytest.raises(LockedError), lock(layout):
            pass
    assert clean(layout)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def large(path: Path) -> None:
    path.write_bytes(b" " * 70_000)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, endless, large])
def test_what_no_lock_ever_was_is_damage_and_not_waited_for(
    place: Path, make: Callable[[Path], None]
) -> None:
    make(place / "lock")
    with pytest.raises(FailedError, match=r"cannot take the dataset.s lock(.|\n)*(no plain file|too many)"):
        DatasetLock(place / "lock", "data", run="r", command="plan", holder_ended=lambda *_: None).__enter__()
