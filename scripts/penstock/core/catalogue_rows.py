"""What `penstock releases`, `show`, `history`, `du` and `plan` print with `--json`, and what their screens
are made of. Pure.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self, TypedDict

from penstock.core.audit_documents import AuditShown
from penstock.core.estimates import Forecast, Work

# The rows that `penstock releases`, `show` and `history` print with `--json`, and the source of their
# tables.
#
# A key keeps its meaning for ever (docs/releases.md). Times are UTC, ISO 8601, ages are seconds, sizes are
# bytes. Unknown values are null, or empty.


class OwnerJson(TypedDict):
    """An account: its number, and its name on this machine, or ""."""

    uid: int
    user: str


class PinnedBy(TypedDict):
    """The account that pinned a release last, for a job."""

    by: str
    age: float  # seconds since then


class ReleaseRow(TypedDict):
    """A release of a dataset, as far as it can be read."""

    release: str
    path: str  # its `data` folder
    current: bool
    # As `gate` judges it: `published`, `held`, `damaged` (also by standing findings), `newer`, `unreadable`,
    # `foreign`.
    state: str
    problem: str  # why `state` is not `published`
    files: int | None
    bytes: int | None
    sealed: str | None
    age: float | None  # seconds since it was sealed
    source_grade: str  # the weakest of any file, by the seal
    storage_grade: str  # likewise
    base: str | None
    unchanged: int
    last_audit: AuditShown | None
    audit_age: float | None  # seconds since the last audit ended
    findings: Mapping[str, int]  # standing findings, by kind
    held_by: Sequence[str]  # what keeps it from being removed, in words
    pins_unopened: int  # further pins, counted by name: not known whether they are valid
    last_pin: PinnedBy | None


class StagingRow(TypedDict):
    """A hidden folder beside the releases."""

    name: str
    # `staging`, `repair`, `removing` (mark of a removal that begins), `removed` (its files are being
    # removed), `rehearsal`, `trial` (of the file system), or `other`.
    kind: str
    # `under way`, `left` (by an unfinished run), `taken back` (of a removal), or `unknown`: all that accounts
    # other than the owner see of a staging.
    state: str
    age: float | None  # seconds since the folder itself last changed


class DatasetRow(TypedDict):
    """A dataset below a root, its newest releases first."""

    dataset: str
    path: str
    owner: OwnerJson | None
    current: str | None
    state: str  # of the release that `current` names; `nothing published` without one
    problem: str  # why the dataset, or its `current`, cannot be read; or ""
    pause: str  # author and text of a PAUSE at the root; or ""
    hold: str  # what a HOLD at the root does not stop, although its author may expect it; or ""
    releases: Sequence[ReleaseRow]
    # Sum over the releases with a readable seal, as `bytes`. A file that releases share counts in each.
    files: int
    bytes: int
    stagings: Sequence[StagingRow]


class GradeAmount(TypedDict):
    grade: str
    files: int
    bytes: int


class ShownManifest(TypedDict):
    """A manifest beside a release's data."""

    name: str
    bytes: int | None  # on disk now; null: missing or unreadable
    sha256: str  # as sealed


class HistoryRow(TypedDict):
    """A line of `history.jsonl` or `audits.jsonl`."""

    at: str
    event: str
    release: str
    by: str
    host: str
    text: str  # the event in words; of an unknown event its other fields
    known: bool  # whether this version knows the event and the line's format
    line: Mapping[str, object]  # the line's own fields (docs/formats.md)


class History(TypedDict):
    """The lines, newest first."""

    dataset: str
    path: str
    problem: str  # why they cannot be read
    lines: Sequence[HistoryRow]
    damaged: int  # skipped lines that are no JSON, as a crash leaves them


class ReleaseShown(TypedDict):
    """A release in detail: its row, and what its seal, verdict and history say."""

    dataset: str
    row: ReleaseRow
    owner: OwnerJson | None
    seal: Mapping[str, object] | None  # the fields of `release.json` (docs/formats.md); null: unreadable
    seal_digest: str
    # `same`, `differs`, `none` (no line names it), or `unreadable` (the history is its owner's alone)
    seal_in_history: str
    signature: str  # whether the seal's signature holds, in words; "": none exists and none is required
    source_evidence: Sequence[GradeAmount]
    storage_evidence: Sequence[GradeAmount]
    manifests: Sequence[ShownManifest]
    # since when every byte was read back and compared, by verify or audits; null: never
    read_back: str | None
    verdict: Mapping[str, object] | None  # `audits/<release>.json` (docs/formats.md); null: never audited
    advice: str  # what to do about standing findings; or ""
    history: Sequence[HistoryRow]
    audits: Sequence[HistoryRow]  # lines of `audits.jsonl` about the release; for its owner alone


class DiffRow(NamedTuple):
    """A file that differs between two releases."""

    kind: str
    path: bytes  # of a renamed file the new one
    was: bytes | None  # the former path of a renamed file
    bytes: int | None  # None: the file is gone
    bytes_before: int | None


class DiffCount(NamedTuple):
    """Files of one kind of difference."""

    files: int = 0
    bytes: int = 0  # in the later release; of removed files in the former
    bytes_before: int = 0  # in the former release; 0 of added files

    def __add__(self, other: object) -> Self:
        assert isinstance(other, DiffCount)
        return type(self)(*(ours + theirs for ours, theirs in zip(self, other, strict=True)))


class DiffResult(TypedDict):
    """The result of `penstock diff`: the last line of `--json`."""

    kind: str  # `summary`
    dataset: str
    before: str  # a release
    after: str  # a release; "": the source
    source: Sequence[str]  # URLs of the source listed now; []: two releases were compared
    equal: bool  # every file is known to be the same
    # by kind: `unchanged`, `changed`, `unproven`, `renamed`, `removed`, `added`
    counts: Mapping[str, DiffCount]
    permissions: str  # how modes, group, owner and ACL differ; or "". Does not count as a difference of files


# What `penstock du` prints with `--json`, a line a dataset (docs/releases.md).
#
# Bytes are allocated (`st_blocks`); files are inodes but folders. Each sum counts an inode once.


class OwnedUse(TypedDict):
    """What counts against the quotas of a user and a group."""

    uid: int
    user: str
    gid: int
    group: str
    files: int  # with folders, as in quotas
    bytes: int


class AreaUse(TypedDict):
    """A release, or another part of the dataset's folder."""

    kind: str  # `release`, `state`, `other`, or that of a hidden folder (`StagingRow`)
    name: str
    state: str  # of a release `current` or ""; of a hidden folder as in `StagingRow`
    files: int
    folders: int
    bytes: int  # with those shared with other areas
    unique_files: int  # that its removal alone would free
    unique_bytes: int  # likewise
    frees: Sequence[OwnedUse]  # the same by user and group, with folders
    project: int | None  # id of its project quota, 0: none; null: unreadable
    pool: str  # the storage pool; "": not known
    unreadable: int  # folders and files that this account could not read: not in the figures


class DiskUse(TypedDict):
    dataset: str
    path: str
    problem: str
    areas: Sequence[AreaUse]
    shared_files: int  # in several areas, by hard links: counted once
    shared_bytes: int
    outside_files: int  # with names outside of the dataset, too: no removal here frees them
    outside_bytes: int
    files: int
    folders: int
    bytes: int  # all, each inode once
    owners: Sequence[OwnedUse]  # all by user and group, each inode once, with folders
    last_pins: Mapping[str, PinnedBy]  # by release
    seconds: float


class OtherSteps(NamedTuple):
    """Time for the steps after a run's copy, by the newest published run."""

    release: str
    seconds: float  # of permissions, verify and publish


class SizeClass(NamedTuple):
    """Files of a class of sizes."""

    most: int | None  # bytes of the largest possible file; None: giants
    files: int
    bytes: int


class Explanation(NamedTuple):
    """What a run would do. Sizes are bytes, times seconds."""

    dataset: str  # "": all figures are assumed
    files: int
    bytes: int | None  # None: neither the source nor the user gave sizes
    copied: Work  # what the source sends; other files are on the target already
    nodes: int  # elements at once: on SLURM each has its own node
    forecast: Forecast  # of the copy
    price: float | None = None  # in the currency of the given prices; None: no prices
    current: str = ""  # the release that it is compared with; "": none
    changes: Mapping[str, DiffCount] = {}  # differences from that release, by kind (`difference.KINDS`)
    classes: Sequence[SizeClass] = ()  # of all files; empty: sizes were assumed
    shards: int | None = None
    other_steps: OtherSteps | None = None  # None: no run of the dataset has shown their time
    requests: Mapping[str, int] = {}  # the fewest `get` and `list` requests; empty: not an object store
    queue: Sequence[str] = ()  # when elements would start, by the cluster
    # what the run needs of the target, its quotas and storage targets, and what they have
    space: Sequence[str] = ()
