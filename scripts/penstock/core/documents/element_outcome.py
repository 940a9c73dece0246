"""`outcomes/<step>/<index>.<generation>.json`: why an element (the process that does one shard of a step)
ended without a receipt. Pure; `dataset.outcomes` reads and writes the file."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.documents.typed_json import Document


class ElementOutcome(NamedTuple):
    """One attempt that did not do all of its shard."""

    attempt: str = ""
    generation: int = 0
    """Of the claim under which it was made."""
    free: bool = False
    """Whether the end uses up no retry of the shard."""
    host: str = ""
    exit_code: int = 0
    """The exit status; 0 where the outcome does not say."""
    retry: bool = True
    """Whether a further attempt may succeed."""
    error: str = ""
    """What ended the whole attempt; "" where single files failed."""
    stopped: str = ""
    """`time` (the end of its job was near) or `signal`; "" where it was not stopped."""
    progress: bool = False
    """Of a copy that was stopped: the journal records more rows than before."""
    paused: bool = False
    """PAUSE stood at the root while it worked: that its time ended is no failure."""
    failed: int = 0
    """Files that failed."""
    failures: Sequence[tuple[str, str]] = ()
    """Path and reason of the first failures; `failed` counts all."""
    linked_failures: Sequence[tuple[str, str]] = ()
    """Those of `failures` whose file is linked from a release, and is not as that release states it."""
    split: Sequence[int] = ()
    """Rows of the shard that are parts of giants whose object changed during the copy: the copy step has such
    giants copied whole."""


ELEMENT_OUTCOME = Document(ElementOutcome, "an element's outcome")
