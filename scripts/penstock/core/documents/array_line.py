"""One line of `arrays.jsonl`: what a controller was about to do with a job array, or did."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.core.documents import typed_json

FORMAT = 1


class ArrayLine(NamedTuple):
    """Exactly one of the first five is set: the array's name, or a node's."""

    intent: str = ""
    """The array is about to be submitted: with `step`, `kind`, `indices`, `base`, `time`, `at_once`,
    `cluster`, `by`, `whole_nodes` and `spec_cores`."""
    submitted: str = ""
    """It was, as `array`."""
    throttled: str = ""
    """No more than `at_once` of its elements are to run at once."""
    ended: str = ""
    """None of its elements lives any more, or it was never submitted; with `starts`."""
    excluded: str = ""
    """No further array of the run goes to this node: elements of `step` failed there, as `why` says."""
    step: str = ""
    kind: str = ""
    """The cluster's: `slurm` or `local`."""
    indices: Sequence[int] = ()
    """The elements' indices. The cluster numbers them without `base`."""
    base: int = 0
    cluster: str = ""
    by: Mapping[str, object] | None = None
    """The controller, as `locks.holder` describes processes."""
    array: str = ""
    at_once: int = 0
    time: int = 0
    """The time limit that was asked for, in seconds; 0: none."""
    why: str = ""
    at: float = 0.0
    """Seconds since the epoch."""
    whole_nodes: bool | None = None
    """Whether each of its elements asked for a node of its own; None: the cluster has none."""
    spec_cores: int | None = None
    """The core-spec that each of its elements asked for; None: none."""
    starts: Sequence[tuple[int, float]] = ()
    """When the cluster last started the elements of these shards, by its own clock, as far as it was seen."""


def to_json(line: ArrayLine) -> dict[str, object]:
    said = {name: value for name, value in line._asdict().items() if value != ArrayLine._field_defaults[name]}
    return {**said, "format": FORMAT}


def from_json(raw: object, where: object) -> ArrayLine:
    """Of a line that is parsed already, `where` is the file's path. Raises NewerFormatError, and ValueError
    for what is no such line."""
    return typed_json.read(ArrayLine, typed_json.numbered(raw, "a line about an array", FORMAT, where))
