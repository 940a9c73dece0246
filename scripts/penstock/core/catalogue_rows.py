"""The rows that `penstock releases`, `show`, `history`, `du` and `plan` print with `--json`, and from which
their screens are made. Pure.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self, TypedDict

from penstock.core.estimates import Forecast, Work
from penstock.core.findings import AuditShown

# The rows of `penstock releases`, `show` and `history`.
#
# A key keeps its meaning for ever (docs/releases.md). Times are UTC, ISO 8601, ages are seconds, sizes are
# bytes. Unknown values are null, or empty.


class OwnerJson(TypedDict):
    """An account's number, and its name on this machine, or "" if it has no name here."""

    uid: int
    user: str


class PinnedBy(TypedDict):
    """The account whose job pinned a release last."""

    by: str
    age: float  # seconds since that pin


class ReleaseRow(TypedDict):
    """A release of a dataset, as far as this account can read it."""

    release: str
    path: str  # the release's `data` folder
    current: bool
    # The release's state as `gate` judges it: `published`, `held`, `damaged` (also because of standing
    # findings), `newer`, `unreadable`, `foreign`.
    state: str
    problem: str  # why `state` is not `published`
    files: int | None
    bytes: int | None
    sealed: str | None
    age: float | None  # seconds since the release was sealed
    source_grade: str  # the weakest source grade of any file, according to the seal
    storage_grade: str  # the weakest storage grade of any file, according to the seal
    base: str | None
    unchanged: int
    last_audit: AuditShown | None
    audit_age: float | None  # seconds since the last audit ended
    findings: Mapping[str, int]  # standing findings, by kind
    held_by: Sequence[str]  # reasons, in words, why the release cannot be removed
    pins_unopened: int  # further pins, whose files were not opened, so that they may be invalid
    last_pin: PinnedBy | None


class StagingRow(TypedDict):
    """A hidden folder beside the releases."""

    name: str
    # `staging`, `repair`, `removing` (mark of a removal that begins), `removed` (its files are being
    # removed), `rehearsal`, `trial` (of the file system), or `other`.
    kind: str
    # `under way`, `left` (by an unfinished run), `taken back` (for a removal), or `unknown`, which is all
    # that accounts other than the owner see of a staging.
    state: str
    age: float | None  # seconds since the folder itself last changed


class DatasetRow(TypedDict):
    """A dataset below a root, its newest releases first."""

    dataset: str
    path: str
    owner: OwnerJson | None
    current: str | None
    state: str  # state of the release that `current` leads to; `nothing published` if there is none
    problem: str  # why the dataset, or its `current`, cannot be read; or ""
    pause: str  # author and text of a PAUSE file at the root, or ""
    hold: str  # what a HOLD file at the root does not stop, although its author may expect so; or ""
    releases: Sequence[ReleaseRow]
    # Sum over the releases with a readable seal, as is `bytes`. A shared file counts in each release.
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
    bytes: int | None  # present size; null if the manifest is missing or unreadable
    sha256: str  # digest that the seal states


class HistoryRow(TypedDict):
    """A line of `history.jsonl` or `audits.jsonl`."""

    at: str
    event: str
    release: str
    by: str
    host: str
    text: str  # the event in words, or the other fields of an unknown event
    known: bool  # whether this version knows the event and the line's format
    line: Mapping[str, object]  # the line's own fields (docs/formats.md)


class History(TypedDict):
    """The lines, newest first."""

    dataset: str
    path: str
    problem: str  # why the lines cannot be read
    lines: Sequence[HistoryRow]
    damaged: int  # number of skipped lines that are no JSON, such as a crash leaves


class ReleaseShown(TypedDict):
    """A release in detail: its row, and facts from its seal, verdict and history."""

    dataset: str
    row: ReleaseRow
    owner: OwnerJson | None
    seal: Mapping[str, object] | None  # the fields of `release.json` (docs/formats.md); null: unreadable
    seal_digest: str
    # whether the history has the seal's digest: `same`, `differs`, `none` (it has no such line), or
    # `unreadable` (only the dataset's owner may read it)
    seal_in_history: str
    signature: str  # whether the seal's signature is valid, in words; "" if none exists or is required
    source_evidence: Sequence[GradeAmount]
    storage_evidence: Sequence[GradeAmount]
    manifests: Sequence[ShownManifest]
    # time since which every byte was read back and compared, by verify or audits; null: never
    read_back: str | None
    verdict: Mapping[str, object] | None  # `audits/<release>.json` (docs/formats.md); null: never audited
    advice: str  # what to do about standing findings; or ""
    history: Sequence[HistoryRow]
    audits: Sequence[HistoryRow]  # lines of `audits.jsonl` about the release; only for its owner


class DiffRow(NamedTuple):
    """A file that differs between two releases."""

    kind: str
    path: bytes  # the file's path; for a renamed file the new path
    was: bytes | None  # the former path of a renamed file
    bytes: int | None  # None: the file is gone
    bytes_before: int | None


class DiffCount(NamedTuple):
    """Files with the same kind of difference."""

    files: int = 0
    bytes: int = 0  # size in the later release; for removed files, in the former
    bytes_before: int = 0  # size in the former release; 0 for added files

    def __add__(self, other: object) -> Self:
        assert isinstance(other, DiffCount)
        return type(self)(*(ours + theirs for ours, theirs in zip(self, other, strict=True)))


class DiffResult(TypedDict):
    """The result of `penstock diff`: the last line of `--json`."""

    kind: str  # `summary`
    dataset: str
    before: str  # a release
    after: str  # a release; "": the source
    source: Sequence[str]  # URLs of the source that was listed now; [] if two releases were compared
    equal: bool  # every file is known to be the same
    # counts by kind: `unchanged`, `changed`, `unproven`, `renamed`, `removed`, `added`
    counts: Mapping[str, DiffCount]
    permissions: str  # how modes, group, owner and ACL differ, or ""; this is no difference of files


# The rows of `penstock du`, a line for each dataset (docs/releases.md).
#
# Bytes are allocated bytes (`st_blocks`). Files are inodes except folders. Each sum counts an inode once.


class OwnedUse(TypedDict):
    """Use that counts against the quotas of a user and a group."""

    uid: int
    user: str
    gid: int
    group: str
    files: int  # number of files and folders, as in quotas
    bytes: int


class AreaUse(TypedDict):
    """A release, or another part of the dataset's folder."""

    kind: str  # `release`, `state`, `other`, or the kind of a hidden folder (`StagingRow`)
    name: str
    state: str  # `current` or "" for a release; for a hidden folder as in `StagingRow`
    files: int
    folders: int
    bytes: int  # bytes, including bytes of files that other areas share
    unique_files: int  # files that would be freed if only this area were removed
    unique_bytes: int  # bytes that would be freed if only this area were removed
    frees: Sequence[OwnedUse]  # what would be freed, by user and group, with folders
    project: int | None  # id of its project quota; 0 if it has none, null if unreadable
    pool: str  # the storage pool; "" if not known
    unreadable: int  # folders and files that this account could not read; the figures lack them


class DiskUse(TypedDict):
    dataset: str
    path: str
    problem: str
    areas: Sequence[AreaUse]
    shared_files: int  # files that hard links put in several areas; each counts once
    shared_bytes: int
    outside_files: int  # files that also have names outside the dataset: no removal here frees them
    outside_bytes: int
    files: int
    folders: int
    bytes: int  # bytes of the whole dataset, each inode once
    owners: Sequence[OwnedUse]  # the whole use by user and group, each inode once, with folders
    last_pins: Mapping[str, PinnedBy]  # last pin of each release
    seconds: float


class OtherSteps(NamedTuple):
    """Time for the steps after a run's copy, as in the newest published run."""

    release: str
    seconds: float  # seconds of permissions, verify and publish


class SizeClass(NamedTuple):
    """Files of a class of sizes."""

    most: int | None  # bytes of the largest possible file; None: giants
    files: int
    bytes: int


class Explanation(NamedTuple):
    """What a run would do. Sizes are bytes, times seconds."""

    dataset: str  # "" if all figures are assumed
    files: int
    bytes: int | None  # None: neither the source nor the user gave sizes
    copied: Work  # work that the source sends; other files are on the target already
    nodes: int  # number of elements that run at once; on SLURM each has its own node
    forecast: Forecast  # expected time of the copy
    price: float | None = None  # price in the currency of the configured prices; None without prices
    current: str = ""  # the release with which the listing is compared; "" if there is none
    changes: Mapping[str, DiffCount] = {}  # differences from that release, by kind (`difference.KINDS`)
    classes: Sequence[SizeClass] = ()  # all files by size; empty if sizes were assumed
    shards: int | None = None
    other_steps: OtherSteps | None = None  # None: no run of the dataset has shown their time
    requests: Mapping[str, int] = {}  # least numbers of `get` and `list` requests; only for object stores
    queue: Sequence[str] = ()  # when elements would start, as the cluster estimates
    # the space that the run needs on the target, its quotas and storage targets, and the space they have
    space: Sequence[str] = ()
