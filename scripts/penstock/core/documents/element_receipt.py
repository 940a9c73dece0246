"""`receipts/<step>/<index>.json`: that an element (the process that does one shard of a step) did all of it,
and how. Pure; `dataset.receipts` reads and writes the file."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.core.documents.typed_json import Document
from penstock.core.slow_objects import SlowObject


@dataclass(frozen=True)
class ElementReceipt:
    """What the attempt reports that finished the shard. Times are seconds since the epoch, sizes bytes."""

    step: str = ""
    index: int = 0
    run: str = ""
    shard: str = ""
    """`sha256:<hex>` of the shard's file: with another plan the receipt does not hold."""
    rows: int = 0
    files: int = 0
    """All rows that are done, a giant's parts one by one; `bytes` likewise."""
    bytes: int = 0
    done_files: int = 0
    """Rows that this attempt did; earlier attempts did the others. `done_bytes` likewise."""
    done_bytes: int = 0
    linked: int = 0
    """Rows linked from a release or taken over from another run's staging."""
    linked_bytes: int = 0
    """Of the rows that were linked many at a time, as `link_seconds`."""
    link_seconds: float = 0.0
    """What linking many of them took, before anything was copied."""
    taken: int = 0
    """Those of `linked` that were taken over from another run's staging."""
    retries: int = 0
    seconds: float = 0.0
    """Of the engine."""
    workers: int = 0
    streams: int = 0
    durability: str = ""
    fsync_ends: str = ""
    """Where an fsync ended on that node, if not on the servers' disks; of copy."""
    grades: Mapping[str, int] = field(default_factory=dict)
    """Rows by storage grade; of verify."""
    methods: Mapping[str, int] = field(default_factory=dict)
    """Rows by how they were read back; of verify and audit."""
    warnings: Sequence[str] = ()
    why: str = ""
    """Why this many workers and streams."""
    attempt: str = ""
    host: str = ""
    cpus: int = 0
    """That the node let the element use: the engine sized itself for them."""
    started: float = 0.0
    ended: float = 0.0
    samples: Sequence[tuple[float, int, int]] = ()
    """(seconds since `started`, files, bytes), ascending."""
    amended: int = 0
    """Files that are of another version than the listed one; of copy and verify."""
    gone: int = 0
    """Files that left the source; of copy and verify."""
    copied_by: str = ""
    """The attempt of copy that verify read back."""
    records: str = ""
    """`sha256:<hex>` of the records that verify wrote."""
    left_out: int = 0
    """Rows of the shard without a record: their objects are gone; of verify."""
    carried: tuple[int, int] = (0, 0)
    """Linked rows that were not read back, and their bytes: they count in `files` and `bytes`, too; of
    verify."""
    findings: int = 0
    """Rows that are damaged, of audit; files that could not be fetched, of repair."""
    seen: str = ""
    """`sha256:<hex>` of what an audit's element saw, or what a repair's fetched."""
    retried: Mapping[str, int] = field(default_factory=dict)
    """Those of the retries whose cause is known, by it: `HTTP 503`, `ECONNRESET`, or an error's sentence."""
    slowest: Sequence[SlowObject] = ()


ELEMENT_RECEIPT = Document(ElementReceipt, "an element's receipt")
