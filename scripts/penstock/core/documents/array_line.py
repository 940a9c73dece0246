"""A line of `arrays.jsonl`: what a run's controller did, or was about to do, with a job array."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from penstock.core.documents.typed_json import LEFT_OUT, Document


class ArrayLine(NamedTuple):
    """Exactly one of the first five fields is set: the array's name, or a node's.
    `submission_log.ArrayBook.all` merges the lines of an array into that of its submission."""

    # the array is about to be submitted, with all fields from `step` to `spec_cores`
    intent: Annotated[str, LEFT_OUT] = ""
    submitted: Annotated[str, LEFT_OUT] = ""  # it was, as `array`
    throttled: Annotated[str, LEFT_OUT] = ""  # at most `at_once` of its workers are to run at once
    # none of its workers lives any more, or it was never submitted; with `starts`
    ended: Annotated[str, LEFT_OUT] = ""
    # no further array of the run goes to this node: elements of `step` failed there, for the reason in `why`
    excluded: Annotated[str, LEFT_OUT] = ""
    step: Annotated[str, LEFT_OUT] = ""
    kind: Annotated[str, LEFT_OUT] = ""  # of the cluster: `slurm` or `local`
    # the open shards: its workers divide them by claims (`jobs.shard_claims`)
    indices: Annotated[Sequence[int], LEFT_OUT] = ()
    # number of elements; 0: of an older version, with a shard for each element
    workers: Annotated[int, LEFT_OUT] = 0
    call: Annotated[str, LEFT_OUT] = ""  # the submitting command: failures under another one are retried
    # number of its first worker, over all arrays of the step (`ArraySpec.base`)
    base: Annotated[int, LEFT_OUT] = 0
    cluster: Annotated[str, LEFT_OUT] = ""  # the cluster's name; "": a local array
    # the controller, as `dataset.holder` describes processes
    by: Annotated[Mapping[str, object] | None, LEFT_OUT] = None
    array: Annotated[str, LEFT_OUT] = ""  # its id; "": only the intent is known
    at_once: Annotated[int, LEFT_OUT] = 0  # workers that may run at once; 0: not known
    time: Annotated[int, LEFT_OUT] = 0  # requested time limit in seconds; 0: none
    why: Annotated[str, LEFT_OUT] = ""
    at: Annotated[float, LEFT_OUT] = 0.0  # seconds since the epoch
    # each element requested a whole node; None: the cluster has no nodes
    whole_nodes: Annotated[bool | None, LEFT_OUT] = None
    spec_cores: Annotated[int | None, LEFT_OUT] = None  # core-spec that each element requested; None: none
    # last known start of these workers, by the cluster's clock
    starts: Annotated[Sequence[tuple[int, float]], LEFT_OUT] = ()

    @property
    def name(self) -> str:
        """Of the array to be submitted."""
        return self.intent

    @property
    def over(self) -> bool:
        """None of its elements lives any more, or it was never submitted."""
        return bool(self.ended)

    @property
    def numbers(self) -> list[int]:
        """Its elements as the cluster numbers them."""
        return list(range(self.workers)) or [index - self.base for index in self.indices]


ARRAY_LINE = Document(ArrayLine, "a line about an array")
