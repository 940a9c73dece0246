"""`outcomes/<step>/<index>.json`: why an element, or a step that ran on a node, ended without a receipt."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from penstock.core.documents.json_object import JsonObject
from penstock.core.format_versions import refuse_newer

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    lists = {
        "failures": [list(one) for one in outcome.failures],
        "linked_failures": [list(one) for one in outcome.linked_failures],
        "split": list(outcome.split),
    }
    return {"format": FORMAT, **asdict(outcome), **lists}


def from_json(content: bytes, where: object) -> ElementOutcome:
    """Of the file's bytes, `where` is its path. Raises NewerFormatError, and ValueError for what is no
    outcome."""
    raw = JsonObject.parse(content)
    refuse_newer("an element's outcome", raw.number("format"), FORMAT, where)
    return ElementOutcome(
        attempt=raw.text("attempt"),
        host=raw.text("host"),
        exit_code=raw.number("exit_code"),
        retry=raw.flag("retry", default=True),
        error=raw.text("error"),
        stopped=raw.text("stopped"),
        progress=raw.flag("progress"),
        failed=raw.number("failed"),
        failures=raw.pairs("failures"),
        linked_failures=raw.pairs("linked_failures"),
        split=raw.numbers("split"),
        what=raw.text("what"),
        where=raw.text("where"),
        why=raw.text("why"),
        hint=raw.text("hint"),
    )
