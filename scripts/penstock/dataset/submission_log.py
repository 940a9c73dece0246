"""`arrays.jsonl`: the job arrays that a run submitted, written durably before and after each submission.

A controller may die after `sbatch` gave a job number, but before it noted that number. The next controller
finds the array by its name, noted before. So no element is in two running arrays.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.core import element_documents, typed_json
from penstock.core.element_documents import ArrayLine
from penstock.core.errors import STATE_ANEW, FailedError
from penstock.core.layout import REPAIRS
from penstock.core.typed_json import NOTHING
from penstock.dataset import holder as holders
from penstock.fs import small_files
from penstock.fs.safe_open import storage_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.core.layout import DatasetLayout


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
