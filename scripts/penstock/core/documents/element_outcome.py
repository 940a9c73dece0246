"""`outcomes/<step>/<index>.json`: why an element, or a step that ran on a node, ended without a receipt."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.documents import typed_json

FORMAT = 1
"""Outcomes without a number are of format 1, too."""


@dataclass(frozen=True)
class ElementOutcome:
    """One attempt that did not do all of its shard."""

    attempt: str = ""
    host: str = ""
    exit_code: int = 0
    """The exit status; 0 where the outcome does not say."""
    retry: bool = True
    """Whether the same again may help."""
    error: str = ""
    """What ended the whole attempt; "" where single files failed."""
    stopped: str = ""
    """`time` (the end of its job was near) or `signal`; "" where it was not stopped."""
    progress: bool = False
    """Of a copy that was stopped: the journal records more rows than before."""
    failed: int = 0
    """Files that failed."""
    failures: Sequence[tuple[str, str]] = ()
    """Path and why; of many the first ones."""
    linked_failures: Sequence[tuple[str, str]] = ()
    """Those of `failures` that are linked from a release and are not as it states them."""
    split: Sequence[int] = ()
    """Rows of giants whose object changed while their parts were copied."""
    what: str = ""
    """Of a step that ran on a node: `error` in parts, for the command that waits; "" of elements."""
    where: str = ""
    why: str = ""
    hint: str = ""


def to_json(outcome: ElementOutcome) -> dict[str, object]:
    return typed_json.to_json(outcome, FORMAT)


def from_json(content: bytes, where: object) -> ElementOutcome:
    """Of the file's bytes, `where` is its path. Raises NewerFormatError, and ValueError for what is no
    outcome."""
    return typed_json.parse(ElementOutcome, content, "an element's outcome", FORMAT, where)
