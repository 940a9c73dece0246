"""`claims/<step>/<index>.<generation>.json`: which worker does a shard. Pure; `jobs.shard_claims` makes and
reads the file."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from typing import NamedTuple

from penstock.core.documents.typed_json import Document


class ShardClaim(NamedTuple):
    """A worker took the shard; of several claims of a shard the one with the highest generation counts."""

    worker: str = ""
    """The name of the attempt, unique to this claim."""
    array: str = ""
    """The name of the array of workers (`ArraySpec.name`); "" where there is none."""
    number: int = 0
    """The worker's index, over all arrays of the step."""
    call: str = ""
    """The command for which the array was submitted."""
    host: str = ""
    restarts: int = 0
    """How often the scheduler had started the worker again: claims of fewer are of a process that is gone."""
    charged: int = 0
    """How many earlier claims of the same command failed, so that the shard was to blame."""


SHARD_CLAIM = Document(ShardClaim, "a claim of a shard")
