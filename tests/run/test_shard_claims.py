"""Claims of shards, by the tables of `jobs.shard_claims`. With processes: `contracts.claims_contract`."""

from __future__ import annotations

import functools
import itertools
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.forked import killed_at_line, lines_after_changes
from tests.support.one_shard import outcome_of, write_receipt

from penstock.core.element_documents import ELEMENT_RECEIPT, ElementOutcome, ElementReceipt, ShardClaim
from penstock.core.errors import FailedError, TransientError
from penstock.core.layout import RunLayout
from penstock.dataset import documents, receipts
from penstock.fs import small_files
from penstock.host import waits
from penstock.jobs import shard_claims
from penstock.jobs.shard_claims import Claim, ClaimLostError, ShardClaims, WatchedClaim

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES = itertools.count()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Place:
    """A run's folder, and workers that divide its shards."""

    def __init__(self, folder: Path) -> None:
        self.run = RunLayout(folder / "run")
        self.clock = Clock()

    def holds(self, index: int) -> bool:
        receipt = receipts.element(self.run, "copy", index)
        return receipt is not None and receipt.run == "r"

    def worker(self, shards: int = 1, place: int = 0, *, call: str = "c", **more: Any) -> ShardClaims:
        options: dict[str, Any] = {"retries": 2, "clock": self.clock, **more}
        name = ShardClaim(call=call, host="here")
        return ShardClaims(
            self.run, "copy", name, range(shards), place, self.holds, lambda: f"a{next(NAMES)}", **options
        )

    def ends(self, claim: Claim, **how: Any) -> None:
        documents.write_outcome(self.run, "copy", claim.index, outcome(claim, **how))

    def proves(self, claim: Claim) -> None:
        claim.prove(receipt(claim), self.holds)

    def still(self, worker: ShardClaims) -> Claim | None:
        """What the worker takes while it looks once in a heartbeat, until what it watches counts as dead."""
        for _ in range(13):
            if claim := worker.next():
                return claim
            self.clock.now += waits.HEARTBEAT
        return None


def outcome(claim: Claim, **how: Any) -> ElementOutcome:
    return ElementOutcome(attempt=claim.content.worker, generation=claim.generation, **how)


def receipt(claim: Claim, run: str = "r") -> ElementReceipt:
    return ElementReceipt(step="copy", index=claim.index, run=run, attempt=claim.content.worker)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def taken(claim: Claim | None) -> Claim:
    assert claim is not None
    return claim


def state(claim: Claim | None) -> tuple[int, int, int]:
    return taken(claim).index, taken(claim).generation, taken(claim).content.charged


# The table of the next generation -------------------------------------------------------------


def test_the_first_claim_is_made_where_there_is_none(place: Place) -> None:
    claim = taken(place.worker().next())
    assert state(claim) == (0, 1, 0)
    assert shard_claims.read(place.run, "copy", 0, 1) == claim.content
    assert (claim.content.call, claim.content.host) == ("c", "here")
    assert place.run.claim("copy", 0, 1).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("how", "then"),
    [
        ({"retry": True}, (0, 2, 1)),
        ({"retry": True, "free": True}, (0, 2, 0)),
        ({"retry": False}, None),
        ({"retry": False, "free": True}, None),
    ],
)
def test_after_an_outcome(place: Place, how: dict[str, Any], then: object) -> None:
    place.ends(taken(place.worker().next()), **how)
    worker = place.worker()
    claim = worker.next()
    assert (state(claim) if claim else None) == then
    assert not worker.waits()
    # Another command tries again what failed before.
    if claim is None:
        assert state(place.worker(call="later").next()) == (0, 2, 0)


def test_a_shard_is_tried_again_so_often_and_free_ends_do_not_count(place: Place) -> None:
    worker = place.worker()
    for generation, free in enumerate((False, True, True, False, False), 1):
        claim = taken(worker.next())
        assert claim.generation == generation
        place.ends(claim, free=free)
    assert worker.next() is None
    assert not worker.waits()
    assert place.worker().next() is None


def test_a_claim_without_outcome_is_at_work_until_it_stood_still(place: Place) -> None:
    claim = taken(place.worker().next())
    worker = place.worker()
    assert worker.next() is None
    assert worker.waits()
    place.clock.now += waits.HEARTBEAT
    os.utime(place.run.claim("copy", 0, 1), ns=(5, 5))
    assert worker.next() is None
    for _ in range(11):
        place.clock.now += waits.HEARTBEAT
        assert worker.next() is None
    claim.beat()
    assert place.run.claim("copy", 0, 1).stat().st_mtime_ns > 5
    assert worker.next() is None, "its patience begins anew"
    began = place.clock.now
    assert state(place.still(worker)) == (0, 2, 1)
    assert place.clock.now - began == waits.PATIENCE
    with pytest.raises(ClaimLostError, match="another worker took shard 0"):
        claim.require()


def test_one_look_after_a_long_time_makes_nobody_dead(place: Place) -> None:
    """The servers were away, or this process or its node was halted: nobody's beats came through."""
    place.worker().next()
    worker = place.worker()
    assert worker.next() is None
    place.clock.now += 100 * waits.PATIENCE
    assert worker.next() is None
    assert worker.waits()
    assert state(place.still(worker)) == (0, 2, 1)


def test_the_times_of_the_servers_may_jump(place: Place) -> None:
    place.worker().next()
    worker = place.worker()
    for moment in (10**18, 5, 2 * 10**18, 0):
        os.utime(place.run.claim("copy", 0, 1), ns=(moment, moment))
        for _ in range(6):
            assert worker.next() is None
            place.clock.now += waits.HEARTBEAT


def test_a_shard_that_kills_its_workers_is_given_up(place: Place) -> None:
    for generation in (1, 2, 3):
        assert state(place.still(place.worker())) == (0, generation, generation - 1)
    worker = place.worker()
    assert place.still(worker) is None
    assert not worker.waits(), "nothing waits for ever"


def test_an_outcome_is_of_the_claim_that_it_names(place: Place) -> None:
    first = taken(place.worker().next())
    second = taken(place.still(place.worker()))
    place.ends(first, retry=False)
    worker = place.worker()
    assert worker.next() is None
    assert worker.waits(), "the second is at work"
    place.ends(second)
    place.ends(first, retry=False)  # it woke later
    assert state(worker.next()) == (0, 3, 2)


def test_two_commands_at_once_do_not_try_for_ever(place: Place) -> None:
    """Each tries what the other one failed at, and so often as it would alone."""
    workers = {call: place.worker(call=call) for call in "xy"}
    tries: Counter[str] = Counter()
    for call in itertools.islice(itertools.cycle("xy"), 20):
        if claim := workers[call].next():
            tries[call] += 1
            place.ends(claim)
    assert tries == {"x": 3, "y": 3}
    assert state(place.worker(call="z").next()) == (0, 7, 0)


def test_two_commands_each_take_a_vain_try_as_their_own(place: Place) -> None:
    place.ends(taken(place.worker(call="x").next()), retry=False)
    place.ends(taken(place.worker(call="y").next()))
    assert place.worker(call="x").next() is None
    assert state(place.worker(call="y").next()) == (0, 3, 1)


def put(path: Path, kind: str) -> None:
    small_files.make_dirs(path.parent)
    match kind:
        case "empty":
            path.write_bytes(b"")
        case "torn":
            path.write_bytes(b'{"worker": "a')
        case "huge":
            path.write_bytes(b"")
            os.truncate(path, 1 << 40)
        case "large":
            path.write_bytes(b'{"worker": "' + b"a" * 100_000 + b'"}')
        case "no claim":
            path.write_text('{"format": 1}')
        case "another type":
            path.write_text('{"format": 1, "worker": 3}')
        case "link to nothing":
            path.symlink_to("nowhere")
        case "link to itself":
            path.symlink_to(path.name)
        case "link to a device":
            path.symlink_to("/dev/zero")
        case "FIFO":
            os.mkfifo(path)
        case "folder":
            path.mkdir()


@pytest.mark.parametrize(
    "kind",
    [
        "empty", "torn", "huge", "large", "no claim", "another type", "link to nothing", "link to itself",
        "link to a device", "FIFO", "folder",
    ],
)  # fmt: skip
def test_what_is_no_claim_stands_still(place: Place, kind: str) -> None:
    put(place.run.claim("copy", 0, 1), kind)
    worker = place.worker()
    assert worker.next() is None
    assert worker.waits()
    assert state(place.still(worker)) == (0, 2, 0)
    # Above a claim of its own, a command takes it as a try of its own.
    put(place.run.claim("copy", 0, 3), kind)
    assert state(place.still(place.worker())) == (0, 4, 2)


def test_claims_above_a_gap_count_for_nothing(place: Place) -> None:
    for name in ("00000.3.json", "00000.999999999.json", "000000.1.json", "00000.0.json", "00000.1.json.x"):
        put(place.run.claims("copy") / name, "empty")
    put(place.run.claims("copy") / f"{'9' * 200}.1.json", "empty")
    assert shard_claims.standing(place.run, "copy") == {}
    assert state(place.worker().next()) == (0, 1, 0)
    assert shard_claims.standing(place.run, "copy") == {0: 1}


def test_a_receipt_that_holds_ends_a_shard_and_one_that_does_not_is_removed(place: Place) -> None:
    worker = place.worker(2)
    claim = taken(worker.next())
    write_receipt(place.run, receipt(claim, run="older"))
    assert place.worker().next() is None
    assert place.holds(0) is False
    assert place.run.receipt("copy", 0).exists(), "its worker lives: it may be torn for a moment"
    place.ends(claim)
    second = taken(place.worker().next())
    assert not place.run.receipt("copy", 0).exists(), "else no listing would call the shard open"
    place.proves(second)
    assert place.worker().next() is None
    assert [taken(worker.next()).index, worker.next()] == [1, None]


# Where a worker dies, or wakes ----------------------------------------------------------------


def test_wherever_a_worker_dies_the_next_one_goes_on(place: Place, tmp_path: Path) -> None:
    """Killed after each line of making a claim, an outcome or a receipt that changes what is on disk."""

    def attempt(at: Place) -> None:
        claim = taken(at.worker().next())
        claim.beat()
        at.ends(claim, free=True)
        at.proves(claim)

    files = ("fs/small_files.py", "jobs/shard_claims.py", "dataset/documents.py", "dataset/receipts.py")
    watched = Place(tmp_path / "watched")

    def on_disk() -> object:
        return sorted((path, os.lstat(path).st_size) for path in watched.run.folder.rglob("*"))

    moments = lines_after_changes(functools.partial(attempt, watched), files, on_disk)
    assert len(moments) > 10
    ends = Counter()
    for line in moments:
        at = Place(tmp_path / str(line))
        killed_at_line(functools.partial(attempt, at), files, line)
        claimed = shard_claims.standing(at.run, "copy")
        ended = outcome_of(at.run, 0)
        if at.holds(0):
            assert at.worker().next() is None
            ends["nobody"] += 1
        elif not claimed:
            assert state(at.worker().next()) == (0, 1, 0)
            ends["the first"] += 1
        elif ended is not None:
            assert state(at.worker().next()) == (0, 2, 0)
            ends["at once"] += 1
        else:
            worker = at.worker()
            assert worker.next() is None
            assert state(at.still(worker)) == (0, 2, 1)
            ends["after PATIENCE"] += 1
    assert set(ends) == {"nobody", "the first", "at once", "after PATIENCE"}


def test_the_controller_ends_a_claim_but_not_over_its_workers_own_outcome(place: Place) -> None:
    claim = taken(place.worker().next())
    assert documents.create_outcome(place.run, "copy", 0, outcome(claim, free=True))
    assert state(place.worker().next()) == (0, 2, 0)
    second = taken(place.worker().take(0) or place.still(place.worker()))
    place.ends(second, retry=False, error="its own")
    assert not documents.create_outcome(place.run, "copy", 0, outcome(second))
    last = outcome_of(place.run, 0)
    assert last is not None
    assert last.error == "its own"


def test_a_worker_that_wakes_writes_over_nobodys_outcome(place: Place) -> None:
    first = taken(place.worker().next())
    second = taken(place.still(place.worker()))
    place.ends(second, error="second")
    place.ends(first, error="first")
    assert [documents.find_outcome(place.run, "copy", 0, n).error for n in (1, 2)] == ["first", "second"]  # type: ignore[union-attr]
    assert outcome_of(place.run, 0).error == "second"
    assert documents.find_outcome(place.run, "copy", 0, 3) is None


def test_a_worker_that_wakes_overtaken_ends_its_shard(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = taken(place.worker().next())
    taken(place.still(place.worker()))
    claim.look()  # it looked less than a second ago
    monkeypatch.setattr(shard_claims, "LOOK", 0.0)
    with pytest.raises(ClaimLostError):
        claim.look()
    with pytest.raises(ClaimLostError):
        place.proves(claim)
    assert not place.run.receipt("copy", 0).exists()


def test_a_look_that_the_servers_do_not_answer_proves_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = taken(place.worker().next())
    monkeypatch.setattr(shard_claims, "LOOK", 0.0)

    def away(path: object) -> object:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", away)
        claim.look()  # amid the rows: the next second looks again
        with pytest.raises(TransientError):
            place.proves(claim)
    assert not place.run.receipt("copy", 0).exists()


# Receipts that hold stay ------------------------------------------------------------------------


def test_a_receipt_that_holds_is_never_replaced(place: Place) -> None:
    claim = taken(place.worker().next())
    place.proves(claim)
    before = place.run.receipt("copy", 0).read_bytes()
    other = Claim(place.run, "copy", 0, 1, claim.content._replace(worker="another"))
    place.proves(other)
    assert place.run.receipt("copy", 0).read_bytes() == before
    # It is judged, and in this moment another worker proves the shard.
    place.run.receipt("copy", 0).write_text("damaged")

    def holds(index: int) -> bool:
        if place.holds(index):
            return True
        place.run.receipt("copy", 0).write_bytes(before)
        return False

    other.prove(receipt(other), holds)
    assert place.run.receipt("copy", 0).read_bytes() == before
    assert sorted(os.listdir(place.run.receipt("copy", 0).parent)) == ["00000.json"]


def test_a_torn_receipt_keeps_no_shard_from_being_tried_again(place: Place) -> None:
    """Left by a worker that was killed on a file system without hard links."""
    held = [taken(worker.next()) for worker in [place.worker(3)] * 3]
    for claim in held:
        put(place.run.receipt("copy", claim.index), "torn")
    worker = place.worker(3)
    assert [state(place.still(worker)) for _ in range(3)] == [(0, 2, 1), (1, 2, 1), (2, 2, 1)]


@pytest.mark.parametrize("kind", ["empty", "torn", "huge", "link to nothing", "link to itself", "FIFO"])
def test_a_receipt_that_does_not_hold_is_replaced(place: Place, kind: str) -> None:
    claim = taken(place.worker().next())
    put(place.run.receipt("copy", 0), kind)
    place.proves(claim)
    assert place.holds(0)
    assert sorted(os.listdir(place.run.receipt("copy", 0).parent)) == ["00000.json"]


def test_what_cannot_be_removed_is_named(place: Place) -> None:
    claim = taken(place.worker().next())
    put(place.run.receipt("copy", 0), "folder")
    with pytest.raises(FailedError, match="receipt cannot be"):
        place.proves(claim)


def test_without_hard_links_a_halted_maker_replaces_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its receipt has its name and no content when it is halted; it wakes when another one stands there."""
    monkeypatch.setattr(os, "link", no_links)
    claim = taken(place.worker().next())
    fsync, path = os.fsync, place.run.receipt("copy", 0)
    second: list[bytes] = []

    def halted(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}") == str(path) and not second:
            second.append(b"")
            os.truncate(path, 0)
            place.ends(claim)
            place.proves(taken(place.worker().next()))
            second.append(path.read_bytes())
        fsync(fd)

    monkeypatch.setattr(os, "fsync", halted)
    small_files.make_dirs(path.parent)
    documents.create(ELEMENT_RECEIPT, path, receipt(claim))
    assert path.read_bytes() == second[1]
    assert place.holds(0)


def no_links(*_: object, **__: object) -> None:
    raise OSError(95, "Operation not supported")


# The order of the shards ------------------------------------------------------------------------


def order(worker: ShardClaims) -> list[int]:
    return [claim.index for claim in iter(worker.next, None)]


def test_a_worker_begins_at_its_place_and_goes_round(place: Place) -> None:
    assert order(place.worker(6, 4)) == [4, 5, 0, 1, 2, 3]


def test_shards_that_suit_it_come_first(place: Place) -> None:
    assert order(place.worker(7, 2, prefers=lambda index: index % 2 == 0)) == [2, 4, 6, 0, 3, 5, 1]


def test_it_looks_at_so_many_shards_for_those_that_suit_it(place: Place) -> None:
    asked: list[int] = []

    def prefers(index: int) -> bool:
        asked.append(index)
        return False

    worker = place.worker(200, 3, prefers=prefers)
    assert taken(worker.next()).index == 3 + shard_claims.LOOKED_AT
    assert sorted(order(worker)) == sorted({*range(200)} - {3 + shard_claims.LOOKED_AT})
    assert len(asked) == shard_claims.LOOKED_AT


def test_the_folder_is_listed_once_where_a_claim_is_met(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    listdir = os.listdir

    def noted(path: Any) -> list[str]:
        listed.append(os.path.relpath(path, place.run.folder))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", noted)
    first, second = place.worker(8), place.worker(8, 4)
    assert [taken(second.next()).index for _ in range(4)] == [4, 5, 6, 7]
    assert [taken(first.next()).index for _ in range(4)] == [0, 1, 2, 3]
    assert listed == []
    assert first.next() is None
    assert first.waits()
    assert listed == ["claims/copy"]
    # Two go round by turns: each claim of the other that is met is a listing.
    listed.clear()
    third = Place(place.run.folder / "third")
    left, right = third.worker(8), third.worker(8)
    assert [taken(w.next()).index for w in (left, right, left, right, left, right)] == [0, 1, 2, 3, 4, 5]
    assert len(listed) == 5


def test_what_is_made_by_another_in_this_moment_is_watched(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = small_files.create_file

    def overtaken(*arguments: Any, **options: Any) -> bool:
        monkeypatch.setattr(small_files, "create_file", create)
        taken(place.worker().next())
        return create(*arguments, **options)

    monkeypatch.setattr(small_files, "create_file", overtaken)
    worker = place.worker()
    assert worker.next() is None
    assert worker.waits()
    assert state(place.still(worker)) == (0, 2, 1)


def test_who_waits_watches_a_few_claims_and_those_that_live_give_way(place: Place) -> None:
    others = place.worker(50)
    held = [taken(others.next()) for _ in range(50)]
    alive, dead = held[:40], held[40]
    for claim in held[41:]:
        place.proves(claim)
    worker = place.worker(50)
    looks = 0
    for looks in range(1, 100):
        claim = worker.next()
        if claim is not None:
            break
        assert worker.waits()
        assert len(worker._watched) <= shard_claims.WATCHED
        for one in alive:
            os.utime(place.run.claim("copy", one.index, 1), ns=(looks, looks))
        place.clock.now += waits.HEARTBEAT
    assert state(claim) == (dead.index, 2, 1)
    assert looks < 30
    for one in [*alive, taken(claim)]:
        place.proves(one)
    assert worker.next() is None
    assert not worker.waits()


def test_failed_shards_are_tried_again_when_none_is_new(place: Place) -> None:
    worker = place.worker(4)
    for _ in range(4):
        claim = taken(worker.next())
        if claim.index == 2:
            place.ends(claim)
        else:
            place.proves(claim)
    assert state(worker.next()) == (2, 2, 1)


# What it costs ----------------------------------------------------------------------------------


class Calls(Counter[str]):
    """System calls on names, by the functions of `os` that make them."""

    CHANGES = "link", "rename", "unlink", "mkdir", "utime"

    def __init__(self, patch: Callable[..., None]) -> None:
        super().__init__()
        for name in (*self.CHANGES, "open", "lstat", "stat", "readlink", "listdir"):
            patch(os, name, self._counted(name, getattr(os, name)))

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            flags = arguments[1] if name == "open" else 0
            self["create" if flags & os.O_CREAT else name] += 1
            return call(*arguments, **options)

        return counted

    @property
    def changes(self) -> int:
        return sum(self[name] for name in ("create", *self.CHANGES))

    @property
    def looks(self) -> int:
        return sum(self.values()) - self.changes - self["listdir"]


SHARDS, WORKERS = 20_000, 1_000


def test_a_worker_lists_nothing_and_makes_a_few_calls_for_a_shard(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = place.worker(SHARDS, 7 * SHARDS // WORKERS)
    taken(worker.next())  # makes the folders
    calls = Calls(monkeypatch.setattr)
    claims = [taken(worker.next()) for _ in range(20)]
    assert [claim.index for claim in claims] == [*range(141, 161)]
    assert calls["listdir"] == 0
    assert dict(calls) == {
        name: 20 * number
        for name, number in {
            "create": 1, "link": 1, "unlink": 1, "open": 3, "lstat": 1, "stat": 1, "readlink": 1,
        }.items()
    }  # fmt: skip


def test_at_the_end_a_worker_that_waits_makes_a_few_calls(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 20,000 shards the last 1,000 are at work, each by a worker of its own."""
    small_files.make_dirs(place.run.claims("copy"))
    small_files.make_dirs(place.run.receipt("copy", 0).parent)
    for index in range(SHARDS):
        place.run.claim("copy", index, 1).write_text('{"format": 1, "worker": "a", "call": "c"}')
        if index % 20:
            place.run.receipt("copy", index).write_text('{"format": 1, "run": "r"}')
    worker = place.worker(SHARDS, 500)
    assert worker.next() is None  # at first it lists claims and receipts
    calls = Calls(monkeypatch.setattr)
    for _ in range(10):
        place.clock.now += waits.HEARTBEAT / 2
        assert worker.next() is None
    assert calls.changes == calls["listdir"] == 0
    assert calls.looks == 10 * 4 * shard_claims.WATCHED


def test_of_a_long_gap_between_two_looks_a_part_counts() -> None:
    """Servers were away: no worker could touch its claim, and who looks saw nothing."""
    claim = WatchedClaim(1).after(1, 7, 0.0, 30.0)
    for now, still in ((20.0, 20.0), (620.0, 50.0), (640.0, 70.0)):
        claim = claim.after(1, 7, now, 30.0)
        assert (claim.still, claim.lives) == (still, False)
    claim = claim.after(1, 8, 650.0, 30.0)
    assert (claim.still, claim.lives) == (0.0, True)
    assert claim.after(2, 8, 660.0, 30.0) == WatchedClaim(2, 8, 660.0)
