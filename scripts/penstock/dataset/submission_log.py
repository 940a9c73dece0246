"""Which job arrays a run submitted: written down before and after each submission, durably, in
`arrays.jsonl`. Touches that file alone; the job control of a step (`jobs`) writes it.

An element is one index of an array: the process that does one shard. A controller that dies between
`sbatch`'s answer and its own note finds the array again by the name that it wrote down first, so one element
is never given to two live arrays.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.core.documents import array_line, bounded_json
from penstock.core.documents.array_line import ArrayLine
from penstock.core.documents.typed_json import NOTHING
from penstock.core.errors import STATE_ANEW, FailedError
from penstock.core.layout import REPAIRS
from penstock.dataset import holder as holders
from penstock.fs import durable, plain_files
from penstock.fs.errno_map import storage_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.core.layout import DatasetLayout


class ArrayBook:
    """`arrays.jsonl` of a run. One writer: the holder of the dataset's lock."""

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
    ) -> None:
        """An array of this name and so many workers is about to be submitted, for the shards `indices`;
        `time` is its limit in seconds (0: none). To be called before the submission. All that write raise by
        `errno_map.storage_error`."""
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

    def tried(self, name: str) -> None:
        """The array of this name is about to be submitted again, since the first try had no answer."""
        intents = [line for line in self._lines() if line.intent == name]
        if intents:
            self._append(intents[-1])

    def submitted(self, name: str, array: str) -> None:
        """The cluster answered: `array` is the number that it gave."""
        self._append(ArrayLine(submitted=name, array=array))

    def throttled(self, name: str, at_once: int) -> None:
        """No more than `at_once` elements of this array are to run at once from now on."""
        self._append(ArrayLine(throttled=name, at_once=at_once))

    def exclude(self, node: str, step: str, why: str) -> None:
        """No further array of the run goes to this node."""
        self._append(ArrayLine(excluded=node, step=step, why=why))

    def excluded(self, since: float = 0.0) -> Mapping[str, str]:
        """The nodes that were left out of further arrays after this moment, in seconds since the epoch: which
        elements of which step failed there, for people. Raises as `open`."""
        lines = (line for line in self._lines() if line.excluded and line.at >= since)
        return {line.excluded: f"{line.step}: {line.why}" for line in lines}

    def ended(self, name: str, starts: Mapping[int, float] = NOTHING) -> None:
        """No worker of this array lives any more, or it was never submitted. `starts`: when the cluster last
        started the workers of these numbers, in seconds since the epoch."""
        self._append(ArrayLine(ended=name, starts=tuple(starts.items())))

    def open(self, step: str | None = None) -> list[ArrayLine]:
        """Arrays (of one step, or of all) that may have live elements. Raises FailedError where the log
        cannot be understood, NewerFormatError."""
        return [s for s in self.all() if not s.over and (step is None or s.step == step)]

    def all(self) -> list[ArrayLine]:
        """Every array that was submitted, or was about to be, in that order: of each what all its
        lines say. Raises as `open`."""
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
        """When the step's first array was about to be submitted; inf: none was. Raises as `open`."""
        return min((line.at for line in self._lines() if line.intent and line.step == step), default=math.inf)

    def line(self, name: str) -> ArrayLine | None:
        """The submission of this name. Raises NewerFormatError, FailedError."""
        return next((line for line in self._lines() if line.intent == name), None)

    @property
    def folder(self) -> Path:
        """The folder of the run, audit or repair whose arrays these are."""
        return self._path.parent

    def _append(self, line: ArrayLine) -> None:
        try:
            durable.append_line(self._path, array_line.ARRAY_LINE.to_json(line._replace(at=time.time())))
        except OSError as error:
            raise storage_error(error, "cannot note an array", str(self._path)) from error

    def _lines(self) -> Iterator[ArrayLine]:
        try:
            content = plain_files.read(self._path)
        except FileNotFoundError:
            return
        for line in content.splitlines():
            try:
                raw = bounded_json.loads(line)
            except ValueError:
                # Torn by a crash while it was appended: what it announced had not begun.
                continue
            try:
                yield array_line.ARRAY_LINE.from_value(raw, self._path)
            except ValueError as error:
                raise FailedError(
                    "the notes about a run's arrays are damaged",
                    where=str(self._path),
                    why=str(error),
                    hint=STATE_ANEW,
                ) from error


def books(layout: DatasetLayout) -> list[ArrayBook]:
    """The books of every run, audit, repair and comparison of the dataset."""
    folders = (layout.runs, layout.audits, layout.state / REPAIRS, layout.adoptions)
    return [ArrayBook(book) for folder in folders for book in sorted(folder.glob("*/arrays.jsonl"))]
