"""The job arrays that a run submitted (`arrays.jsonl`), and the orders that a person gives about running
work: the durable marks of `penstock cancel` and of `penstock limit DATASET --nodes N`.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import socket
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from penstock.core import dataset_documents, element_documents, typed_json
from penstock.core.dataset_documents import Cancellation, Given, Throttle
from penstock.core.element_documents import ArrayLine
from penstock.core.errors import STATE_ANEW, CancelledError, FailedError
from penstock.core.layout import REPAIRS
from penstock.core.run_steps import CHANGES_AFTER_LIST
from penstock.core.typed_json import NOTHING
from penstock.dataset import documents
from penstock.dataset import holder as holders
from penstock.fs import small_files
from penstock.fs.owners import account
from penstock.fs.safe_open import NO_SPACE, storage_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.core.layout import DatasetLayout, RunLayout


# Orders that a person gives about running work: the durable marks of `penstock cancel` and of `penstock
# limit DATASET --nodes N`. The dataset's controller obeys them.

# An order about running work: a command writes its file, the controller obeys it. `staging_notice` uses
# `given` to record who started a command.


def given() -> Given:
    """Return who gives an order now: the account and node of this process, and the time."""
    return Given(time.time(), account(os.geteuid()), socket.gethostname())


def write_order(where: Path, content: Mapping[str, object], what: str, verb: str) -> None:
    """Write the order's file, durably. Raises NoSpaceError, FailedError with the hint to `verb` as owner."""
    try:
        small_files.write_json(where, content)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise storage_error(error, f"{what} cannot be written", str(where)) from error
        raise FailedError(
            f"{what} cannot be written",
            where=str(where),
            why=error.strerror or "",
            hint=f"{verb} as the account that stages the dataset",
        ) from error


def ordered_by(order: Given) -> str:
    """Return `by alice on login1 at 15:04:05`."""
    return f"by {order.user} on {order.host} at {time.strftime('%H:%M:%S', time.localtime(order.at))}"


# The durable mark of `penstock cancel`, which a dataset's controller obeys.
#
#     <state>/cancelled.json      the last cancel (`core.dataset_documents.Cancellation`)
#
# A running controller that sees the mark ends its job arrays and stops. Only running work is cancelled: the
# next `list` removes the mark, and a step called by hand ignores an older mark.

# environment variable that is set in all steps of a workflow's run, but not in a step called by hand
INVOCATION = "PENSTOCK_INVOCATION"


def cancel_path(layout: DatasetLayout) -> Path:
    """Return the path of a dataset's cancel mark."""
    return layout.state / "cancelled.json"


def order_cancel(layout: DatasetLayout) -> None:
    """Write the mark, durably, unless the dataset was never staged. Raises FailedError if that fails."""
    if not layout.state.is_dir():
        return
    mark = Cancellation(secrets.token_hex(8), given())
    what = "the mark that stops a running controller"
    write_order(cancel_path(layout), dataset_documents.CANCELLATION.to_json(mark), what, "cancel")


def clear_cancel(layout: DatasetLayout) -> None:
    """Remove the mark. List calls it when it begins a new run. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        cancel_path(layout).unlink()


def cancel_ordered_at(layout: DatasetLayout) -> float:
    """Return when the dataset was last cancelled, in seconds since the epoch; 0 without a readable mark."""
    return _read(layout).given.at


def _read(layout: DatasetLayout) -> Cancellation:
    try:
        return documents.load(dataset_documents.CANCELLATION, cancel_path(layout))
    except (OSError, ValueError):
        return Cancellation()


@dataclass(frozen=True)
class CancelMark:
    """A dataset's mark as one step sees it."""

    layout: DatasetLayout
    before: str  # the nonce of a mark that is older than the step and does not concern it, or ""

    @classmethod
    def of(cls, layout: DatasetLayout, step: str) -> CancelMark:
        """Decide whether an existing mark concerns the step. Call it when the step begins."""
        # In a workflow these steps follow a list, which removed any older mark.
        follows = step in CHANGES_AFTER_LIST and INVOCATION in os.environ
        return cls(layout, "" if follows else _read(layout).nonce)

    def said(self) -> str:
        """Return `by alice on login1 at 15:04:05` if the step is cancelled; else ""."""
        mark = _read(self.layout)
        if mark.nonce in ("", self.before):
            return ""
        return ordered_by(mark.given)


def refuse_cancelled(layout: DatasetLayout, step: str) -> None:
    """Raise CancelledError if the workflow of this step was cancelled."""
    if who := CancelMark.of(layout, step).said():
        raise cancelled(layout.dataset, step, who)


def cancelled(dataset: str, step: str, who: str) -> CancelledError:
    """Return the error of a step that obeys the mark."""
    hint = "what was done is kept; the same command goes on"
    return CancelledError(f"{step} was cancelled", where=dataset, why=who, hint=hint)


# The throttle `<run>/throttle.json`: how many elements of this run may work at once, set by `penstock limit
# DATASET --nodes N`.
#
# It applies to all further arrays and controllers of the run. Audits and repairs have their own throttles.


def order_throttle(run: RunLayout, at_once: int) -> None:
    """Write the throttle, durably. Raises as `write_order`."""
    mark = Throttle(at_once, given())
    what = "the throttle that a running controller obeys"
    write_order(run.throttle, dataset_documents.THROTTLE.to_json(mark), what, "call it")


def read_throttle(run: RunLayout) -> Throttle:
    """Return the run's throttle. If it cannot be read, an empty throttle: then the configuration decides."""
    try:
        return documents.load(dataset_documents.THROTTLE, run.throttle)
    except (OSError, ValueError):
        return Throttle()


def throttled_by(mark: Throttle) -> str:
    """Return `by alice on login1 at 15:04:05`."""
    return ordered_by(mark.given)


# `arrays.jsonl`: the job arrays that a run submitted, written durably before and after each submission.
#
# A controller may die after `sbatch` gave a job number, but before it noted that number. The next controller
# finds the array by its name, noted before. So no element is in two running arrays.


class ArrayBook:
    """`arrays.jsonl` of a run. Its writer holds the dataset's lock. Writes raise
    `safe_open.storage_error`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def intend(
        self,
        name: str,
        step: str,
        kind: str,
        indices: Sequence[int],
        cluster: str = "",
        *,
        workers: int,
        call: str,
        base: int = 0,
        time: int = 0,
        whole_nodes: bool | None = None,
        at_once: int = 0,
        spec_cores: int | None = None,
    ) -> ArrayLine:
        """Note, before the submission, an array of this name for the shards `indices`. `time` is its limit in
        seconds (0: none). Return the note."""
        line = ArrayLine(
            intent=name,
            step=step,
            kind=kind,
            indices=tuple(indices),
            workers=workers,
            call=call,
            base=base,
            cluster=cluster,
            by=asdict(holders.this_process("", step)),
            time=time,
            whole_nodes=whole_nodes,
            at_once=at_once,
            spec_cores=spec_cores,
        )
        self._append(line)
        return line

    def tried(self, name: str) -> None:
        """Note that an array is about to be submitted again, since `sbatch` gave no number."""
        intents = [line for line in self._lines() if line.intent == name]
        if intents:
            self._append(intents[-1])

    def submitted(self, name: str, array: str) -> None:
        """Note the job number `array` that the cluster gave the array `name`."""
        self._append(ArrayLine(submitted=name, array=array))

    def throttled(self, name: str, at_once: int) -> None:
        """Note that at most `at_once` elements of this array may run from now on."""
        self._append(ArrayLine(throttled=name, at_once=at_once))

    def exclude(self, node: str, step: str, why: str) -> None:
        """Note that no further array of the run goes to this node."""
        self._append(ArrayLine(excluded=node, step=step, why=why))

    def excluded(self, since: float = 0.0) -> Mapping[str, str]:
        """Return the nodes excluded after `since` (seconds since the epoch), with reasons. Raises as
        `open`."""
        lines = (line for line in self._lines() if line.excluded and line.at >= since)
        return {line.excluded: f"{line.step}: {line.why}" for line in lines}

    def ended(self, name: str, starts: Mapping[int, float] = NOTHING) -> None:
        """Note that no worker of this array is running any more, or that it was never submitted. `starts`:
        when the cluster last started each worker, in seconds since the epoch."""
        self._append(ArrayLine(ended=name, starts=tuple(starts.items())))

    def open(self, step: str | None = None) -> list[ArrayLine]:
        """Return the arrays that may have running elements. `step`: only the arrays of this step. Raises
        FailedError if the log is damaged, NewerFormatError."""
        return [s for s in self.all() if not s.over and (step is None or s.step == step)]

    def all(self) -> list[ArrayLine]:
        """Return all submitted or intended arrays, in order, each merged from its lines. Raises as `open`."""
        arrays: dict[str, ArrayLine] = {}
        for line in self._lines():
            if line.intent:
                arrays[line.intent] = line
            elif old := arrays.get(line.submitted):
                arrays[old.name] = old._replace(array=line.array, at=line.at)
            elif old := arrays.get(line.throttled):
                arrays[old.name] = old._replace(at_once=line.at_once)
            elif old := arrays.get(line.ended):
                arrays[old.name] = old._replace(ended=line.ended, starts=line.starts)
        return list(arrays.values())

    def began(self, step: str) -> float:
        """Return when the step's first array was noted; infinity if none was. Raises as `open`."""
        return min((line.at for line in self._lines() if line.intent and line.step == step), default=math.inf)

    def line(self, name: str) -> ArrayLine | None:
        """Return the array of this name. Raises as `open`."""
        return next((line for line in self._lines() if line.intent == name), None)

    @property
    def folder(self) -> Path:
        """The folder of the run, audit or repair whose arrays these are."""
        return self._path.parent

    def _append(self, line: ArrayLine) -> None:
        try:
            small_files.append_line(
                self._path, element_documents.ARRAY_LINE.to_json(line._replace(at=time.time()))
            )
        except OSError as error:
            raise storage_error(error, "cannot note an array", str(self._path)) from error

    def _lines(self) -> Iterator[ArrayLine]:
        try:
            content = small_files.read(self._path)
        except FileNotFoundError:
            return
        for line in content.splitlines():
            try:
                raw = typed_json.bounded_loads(line)
            except ValueError:
                # A crash cut the line off while it was appended: the step that it announced had not begun.
                continue
            try:
                yield element_documents.ARRAY_LINE.from_value(raw, self._path)
            except ValueError as error:
                raise FailedError(
                    "the notes about a run's arrays are damaged",
                    where=str(self._path),
                    why=str(error),
                    hint=STATE_ANEW,
                ) from error


def books(layout: DatasetLayout) -> list[ArrayBook]:
    """Return the books of every run, audit, repair and comparison of the dataset."""
    folders = (layout.runs, layout.audits, layout.state / REPAIRS, layout.adoptions)
    return [ArrayBook(book) for folder in folders for book in sorted(folder.glob("*/arrays.jsonl"))]
