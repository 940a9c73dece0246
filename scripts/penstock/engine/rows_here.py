"""Reads a shard's rows, and saves the results every few seconds. No stream opens rows whose data is not on
this file system (behind a tier, or only a stub of the file).
"""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar

import xxhash

from penstock.core.model import Entry, Expected, of_hex
from penstock.engine.multipart import batches
from penstock.fs.store_checks import data_states

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from penstock.engine.shard_run import PoolRun
    from penstock.engine.tasks import Batch, BatchAnswer, StopCheck
    from penstock.engine.work_kinds import ReadWork, SurveyWork
    from penstock.fs.data_states import DataStates
    from penstock.fs.stores import DataState
    from penstock.host.pacing import Allowances


# The vendor's command for data states takes a moment for a few hundred files. So a thread queries the next
# rows while the previous rows are read.

Row = TypeVar("Row", Expected, Entry)
ROWS = 2048  # rows whose states are queried at a time
ZEROS = 1 << 30  # size of the largest row without blocks whose digest is compared with the digest of zeros


@contextlib.contextmanager
def rows_here(
    groups: Iterable[list[Row]],
    done: set[int],
    states: DataStates | None,
    leave: Callable[[int, Row, DataState], bool],
    asks: Callable[[int], bool] = lambda _: True,
) -> Iterator[Iterable[list[Row]]]:
    """Yield all rows in order, in groups of at most ROWS. Rows are numbered from 0 in this order.

    It queries the state of each row that is not in `done` and for which `asks(row)` returns True. If the
    row's data is not here and `leave(row, entry, state)` returns True, it adds the row to `done` before it
    yields the group. `states` is closed at the end. If it is None, all data is here, and the groups stay as
    they are.
    """
    if states is None:
        yield groups
        return
    with contextlib.closing(states), contextlib.closing(_present(groups, done, states, leave, asks)) as here:
        yield here


def _present(
    groups: Iterable[list[Row]],
    done: set[int],
    states: DataStates,
    leave: Callable[[int, Row, DataState], bool],
    asks: Callable[[int], bool],
) -> Generator[list[Row]]:
    with ThreadPoolExecutor(1, thread_name_prefix="states") as asking:
        row = 0
        for group, away in _ahead(
            _numbered(groups), states, asking, lambda number: number not in done and asks(number)
        ):
            states_away = away.result()
            for entry in group:
                state = states_away.get(entry.path)
                if state is not None and row not in done and asks(row) and leave(row, entry, state):
                    done.add(row)
                row += 1
            yield group


def _numbered(groups: Iterable[list[Row]]) -> Iterator[tuple[int, list[Row]]]:
    first = 0
    for group in groups:
        for at in range(0, len(group), ROWS):
            some = group[at : at + ROWS]
            yield first, some
            first += len(some)


def _ahead(
    groups: Iterable[tuple[int, list[Row]]],
    states: DataStates,
    asking: ThreadPoolExecutor,
    asks: Callable[[int], bool],
) -> Iterator[tuple[list[Row], Future[dict[str, DataState]]]]:
    """Yield each group with its rows' states, which are queried one group ahead."""
    before: tuple[list[Row], Future[dict[str, DataState]]] | None = None
    for first, group in groups:
        paths = [entry.path for row, entry in enumerate(group, first) if asks(row)]
        asked = (group, asking.submit(states.away, paths))
        if before is not None:
            yield before
        before = asked
    if before is not None:
        yield before


class Recall:
    """Decides which rows are read although their data is not here.

    | the row                                                    | is read |
    |------------------------------------------------------------|---------|
    | its digest is that of zeros, and the file has no blocks    | yes     |
    | it is tiered, and not larger than the bytes left to recall | yes     |
    | any other                                                  | no      |
    """

    def __init__(self, most: int) -> None:
        """`most` is the number of bytes that may be recalled, in all tiered files together."""
        self._left = most

    def reads(self, entry: Expected, state: DataState) -> bool:
        """Decide according to the table. The length of a tiered row that is read counts as recalled."""
        return (state.hinted and _is_hole(entry)) or self.fetches(entry, state)

    def fetches(self, entry: Expected | Entry, state: DataState) -> bool:
        """Decide according to the table's second line only, for rows without a digest."""
        length = length_of(entry)
        if state.place != "tiered" or length > self._left:
            return False
        self._left -= length
        return True


def length_of(entry: Expected | Entry) -> int:
    """Return the size of a whole file, or of a giant's part."""
    return entry.size if entry.part < 0 else entry.length


def _is_hole(entry: Expected) -> bool:
    """Return whether the row's digest is that of zeros. A file of zeros may have no blocks."""
    length = length_of(entry)
    return length <= ZEROS and entry.digest == _zeros(length)


@lru_cache(maxsize=256)
def _zeros(length: int) -> str:
    """Return the digest of `length` zeros. It takes about 0.06 s a GiB."""
    digest, block = xxhash.xxh3_128(), bytes(1 << 20)
    for _ in range(length >> 20):
        digest.update(block)
    digest.update(bytes(length & 0xFFFFF))
    return str(of_hex(digest.hexdigest()))


# After a kill, an audit (`audit_shard`) or survey (`survey_shard`) resumes where results were last saved.

EVERY = 3.0  # seconds between two writes of the results; a kill costs the work since the last write
PAUSE_FACTOR = 20  # least pause after a slow write (many findings), in multiples of the write's duration


class ResumableReading(Generic[Row]):
    """One attempt to read a shard. Subclasses keep the results."""

    def __init__(self, data: Path, named: str, recall: int, done: set[int]) -> None:
        """`named` is the kind of file system whose rules apply, as in `target.filesystem`. `recall` is the
        number of bytes of tiered files that may be recalled. `done` has the rows with earlier results."""
        self._data, self._named, self._done = data, named, done
        self.recall = Recall(recall)

    def add(self, answer: BatchAnswer) -> None:
        """Keep a worker's results of one batch."""
        raise NotImplementedError

    def leave(self, row: int, entry: Row, state: DataState) -> bool:
        """Return whether a row whose data is not here is not opened, and keep that as its result."""
        raise NotImplementedError

    def write(self) -> None:
        """Durably write the results kept so far."""
        raise NotImplementedError

    def tend(self) -> None:
        """Do a subclass's periodic work. It is called several times a second."""

    def read(
        self,
        run: PoolRun,
        work: ReadWork | SurveyWork,
        rows: Iterable[list[Row]],
        stop: StopCheck,
        share: Allowances | None = None,
    ) -> None:
        """Read the shard's `rows` that are not done. Writes the results even after an error. Raises the
        errors of `PoolRun.go`."""
        outcome, left = run.outcome, run.shard.rows - len(self._done)
        run.start_reading(work, left, share)

        def take(_: Batch, answer: BatchAnswer) -> None:
            self.add(answer)
            run.fail(answer.failures)
            outcome.add(answer)

        due = time.monotonic() + EVERY

        def idle() -> None:
            nonlocal due
            self.tend()
            begun = time.monotonic()
            if begun >= due:
                self.write()
                now = time.monotonic()
                due = now + max(EVERY, PAUSE_FACTOR * (now - begun))

        states = data_states(self._data, self._named)
        with rows_here(rows, self._done, states, self.leave) as here:
            try:
                run.go(batches(here, self._done, left, outcome.workers), take, idle, stop)
            finally:
                self.write()
        if states is not None and states.silence:
            why = f"the vendor's command did not say which files' data is not here: {states.silence}"
            outcome.warnings.append(f"{why}; their blocks were looked at")
