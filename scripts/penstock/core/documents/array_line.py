"""One line of `arrays.jsonl`: what a controller was about to do with a job array, or did."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.core.documents import typed_json
from penstock.core.format_versions import refuse_newer

FORMAT = 2
"""Lines without a number are of format 1, too. Only lines with a `base` are of format 2: a version that does
not know it would take other elements for those of the array."""


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
    """The controller, as `locks.holder` describes processes; None of versions that did not note it."""
    array: str = ""
    at_once: int = 0
    time: int = 0
    """The time limit that was asked for, in seconds; 0: none, or of a version that did not note it."""
    why: str = ""
    at: float = 0.0
    """Seconds since the epoch."""
    whole_nodes: bool | None = None
    """Whether each of its elements asked for a node of its own; None of versions that did not note it."""
    spec_cores: int | None = None
    """The core-spec that each of its elements asked for; None: none, or of a version that did not note it."""
    starts: Sequence[tuple[int, float]] = ()
    """When the cluster last started the elements of these shards, by its own clock, as far as it was seen."""


def to_json(line: ArrayLine) -> dict[str, object]:
    said = {name: value for name, value in line._asdict().items() if value != ArrayLine._field_defaults[name]}
    return {**said, "format": FORMAT if line.base else 1}


def from_json(raw: object, where: object) -> ArrayLine:
    """Of a line that is parsed already, `where` is the file's path. Raises NewerFormatError, and ValueError
    for what is no such line."""
    refuse_newer("a line about an array", raw.get("format") if isinstance(raw, dict) else None, FORMAT, where)
    return typed_json.read(ArrayLine, raw)
