"""`outcomes/<step>/<index>.<generation>.json`: why an element ended without a receipt."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.documents.typed_json import Document


class ElementOutcome(NamedTuple):
    """An attempt that did not finish its shard."""

    attempt: str = ""
    generation: int = 0  # of its claim
    free: bool = False  # uses up no retry of the shard
    host: str = ""
    exit_code: int = 0  # 0: not stated
    retry: bool = True  # a further attempt may succeed
    error: str = ""  # what ended the whole attempt; "": single files failed
    stopped: str = ""  # `time` (the end of its job was near) or `signal`; "": not stopped
    progress: bool = False  # of a stopped copy: the journal records more rows than before
    paused: bool = False  # PAUSE stood at the root during the work: that its time ended is no failure
    failed: int = 0  # files that failed
    failures: Sequence[tuple[str, str]] = ()  # path and reason of the first failures; `failed` counts all
    # part of `failures` whose linked file is not as its release states
    linked_failures: Sequence[tuple[str, str]] = ()
    # Rows that are parts of giants whose object changed during the copy: the copy step has such giants copied
    # whole.
    split: Sequence[int] = ()


ELEMENT_OUTCOME = Document(ElementOutcome, "an element's outcome")
