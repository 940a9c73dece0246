"""A worker: one process that takes one shard after another, and what it looks at before each."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import until
from tests.support.one_shard import outcome_of, write_receipt
from tests.support.standing import begin
from tests.support.whole_way import go, staging

from penstock.cluster.port import BAD_NODE
from penstock.config.settings import BandwidthConfig, EngineConfig, PlanConfig
from penstock.core.element_documents import SHARD_CLAIM, ElementOutcome, ShardClaim
from penstock.core.errors import (
    FailedError,
    InterruptedRunError,
    LockedError,
    NoSpaceError,
    PenstockError,
    TransientError,
)
from penstock.dataset import (
    dataset_lock,
    documents,
    receipts,
    run_store,
)
from penstock.dataset.context import Stop
from penstock.dataset.documents import read_plan
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.fs import small_files
from penstock.host import kernel_facts, waits
from penstock.host.kernel_facts import JobEnvironment
from penstock.jobs import shard_claims, worker
from penstock.jobs.element import Element, Limits, attempt_name
from penstock.jobs.shard_claims import ClaimLostError, ShardClaims
from penstock.jobs.worker import run_worker
from penstock.target import notices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from penstock.core.layout import RunLayout
    from penstock.dataset.context import Context

FILES = {f"d{number % 3}/{number:02d}": bytes([number]) * (1000 + number) for number in range(24)}
SHARDS = 6
STANDING = True


@pytest.fixture
def context(tmp_path: Path, source: Path) -> Iterator[Context]:
    with staging(tmp_path, source, plan=PlanConfig(shard_files=len(FILES) // SHARDS)) as made:
        # Under a limit one shard is under way at a time.
        made.config = replace(made.config, engine=EngineConfig(workers=1, limit=1 << 40))
        yield made


@pytest.fixture
def folder(context: Context) -> RunLayout:
    """The run of a plan of SHARDS shards."""
    begin(context, upto="plan")
    made = run_store.open_run(context.layout("data")).folder
    assert len(read_plan(made).shards) == SHARDS
    return made


def array(
    folder: RunLayout, *, shards: Sequence[int] = range(SHARDS), workers: int = 1, step: str = "copy"
) -> str:
    """Note an array of workers; its name."""
    name = f"penstock-data-r-{step}-1"
    ArrayBook(folder.arrays).intend(name, step, "local", shards, workers=workers, call="call")
    return name


def work(folder: RunLayout, name: str, number: int = 0, *, stop: Stop | None = None, retries: int = 2) -> int:
    step = name.split("-")[-2]
    return run_worker(folder.folder, step, number, name, stop or Stop(), retries=retries, limits=Limits())


def claims(folder: RunLayout, step: str = "copy") -> dict[int, int]:
    return shard_claims.standing(folder, step)


def claimed(folder: RunLayout, index: int, generation: int, call: str = "call") -> Path:
    """Another worker takes the shard."""
    path = folder.claim("copy", index, generation)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = ShardClaim(f"other-{generation}", "another-array", 7, call, "node17")
    small_files.write_json(path, SHARD_CLAIM.to_json(content))
    return path


def proven(folder: RunLayout, step: str = "copy") -> list[int]:
    """The shards with a receipt, in the order in which they were done."""
    made = [receipts.element(folder, step, index) for index in range(SHARDS)]
    return [receipt.index for receipt in sorted((r for r in made if r), key=lambda r: r.ended)]


def controlled(context: Context) -> None:
    """A controller lives, which has touched the dataset's lock."""
    context.layout("data").lock.write_text("{}")


class Looked(Stop):
    """Does something once, when the worker looks whether it is to stop and `when` is so."""

    def __init__(self, when: Callable[[], bool], then: Callable[[], object]) -> None:
        super().__init__()
        self._when, self._then, self._begun = when, then, False

    def signalled(self) -> None:
        if not self._begun and self._when():
            self._begun = True
            self._then()
        super().signalled()


# Shards, one after another -----------------------------------------------------------------


def test_one_process_does_all_shards_one_after_another(context: Context, folder: RunLayout) -> None:
    assert work(folder, array(folder)) == 0
    assert claims(folder) == dict.fromkeys(range(SHARDS), 1)
    assert proven(folder) == list(range(SHARDS))
    made = [receipts.element(folder, "copy", index) for index in range(SHARDS)]
    attempts = {receipt.attempt for receipt in made if receipt}
    assert len(attempts) == SHARDS, "each shard is an attempt of its own"
    assert attempts == {shard_claims.read(folder, "copy", index, 1).worker for index in range(SHARDS)}
    go(context, after="plan", upto="permissions")
    assert claims(folder) == dict.fromkeys(range(SHARDS), 1), "nothing is done again"
    assert work(folder, array(folder, step="verify")) == 0
    assert claims(folder, "verify") == dict.fromkeys(range(SHARDS), 1)
    assert go(context, after="permissions")["published"]


@pytest.mark.parametrize(("number", "first"), [(0, 0), (1, 2), (2, 4)])
def test_it_begins_at_its_own_place(folder: RunLayout, number: int, first: int) -> None:
    assert work(folder, array(folder, workers=3), number) == 0
    assert proven(folder) == [*range(first, SHARDS), *range(first)]


def test_what_others_did_or_do_is_left_to_them(
    folder: RunLayout, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "IDLE", 0.3)
    name = array(folder, workers=2)
    assert work(folder, name) == 0
    before = [receipts.element(folder, "copy", index) for index in range(SHARDS)]
    os.unlink(folder.receipt("copy", 3))
    claimed(folder, 3, 2)
    controlled(context)
    assert work(folder, name, 1) == 0
    assert [receipts.element(folder, "copy", i) for i in range(SHARDS) if i != 3] == [
        receipt for receipt in before if receipt and receipt.index != 3
    ]
    assert claims(folder)[3] == 2


def test_two_workers_divide_the_shards(folder: RunLayout) -> None:
    name, codes = array(folder, workers=2), list[int]()
    # The second one works while the first one is at its second shard.
    stop = Looked(lambda: 0 in proven(folder), lambda: codes.append(work(folder, name, 1)))
    codes.append(work(folder, name, 0, stop=stop))
    assert codes == [0, 0]
    assert claims(folder) == dict.fromkeys(range(SHARDS), 1)
    numbers = [shard_claims.read(folder, "copy", index, 1).number for index in range(SHARDS)]
    assert set(numbers) == {0, 1}


def test_its_shares_are_held_over_shards(folder: RunLayout, tmp_path: Path) -> None:
    """Of metadata operations and of the link: others need not divide anew between two shards."""
    limits = Limits(ops=10_000, bandwidth=BandwidthConfig(tmp_path / "link", 10**9))
    (tmp_path / "link").mkdir()

    def shares() -> set[Path]:
        folders = (element.layout.operations, tmp_path / "link")
        return {path for place in folders for path in place.rglob("*") if path.is_file()}

    with Element(folder, "copy", Stop(), limits=limits) as element:
        before = shares()
        shards = ShardClaims(
            folder, "copy", ShardClaim(), range(3), 0, lambda _: False, attempt_name, retries=0
        )
        held = []
        for index in range(3):
            assert (claim := shards.take(index)) is not None
            assert element.do(claim) == 0
            held.append(shares() - before)
        assert held[0]
        assert held[0] == held[1] == held[2]
    assert not shares() & held[0]


# What it looks at before each shard --------------------------------------------------------


@pytest.mark.parametrize("out_of_time", [False, True])
def test_a_signal_ends_it(folder: RunLayout, out_of_time: bool) -> None:
    def comes() -> None:
        stop.out_of_time = out_of_time
        stop.set(signal.SIGTERM)

    stop = Looked(lambda: len(proven(folder)) == 2, comes)
    if out_of_time:
        assert work(folder, array(folder), stop=stop) == 0, "that is no failure"
    else:
        with pytest.raises(InterruptedRunError):
            work(folder, array(folder), stop=stop)
    assert proven(folder) == [0, 1]
    assert len(claims(folder)) <= 3


def test_it_rests_while_pause_stands_and_holds_no_shard(
    folder: RunLayout, context: Context, capfd: pytest.CaptureFixture[str]
) -> None:
    """Another worker would wait for it."""
    path = context.config.target.root / notices.PAUSE_NAME
    path.write_text("until 18:00\n")
    codes: list[int] = []
    name = array(folder)
    thread = threading.Thread(target=lambda: codes.append(work(folder, name)))
    thread.start()
    try:
        until(lambda: "nothing is read or written" in capfd.readouterr().out, "that it rests")
        assert claims(folder) == {}
    finally:
        path.unlink()
        thread.join(60)
    assert codes == [0]
    assert proven(folder) == list(range(SHARDS))


def test_it_ends_where_another_run_claims_the_dataset(folder: RunLayout, context: Context) -> None:
    layout = context.layout("data")
    stop = Looked(
        lambda: len(proven(folder)) == 2,
        lambda: dataset_lock.make_claim(layout, "f" * 16, dataset_lock.highest_claim(layout), ""),
    )
    with pytest.raises(LockedError) as ended:
        work(folder, array(folder), stop=stop)
    assert ended.value.exit_code == 7
    assert len(proven(folder)) == 2


@pytest.mark.parametrize(("leaving", "done"), [([0], 1), ([1, 2], SHARDS)])
def test_it_ends_where_the_controller_lets_it_go(
    folder: RunLayout, leaving: Sequence[int], done: int
) -> None:
    path = folder.leaving("copy")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Amid its first shard.
    stop = Looked(lambda: claims(folder) == {0: 1}, lambda: small_files.write_json(path, leaving))
    assert work(folder, array(folder), stop=stop) == 0
    assert proven(folder) == list(range(done)), "the shard that it had is done"
    assert len(claims(folder)) == done


def test_a_worker_that_starts_when_it_was_let_go_takes_nothing(folder: RunLayout) -> None:
    path = folder.leaving("copy")
    path.parent.mkdir(parents=True, exist_ok=True)
    small_files.write_json(path, [0])
    assert work(folder, array(folder)) == 0
    assert claims(folder) == {}


def test_with_a_controller_it_ends_when_others_have_what_is_left(
    folder: RunLayout, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller submits another one where they fail."""
    monkeypatch.setattr(worker, "IDLE", 0.3)
    claimed(folder, 2, 1)
    controlled(context)
    began = time.monotonic()
    assert work(folder, array(folder)) == 0
    assert time.monotonic() - began >= 0.3
    assert proven(folder) == [0, 1, 3, 4, 5]
    assert claims(folder)[2] == 1


def test_what_another_one_fails_meanwhile_it_takes(
    folder: RunLayout, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "IDLE", 60.0)
    claimed(folder, 2, 1)
    controlled(context)
    outcome = ElementOutcome("other-1", 1, host="node17", exit_code=1, error="reset by peer")
    stop = Looked(
        lambda: len(proven(folder)) == SHARDS - 1, lambda: documents.write_outcome(folder, "copy", 2, outcome)
    )
    assert work(folder, array(folder), stop=stop) == 0
    assert proven(folder)[-1] == 2
    assert shard_claims.read(folder, "copy", 2, 2).charged == 1


@pytest.mark.parametrize("content", ["another worker's", "empty", "foreign"])
def test_without_a_controller_it_goes_on_with_what_stands_still(
    folder: RunLayout, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    """By its own clock: that of who wrote the claim may be an hour ahead."""
    monkeypatch.setattr(worker, "IDLE", 0.1)
    monkeypatch.setattr(waits, "PATIENCE", 0.6)
    path = claimed(folder, 2, 1)
    if content != "another worker's":
        path.write_text("" if content == "empty" else "[1, 2")
    ahead = time.time() + 3600
    os.utime(path, (ahead, ahead))
    began = time.monotonic()
    assert work(folder, array(folder)) == 0
    assert time.monotonic() - began >= 0.6
    assert proven(folder)[-1] == 2
    assert claims(folder)[2] == 2


def test_without_a_controller_it_waits_while_others_move(
    folder: RunLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "IDLE", 0.1)
    monkeypatch.setattr(waits, "PATIENCE", 1.0)
    path = claimed(folder, 2, 1)
    ends = threading.Event()

    def beats() -> None:
        while not ends.wait(0.05):
            os.utime(path)

    thread = threading.Thread(target=beats)
    thread.start()
    try:
        assert work(folder, array(folder)) == 0
    finally:
        ends.set()
        thread.join()
    assert proven(folder) == [0, 1, 3, 4, 5]
    assert claims(folder)[2] == 1, "nobody took it from who moves"


def test_there_is_nothing_to_do(folder: RunLayout) -> None:
    assert work(folder, array(folder)) == 0
    began = time.monotonic()
    assert work(folder, array(folder)) == 0
    assert time.monotonic() - began < worker.IDLE / 2, "nothing is waited for"


def test_an_array_that_is_not_noted_is_refused(folder: RunLayout) -> None:
    with pytest.raises(FailedError, match="there is no such array"):
        work(folder, "penstock-data-r-copy-9")
    assert claims(folder) == {}


# Shards that fail --------------------------------------------------------------------------


class Failing(Stop):
    """Each shard of which `fails` is so fails amid its work: by what may pass, or an error of this kind."""

    def __init__(
        self,
        folder: RunLayout,
        fails: Callable[[int, int], bool],
        kind: type[PenstockError] = TransientError,
    ) -> None:
        super().__init__()
        self._folder, self._fails, self._kind = folder, fails, kind

    def signalled(self) -> None:
        for index, generation in claims(self._folder).items():
            outcome = outcome_of(self._folder, index)
            ended = outcome is not None and outcome.generation == generation
            ended = ended or receipts.element(self._folder, "copy", index) is not None
            if not ended and self._fails(index, generation):
                raise self._kind("the source does not answer", where=str(index))
        super().signalled()


def test_what_fails_is_tried_again_after_the_others(folder: RunLayout) -> None:
    stop = Failing(folder, lambda index, generation: index in (1, 2) and generation == 1)
    assert work(folder, array(folder), stop=stop) == 0, "nothing failed for good"
    assert proven(folder) == [0, 3, 4, 5, 1, 2]
    assert claims(folder) == {0: 1, 1: 2, 2: 2, 3: 1, 4: 1, 5: 1}
    assert shard_claims.read(folder, "copy", 1, 2).charged == 1


def test_when_retries_are_used_up_it_ends_and_its_exit_status_says_so(folder: RunLayout) -> None:
    stop = Failing(folder, lambda index, _: index == 1)
    assert work(folder, array(folder), stop=stop, retries=0) == 1
    assert proven(folder) == [0, 2, 3, 4, 5]
    assert claims(folder)[1] == 1
    outcome = outcome_of(folder, 1)
    assert (outcome.generation, outcome.retry, outcome.free) == (1, True, False)
    assert "the source does not answer" in outcome.error


def test_what_cannot_help_is_not_tried_again(folder: RunLayout, tmp_path: Path) -> None:
    (tmp_path / "source" / "d0" / "00").write_bytes(b"changed since")
    assert work(folder, array(folder)) == 5
    failed = set(range(SHARDS)) - set(proven(folder))
    assert len(failed) == 1
    assert claims(folder) == dict.fromkeys(range(SHARDS), 1)


def test_on_a_full_target_it_takes_no_further_shard(folder: RunLayout) -> None:
    stop = Failing(folder, lambda index, _: index == 1, NoSpaceError)
    assert work(folder, array(folder), stop=stop) == NoSpaceError.exit_code
    assert claims(folder) == {0: 1, 1: 1}


def test_on_a_bad_node_it_ends_and_the_shards_are_not_charged(folder: RunLayout) -> None:
    kernel_facts.enter_job(JobEnvironment(job="13"))
    stop = Failing(folder, lambda *_: True)
    assert work(folder, array(folder), stop=stop) == BAD_NODE
    assert claims(folder) == {0: 1, 1: 1}
    for index in (0, 1):
        outcome = outcome_of(folder, index)
        assert (outcome.generation, outcome.retry, outcome.free) == (1, True, True)
    kernel_facts.enter_job(JobEnvironment(job="14"))
    assert work(folder, array(folder)) == 0
    assert [shard_claims.read(folder, "copy", index, 2).charged for index in (0, 1)] == [0, 0]


def test_a_node_where_a_shard_was_done_is_not_bad(folder: RunLayout) -> None:
    kernel_facts.enter_job(JobEnvironment(job="13"))
    stop = Failing(folder, lambda index, _: index > 0)
    assert work(folder, array(folder), stop=stop, retries=0) == 1
    assert claims(folder) == dict.fromkeys(range(SHARDS), 1)


def test_of_this_machine_no_node_is_bad(folder: RunLayout) -> None:
    stop = Failing(folder, lambda *_: True)
    assert work(folder, array(folder), stop=stop, retries=0) == 1
    assert claims(folder) == dict.fromkeys(range(SHARDS), 1)


# Another one takes its shard ---------------------------------------------------------------


def test_a_shard_that_another_one_took_midway_is_left_as_it_is(
    folder: RunLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C2. This one was frozen for longer than PATIENCE."""
    monkeypatch.setattr(shard_claims, "LOOK", 0.0)
    own = ShardClaim(array=array(folder), call="call")
    with Element(folder, "copy", Stop()) as element:
        mine = ShardClaims(
            folder, "copy", own, range(SHARDS), 0, lambda _: False, lambda: "mine", retries=2
        ).next()
        assert mine is not None
        claimed(folder, 0, 2)
        with pytest.raises(ClaimLostError, match="another worker took shard 0"):
            element.do(mine)
    assert proven(folder) == []
    assert outcome_of(folder, 0) is None, "nothing is said in the name of the other one"


def test_it_goes_on_with_other_shards(
    folder: RunLayout, context: Context, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shard_claims, "LOOK", 0.0)
    monkeypatch.setattr(worker, "IDLE", 0.2)
    controlled(context)
    stop = Looked(lambda: claims(folder).get(1) == 1, lambda: claimed(folder, 1, 2))
    assert work(folder, array(folder), stop=stop) == 0
    assert proven(folder) == [0, 2, 3, 4, 5]
    assert claims(folder)[1] == 2
    assert "another worker took shard 1" in capfd.readouterr().out


def test_a_receipt_that_another_one_wrote_stays(folder: RunLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    """C4: also where this worker did the shard to its end."""
    monkeypatch.setattr(shard_claims, "LOOK", 3600.0)
    name = array(folder)
    assert work(folder, name) == 0
    receipt = receipts.element(folder, "copy", 0)
    own = ShardClaim(array=name, call="call")
    with Element(folder, "copy", Stop()) as element:
        mine = ShardClaims(
            folder, "copy", own, [0], 0, lambda _: False, lambda: "mine", retries=2, clock=lambda: 0.0
        )
        # The first claim's worker wrote an outcome, and, once the shard was claimed again, a receipt.
        documents.write_outcome(folder, "copy", 0, ElementOutcome("x", 1))
        claim = mine.next()
        assert claim is not None
        assert claim.generation == 2
        assert receipt is not None
        write_receipt(folder, receipt)
        # It does not see that one before it has ended.
        assert element.do(claim) == 0
    assert receipts.element(folder, "copy", 0) == receipt
