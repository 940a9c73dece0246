"""`receipts/<step>/<index>.json`: an element did all of its shard, and how."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.core.documents.typed_json import Document
from penstock.core.slow_objects import SlowObject


@dataclass(frozen=True)
class ElementReceipt:
    """The report of the attempt that finished the shard. Times are seconds since the epoch, sizes bytes."""

    step: str = ""
    index: int = 0
    run: str = ""
    shard: str = ""  # `sha256:<hex>` of the shard's file: the receipt is void under another plan
    rows: int = 0
    files: int = 0  # all finished rows, a giant's parts one by one; `bytes` likewise
    bytes: int = 0
    done_files: int = 0  # rows of this attempt, without earlier attempts'; `done_bytes` likewise
    done_bytes: int = 0
    linked: int = 0  # rows linked from a release or taken over from another run's staging
    linked_bytes: int = 0  # of rows linked in bulk, as `link_seconds`
    link_seconds: float = 0.0  # of linking in bulk, before the copy
    taken: int = 0  # part of `linked` taken over from another run's staging
    retries: int = 0
    seconds: float = 0.0  # of the engine
    workers: int = 0
    streams: int = 0
    durability: str = ""
    fsync_ends: str = ""  # of copy: where an fsync ended on that node, if not on the servers' disks
    grades: Mapping[str, int] = field(default_factory=dict)  # of verify: rows by storage grade
    # of verify and audit: rows by how they were read back
    methods: Mapping[str, int] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    why: str = ""  # why this many workers and streams
    attempt: str = ""
    host: str = ""
    cpus: int = 0  # granted by the node: the engine's size follows from them
    started: float = 0.0
    ended: float = 0.0
    samples: Sequence[tuple[float, int, int]] = ()  # (seconds since `started`, files, bytes), ascending
    amended: int = 0  # of copy and verify: files of another version than the listed one
    gone: int = 0  # of copy and verify: files that left the source
    copied_by: str = ""  # the attempt of copy that verify read back
    records: str = ""  # `sha256:<hex>` of the records that verify wrote
    left_out: int = 0  # of verify: rows without a record, since their objects are gone
    # of verify: linked rows not read back, and their bytes; they count in `files` and `bytes`
    carried: tuple[int, int] = (0, 0)
    findings: int = 0  # of audit: damaged rows; of repair: files that could not be fetched
    seen: str = ""  # `sha256:<hex>` of what an audit's element saw, or a repair's fetched
    # retries by known cause: `HTTP 503`, `ECONNRESET`, or an error's sentence
    retried: Mapping[str, int] = field(default_factory=dict)
    slowest: Sequence[SlowObject] = ()


ELEMENT_RECEIPT = Document(ElementReceipt, "an element's receipt")
