"""A worker: an element of a job array, which takes one shard after another until none is left. Its use of
CPU and memory is measured over the life of its process, and kept in a small file of the run.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

from penstock.cluster.port import BAD_NODE
from penstock.core.element_documents import ELEMENT_USAGE, ElementUsage
from penstock.core.errors import STATE_ANEW, FailedError, InterruptedRunError, NoSpaceError, PenstockError
from penstock.core.estimates import CLOCKS
from penstock.core.layout import RunLayout
from penstock.dataset import documents, receipts
from penstock.dataset.receipts import replace_figures
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.engine import pool
from penstock.engine.sizing import cpus
from penstock.fs import small_files
from penstock.host import kernel_facts, waits
from penstock.host.kernel_facts import host_name
from penstock.jobs.element import Element, Limits, attempt_name, own_claim, say
from penstock.jobs.shard_claims import ClaimLostError, ShardClaims

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.core.element_documents import ArrayLine
    from penstock.dataset.context import Stop
    from penstock.jobs.shard_claims import Claim


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
