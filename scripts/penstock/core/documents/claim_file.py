"""`claims/<number>.json`: a run that a dataset was claimed for."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping
from typing import NamedTuple

from penstock.core.documents import typed_json

FORMAT = 1


class ClaimFile(NamedTuple):
    """What the file says; `state.run_claims.RunClaim` is what the program knows."""

    run: str
    number: int
    by: Mapping[str, object] | None
    """The `list` that made it, as `locks.holder` describes processes."""
    controller: str


def to_json(claim: ClaimFile) -> dict[str, object]:
    return typed_json.to_json(claim, FORMAT)


def from_json(content: bytes, where: object) -> ClaimFile:
    """Of the file's bytes, `where` is its path. Raises NewerFormatError, and ValueError for anything
    else."""
    return typed_json.parse(ClaimFile, content, "a claim of a dataset", FORMAT, where)
