"""One line of `arrays.jsonl`: what a controller (the process that submits the job arrays of a run) was about
to do with an array, or did. Pure; `dataset.submission_log` reads and writes the file."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from penstock.core.documents.typed_json import LEFT_OUT, Document


class ArrayLine(NamedTuple):
    """Exactly one of the first five is set: the array's name, or a node's. Of all lines about an array
    `submission_log.ArrayBook.all` makes one: that of its submission, with what the later ones say."""

    intent: Annotated[str, LEFT_OUT] = ""
    """The array is about to be submitted: with `step`, `kind`, `indices`, `workers`, `call`, `base`, `time`,
    `at_once`, `cluster`, `by`, `whole_nodes` and `spec_cores`."""
    submitted: Annotated[str, LEFT_OUT] = ""
    """It was, as `array`."""
    throttled: Annotated[str, LEFT_OUT] = ""
    """No more than `at_once` of its workers are to run at once."""
    ended: Annotated[str, LEFT_OUT] = ""
    """None of its workers lives any more, or it was never submitted; with `starts`."""
    excluded: Annotated[str, LEFT_OUT] = ""
    """No further array of the run goes to this node: elements of `step` failed there, as `why` says."""
    step: Annotated[str, LEFT_OUT] = ""
    kind: Annotated[str, LEFT_OUT] = ""
    """The cluster's: `slurm` or `local`."""
    indices: Annotated[Sequence[int], LEFT_OUT] = ()
    """The shards that were open: its workers divide them by claims (`jobs.shard_claims`)."""
    workers: Annotated[int, LEFT_OUT] = 0
    """How many elements it has; 0: it is of an older version, whose elements each did one shard."""
    call: Annotated[str, LEFT_OUT] = ""
    """The command that submitted it: what failed under another one is tried again."""
    base: Annotated[int, LEFT_OUT] = 0
    """The number of its first worker, over all arrays of the step (`ArraySpec.base`)."""
    cluster: Annotated[str, LEFT_OUT] = ""
    """The cluster's name; "" of a local array."""
    by: Annotated[Mapping[str, object] | None, LEFT_OUT] = None
    """The controller, as `dataset.holder` describes processes."""
    array: Annotated[str, LEFT_OUT] = ""
    """Its id; "" while only the intent to submit it is known."""
    at_once: Annotated[int, LEFT_OUT] = 0
    """How many of its workers may run at once; 0: not known."""
    time: Annotated[int, LEFT_OUT] = 0
    """The time limit that was asked for, in seconds; 0: none."""
    why: Annotated[str, LEFT_OUT] = ""
    at: Annotated[float, LEFT_OUT] = 0.0
    """Seconds since the epoch."""
    whole_nodes: Annotated[bool | None, LEFT_OUT] = None
    """Whether each of its elements asked for a node of its own; None: the cluster has none."""
    spec_cores: Annotated[int | None, LEFT_OUT] = None
    """The core-spec that each of its elements asked for; None: none."""
    starts: Annotated[Sequence[tuple[int, float]], LEFT_OUT] = ()
    """When the cluster last started these workers, by its own clock, as far as it was seen."""

    @property
    def name(self) -> str:
        """Of the array that was to be submitted."""
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
