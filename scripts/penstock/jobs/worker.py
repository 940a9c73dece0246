"""A worker: an element of a job array, which takes one shard after another until none is left. Its use of CPU
and memory is measured over the life of its process, kept in a small file of the run, and gathered for the
report.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.port import BAD_NODE, abilities_of
from penstock.core import element_documents, human
from penstock.core.element_documents import ELEMENT_USAGE, ElementRow, ElementUsage
from penstock.core.errors import STATE_ANEW, FailedError, InterruptedRunError, NoSpaceError, PenstockError
from penstock.core.estimates import CLOCKS
from penstock.core.layout import RunLayout
from penstock.core.run_steps import RUN_IN_ELEMENTS
from penstock.dataset import documents, receipts
from penstock.dataset.receipts import replace_figures
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.engine import pool
from penstock.engine.sizing import cpus
from penstock.fs import small_files
from penstock.host import kernel_facts, waits
from penstock.host.kernel_facts import host_name
from penstock.jobs import shard_claims
from penstock.jobs.element import Element, Limits, attempt_name, own_claim, say
from penstock.jobs.shard_claims import ClaimLostError, ShardClaims

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.cluster.port import Accounted
    from penstock.core.element_documents import ArrayLine, ElementReceipt
    from penstock.dataset.context import Context, Stop
    from penstock.dataset.documents import Run
    from penstock.jobs.shard_claims import Claim


# Gather the usage of a run's elements (the processes of its job arrays) for the report.
#
# Sources: the figures that each process measured, the claims and receipts of its shards, the book of
# submissions (`arrays.jsonl`), and SLURM's accounting.

Worker = tuple[str, int]  # the array's name, and the worker's number, unique in the step


class ElementAccounts(NamedTuple):
    """A row for each start of a worker, by step and worker, and readable notes."""

    rows: Sequence[ElementRow]
    notes: Sequence[str]


def gather_accounts(context: Context, run: Run, elements: Iterable[ElementReceipt]) -> ElementAccounts:
    """Return the usage of a planned run's elements; `elements` are the valid receipts.

    The notes report an unreadable book or accounting, which only add to the elements' own figures. Raises
    FailedError if claims or figures cannot be read.
    """
    notes: list[str] = []
    book: Sequence[ArrayLine] = ()
    excluded: Mapping[str, str] = {}
    try:
        arrays_book = ArrayBook(run.folder.arrays)
        book, excluded = arrays_book.all(), arrays_book.excluded()
    except PenstockError as error:
        notes.append(f"the submissions are not known: {error}")
    accounted: Mapping[Worker, Accounted] = {}
    try:
        accounted = _accounted(context, book)
    except PenstockError as error:
        notes.append(f"SLURM's accounting was not asked: {error}")
    rows = list(_rows(run, elements, {line.name: line for line in book}, accounted))
    if missing := sum(row.starts_missing or 0 for row in rows):
        notes.append(
            f"{human.counted(missing, 'start')} left no figures (killed before the first ones): "
            "hours and CPU time are without them, unless SLURM's accounting has them"
        )
    notes += [f"node {node} was excluded ({why})" for node, why in excluded.items()]
    return ElementAccounts(rows, notes)


def _accounted(context: Context, book: Sequence[ArrayLine]) -> Mapping[Worker, Accounted]:
    cluster = context.cluster
    return {
        (line.name, account.element + line.base): account
        for line in book
        if line.array and line.kind == cluster.kind and cluster.abilities.has_nodes
        if not line.cluster or line.cluster == cluster.name()
        for account in cluster.accounting(line.array)
    }


def _rows(
    run: Run,
    elements: Iterable[ElementReceipt],
    arrays: Mapping[str, ArrayLine],
    accounted: Mapping[Worker, Accounted],
) -> Iterator[ElementRow]:
    """Yield a row for each start. The row of a worker's last start also has the figures of all its starts."""
    done = _done(run, elements)
    for step in RUN_IN_ELEMENTS:
        workers: dict[Worker, list[ElementUsage]] = {
            worker: [] for worker in accounted if arrays[worker[0]].step == step
        }
        for path in run.folder.usage(step).glob("*.json"):
            if usage := documents.find_whole(ELEMENT_USAGE, path):
                workers.setdefault((usage.array, usage.number), []).append(usage)
        for worker, starts in sorted(workers.items(), key=lambda item: item[0][1]):
            starts.sort(key=lambda usage: (usage.restarts, usage.began))
            line, account = arrays.get(worker[0]), accounted.get(worker)
            *earlier, last = starts or [ElementUsage(*worker)]
            for usage in earlier:
                yield _row(step, usage, line, done[step, *worker, usage.restarts])
            before = sum(usage.seconds for usage in earlier)
            missing = max(last.restarts + 1, account.starts if account else 0) - len(starts)
            yield _row(step, last, line, done[step, *worker, last.restarts], account, before, max(0, missing))


def _done(
    run: Run, elements: Iterable[ElementReceipt]
) -> defaultdict[tuple[str, str, int, int], list[ElementReceipt]]:
    """Group receipts by step, array, number and restarts of the worker with the shard's highest claim, since
    only that worker writes the shard's receipt."""
    standing = {step: shard_claims.standing(run.folder, step) for step in RUN_IN_ELEMENTS}
    done: defaultdict[tuple[str, str, int, int], list[ElementReceipt]] = defaultdict(list)
    for receipt in elements:
        step, index = receipt.step, receipt.index
        claim = shard_claims.read(run.folder, step, index, standing[step].get(index, 0))
        done[step, claim.array, claim.number, claim.restarts].append(receipt)
    return done


def _row(
    step: str,
    usage: ElementUsage,
    line: ArrayLine | None,
    shards: Sequence[ElementReceipt],
    account: Accounted | None = None,
    before: float = 0.0,
    missing: int | None = None,
) -> ElementRow:
    """Return the row of one start, which did the shards of the receipts `shards`.

    `before` counts the seconds of earlier starts, which have rows of their own. `missing` counts earlier
    starts without figures; None if later starts exist.
    """
    last = missing is not None
    submitted = (account.submitted if account else 0.0) or (line.at if line else 0.0)
    start = dict(line.starts).get(usage.number, 0.0) if line and last else 0.0
    wait = element_documents.queue_wait(
        booked=account.waited if account else None,
        submitted=line.at if line and last else 0.0,
        start_time=start,
        began=usage.began,
        ran_before=before,
    )
    seconds = max(usage.seconds, account.seconds - before if account else 0.0)
    granted = usage.cpus * usage.seconds
    nodes = line is not None and abilities_of(line.kind).has_nodes
    asked = line.whole_nodes if line else None
    whole = element_documents.whole_node(asked, usage.cpus, usage.node_cpus, nodes=nodes)
    return ElementRow(
        step=step,
        element=usage.number,
        restarts=usage.restarts,
        node=usage.host or None,
        array=(line.array if nodes and line else "") or None,
        submitted=submitted or None,
        started=(account.started if account else 0.0) or start or usage.began or None,
        ended=(usage.began + usage.seconds) or (account.ended if account else 0.0) or None,
        queue_wait=_rounded(wait.seconds),
        queue_wait_by=wait.by or None,
        starts_missing=missing,
        seconds=_rounded(seconds),
        hours_by=element_documents.SLURMDBD if seconds > usage.seconds else element_documents.ELEMENT,
        whole_node=whole,
        node_hours=_rounded(seconds / 3600, 6) if whole else None,
        core_hours=_rounded(seconds * usage.cpus / 3600, 6) if usage.cpus else None,
        cpus=usage.cpus or None,
        node_cpus=usage.node_cpus or None,
        cpu_seconds=_rounded(usage.cpu_seconds) if usage.began else None,
        granted_seconds=_rounded(granted) if granted else None,
        cpu_efficiency=_rounded(usage.cpu_seconds / granted, 4) if granted else None,
        memory_peak=usage.memory_peak or None,
        processes=usage.processes or None,
        job_memory_peak=usage.job_memory_peak or None,
        job_memory_file=usage.job_memory_file or None,
        shards=len(shards),
        files=sum(receipt.files for receipt in shards),
        bytes=sum(receipt.bytes for receipt in shards),
        slurm_starts=account.starts if account else None,
        slurm_seconds=account.seconds if account else None,
        slurm_cpu_seconds=account.cpu_seconds if account else None,
        slurm_granted_seconds=account.granted_seconds if account else None,
        slurm_memory_peak=account.memory_peak if account else None,
    )


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)


# A worker: an element of a job array, which takes one shard after another until none is left. Its use of
# CPU and memory is measured over the life of its process, and kept in a small file of the run.


@contextlib.contextmanager
def accounting(run: RunLayout, step: str, array: str, number: int) -> Iterator[None]:
    """Keep a file of what this process used since its start.

    A thread replaces the file once in a HEARTBEAT, as does the end of the block. It is never durable, and a
    failed write is ignored. The engine's processes must end within the block, since their peaks of memory are
    read right before their end.
    """
    job = kernel_facts.current_job()
    usage = ElementUsage(
        array, number, job.restarts, host_name(), cpus=cpus(job)[0], node_cpus=os.cpu_count() or 0
    )
    meter = kernel_facts.Meter(job.cgroup)
    path = run.usage(step) / f"{attempt_name()}.json"

    def write() -> None:
        with contextlib.suppress(OSError):
            small_files.make_dirs(path.parent)
        replace_figures(path, ELEMENT_USAGE.to_json(meter.used(usage)))

    write()
    kernel_facts.enter_meter(meter)
    try:
        with waits.beating(write, "usage"):
            yield
    finally:
        kernel_facts.enter_meter(None)
        write()


# A worker: an element of a job array, which takes one shard after another until none is left.
#
# Workers know of each other only by the run's folder: claims (`jobs.shard_claims`), receipts, outcomes. A
# worker begins a shard when half of the shard before is done, so two may be under way.
#
# | before a shard                                   | then the worker                                    |
# |--------------------------------------------------|----------------------------------------------------|
# | a signal came, or the end of its time is near    | ends                                               |
# | the PAUSE file exists at the root                | waits, before it makes a claim                     |
# | another run claimed the dataset                  | ends, with exit status 7                           |
# | the controller lets it go (`limit --nodes`)      | ends                                               |
# | no shard can be taken, others are at work        | looks for IDLE seconds, then ends. If no           |
# |                                                  | controller is alive, it looks until the others'    |
# |                                                  | claims change, or do not change for PATIENCE       |
# | no shard is open                                 | ends                                               |
# | `BAD` shards failed on this node of a cluster,   | ends with `BAD_NODE`, and the failures of these    |
# | for causes that may pass, and no shard was done  | shards are not charged                             |

IDLE = 10.0  # seconds for which a worker looks for shards that others may leave
LOOKS = 0.2, 5.0  # fewest and most seconds between two looks for such shards; a look reads others' claims
BAD = 2


def run_worker(
    run_folder: Path,
    step: str,
    number: int,
    array: str,
    stop: Stop,
    root: Path | None = None,
    *,
    retries: int,
    limits: Limits,
    reads_back: bool = False,
) -> int:
    """Do shards of this array as its worker `number` (unique in the step); return the exit status.

    The status is that of the last failed shard that no later try completed, otherwise 0. `retries` is how
    often a shard is tried again. `reads_back`: also read copied shards back (`reading_beside`). Raises the
    errors of `Element`.
    """
    run = RunLayout(run_folder)
    line = ArrayBook(run.arrays).line(array)
    if line is None:
        raise FailedError("there is no such array", where=str(run.arrays), why=array, hint=STATE_ANEW)
    account = accounting(run, step, array, number)
    with Element(run, step, stop, root, limits=limits) as element, account:
        try:
            worker = _Worker(element, step, number, line, stop, retries)
            if not reads_back:
                return worker.work()
            from penstock.jobs.reading_beside import ReadingBeside

            while True:
                with ReadingBeside(element, number, line, stop, retries, worker.leaves) as reading:
                    code = worker.work()
                    if code or not reading.rest():
                        return code
        except InterruptedRunError:
            if not stop.out_of_time:
                raise
            return 0  # the outcome reports on the shard under way


class _Worker:
    def __init__(
        self, element: Element, step: str, number: int, line: ArrayLine, stop: Stop, retries: int
    ) -> None:
        self._element, self._step, self._number, self._stop = element, step, number, stop
        self._run = element.folder
        self._claims = ShardClaims(
            self._run,
            step,
            own_claim(line, number),
            line.indices,
            (number - line.base) * len(line.indices) // max(1, line.workers),
            receipts.held(element.run, step),
            attempt_name,
            retries=retries,
            prefers=(lambda index: receipts.copied_elsewhere(self._run, index, host_name()))
            if step == "verify"
            else None,
        )
        self._several = element.overlaps and len(line.indices) > 1
        self._turn, self._over, self._bad = threading.Lock(), False, False
        self._error: BaseException | None = None
        self._failed: list[Claim] = []
        self._done, self._codes = 0, dict[int, int]()

    def work(self) -> int:
        """Do shards until none is left, by two threads in turn.

        A thread begins a shard when worker processes have all rows of the shard before, and half of its bytes
        are done.
        """
        second = threading.Thread(target=self._second, name="next shard")
        if self._several:
            second.start()
        try:
            with pool.kept(1 + self._several):
                self._take_turns()
        finally:
            if self._several:
                second.join()
        if self._error is not None:
            raise self._error
        return BAD_NODE if self._bad else next(reversed(self._codes.values()), 0)

    def _second(self) -> None:
        try:
            with pool.kept(2):
                self._take_turns()
        except BaseException as error:  # noqa: BLE001  the first thread raises it
            self._error = error

    def _take_turns(self) -> None:
        while True:
            self._turn.acquire()
            turn = contextlib.ExitStack()
            turn.callback(self._turn.release)
            with turn:
                try:
                    if self._over or self.leaves() or (claim := self._next()) is None:
                        return
                    self._do(claim, turn.close)
                except BaseException:
                    self._over = True  # set before the other thread's turn
                    raise

    def _do(self, claim: Claim, fed: Callable[[], None]) -> None:
        try:
            code = self._element.do(claim, fed if self._several else None)
        except ClaimLostError as error:
            say(str(error))
            return
        self._stop.signalled()
        self._codes.pop(claim.index, None)
        if code == 0:
            self._done += 1
            return
        self._codes[claim.index] = code
        if code == NoSpaceError.exit_code:
            self._over = True
            return
        if self._may_pass(claim):
            self._failed.append(claim)
        several = len({attempt.index for attempt in self._failed}) >= BAD
        if several and not self._done and kernel_facts.current_job().job:
            self._charge_nobody(self._failed)
            self._bad = self._over = True

    def leaves(self) -> bool:
        """Return whether the controller lets this worker go. Waits while the PAUSE file exists. Raises
        InterruptedRunError, and the errors of `Element`."""
        self._stop.check()
        self._element.check()
        with contextlib.suppress(OSError, ValueError):
            return self._number in small_files.read_json(self._run.leaving(self._step))
        return False

    def _next(self) -> Claim | None:
        since = time.monotonic()
        while (claim := self._claims.next()) is None and self._claims.waits():
            pause = min(LOOKS[1], max(LOOKS[0], self._claims.left / 100))
            idle = time.monotonic() - since
            if idle >= IDLE and (self._controlled() or idle >= waits.PATIENCE + 2 * pause):
                return None
            self._stop.wait(pause)
            if self._over or self.leaves():
                return None
        return claim

    def _controlled(self) -> bool:
        """Return whether a controller seems to be alive, which would replace workers that leave shards."""
        layout = self._element.layout
        lock = layout.state / "audit.lock" if self._step in ("audit", "repair") else layout.lock
        try:
            age = time.time() - os.stat(lock).st_mtime
        except OSError:
            return False
        return age < waits.PATIENCE + CLOCKS

    def _may_pass(self, claim: Claim) -> bool:
        with contextlib.suppress(PenstockError):
            outcome = documents.find_outcome(self._run, self._step, claim.index, claim.generation)
            return outcome is not None and outcome.retry
        return False

    def _charge_nobody(self, failed: list[Claim]) -> None:
        for claim in failed:
            with contextlib.suppress(PenstockError):
                outcome = documents.find_outcome(self._run, self._step, claim.index, claim.generation)
                if outcome is not None:
                    documents.write_outcome(self._run, self._step, claim.index, outcome._replace(free=True))
