"""`claims/<step>/<index>.<generation>.json`: the worker that does a shard."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from typing import NamedTuple

from penstock.core.documents.typed_json import Document


class ShardClaim(NamedTuple):
    """A worker took the shard; the claim of the highest generation counts."""

    worker: str = ""  # name of the attempt, unique to this claim
    array: str = ""  # name of the workers' array (`ArraySpec.name`); "": none
    number: int = 0  # the worker's index, over all arrays of the step
    call: str = ""  # the command that submitted the array
    host: str = ""
    restarts: int = 0  # earlier starts by the scheduler: a claim with fewer is of a dead process
    charged: int = 0  # earlier claims of the same command whose failure was the shard's fault


SHARD_CLAIM = Document(ShardClaim, "a claim of a shard")
