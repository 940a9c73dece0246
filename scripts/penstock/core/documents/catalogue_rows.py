"""What `penstock releases`, `show` and `history` print with `--json`, and what their tables are made of.

Pure; `look` fills it. A key once here keeps its meaning (docs/releases.md). Times are UTC, ISO 8601, ages are
seconds, sizes are bytes. Keys of which nothing is known are null, or empty.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self, TypedDict

from penstock.core.documents.verdict import AuditShown


class OwnerJson(TypedDict):
    """An account, by number, and by the name that this machine has for it ("" where it has none)."""

    uid: int
    user: str


class PinnedBy(TypedDict):
    """Who pinned a release last, for a job."""

    by: str
    age: float
    """Seconds since then."""


class ReleaseRow(TypedDict):
    """One release of a dataset, as far as it can be read."""

    release: str
    path: str
    """Its `data` folder."""
    current: bool
    state: str
    """As `gate` judges it: `published`, `held`, `damaged` (also by findings that stand), `newer`,
    `unreadable`, `foreign`."""
    problem: str
    """Why `state` is not `published`."""
    files: int | None
    bytes: int | None
    sealed: str | None
    age: float | None
    """Seconds since it was sealed."""
    source_grade: str
    """The weakest that any of its files has, as the seal says; `storage_grade` alike."""
    storage_grade: str
    base: str | None
    unchanged: int
    last_audit: AuditShown | None
    audit_age: float | None
    """Seconds since the last audit ended."""
    findings: Mapping[str, int]
    """Those that stand, by kind."""
    held_by: Sequence[str]
    """Who keeps it from being removed, in words."""
    pins_unopened: int
    """Further pins, by their names: whether they stand is not known."""
    last_pin: PinnedBy | None


class StagingRow(TypedDict):
    """A hidden folder beside the releases."""

    name: str
    kind: str
    """`staging`, `repair`, `removing` (the mark of a removal that begins), `removed` (its files are being
    removed), `rehearsal`, `trial` (of the file system), or `other`."""
    state: str
    """`under way`, `left` (by a run that did not end), `taken back` (of a removal), or `unknown`, which is
    all that others than the owner see of a staging."""
    age: float | None
    """Seconds since the folder itself was changed last."""


class DatasetRow(TypedDict):
    """One dataset below a root, its releases the newest first."""

    dataset: str
    path: str
    owner: OwnerJson | None
    current: str | None
    state: str
    """That of the release that `current` names; `nothing published` without one."""
    problem: str
    """What keeps the dataset, or its `current`, from being read. "" where nothing does."""
    pause: str
    """Whose PAUSE stands at the root, and its text; "" where none does."""
    hold: str
    """What a HOLD at the root does not do that it may be meant to; "" where there is nothing to say."""
    releases: Sequence[ReleaseRow]
    files: int
    """The sum over the releases whose seal can be read; `bytes` alike. Files that releases share by hard
    links are counted in each of them."""
    bytes: int
    stagings: Sequence[StagingRow]


class GradeAmount(TypedDict):
    """How many files, and bytes, have a grade."""

    grade: str
    files: int
    bytes: int


class ShownManifest(TypedDict):
    """One manifest beside a release's data."""

    name: str
    bytes: int | None
    """As it lies there now; null where it is missing or cannot be read."""
    sha256: str
    """As sealed."""


class HistoryRow(TypedDict):
    """One line of `history.jsonl`, or of `audits.jsonl`."""

    at: str
    event: str
    release: str
    by: str
    host: str
    text: str
    """What was done, in words; of an event that this version does not know, its other fields."""
    known: bool
    """Whether this version knows the event and the line's format."""
    line: Mapping[str, object]
    """The line's own fields (docs/formats.md)."""


class History(TypedDict):
    """The lines, newest first."""

    dataset: str
    path: str
    problem: str
    """Why they cannot be read."""
    lines: Sequence[HistoryRow]
    damaged: int
    """Lines that are no JSON, as a crash leaves them: passed over."""


class ReleaseShown(TypedDict):
    """One release in detail: its row, and what its seal, verdict and history say."""

    dataset: str
    row: ReleaseRow
    owner: OwnerJson | None
    seal: Mapping[str, object] | None
    """The fields of `release.json` (docs/formats.md); null where it cannot be read."""
    seal_digest: str
    seal_in_history: str
    """`same`, `differs`, `none` (no line names it), or `unreadable`: the history is its owner's alone."""
    signature: str
    """Whether the signature over the seal holds, in words; "" where the release has none and none is asked
    for."""
    source_evidence: Sequence[GradeAmount]
    storage_evidence: Sequence[GradeAmount]
    manifests: Sequence[ShownManifest]
    read_back: str | None
    """Since when every byte was read back and compared, by verify or by audits; null if never."""
    verdict: Mapping[str, object] | None
    """`audits/<release>.json` (docs/formats.md); null where nothing was audited."""
    advice: str
    """What to do about the findings that stand; "" without any."""
    history: Sequence[HistoryRow]
    audits: Sequence[HistoryRow]
    """What `audits.jsonl` says of the release; for its owner alone."""


class DiffRow(NamedTuple):
    """One file that is not the same in both."""

    kind: str
    path: bytes
    """Of a renamed file the new one."""
    was: bytes | None
    """The path before, of a renamed one."""
    bytes: int | None
    """None: it is gone."""
    bytes_before: int | None


class DiffCount(NamedTuple):
    """Files of one kind of difference."""

    files: int = 0
    bytes: int = 0
    """As they are in the latter; of removed files as they were."""
    bytes_before: int = 0
    """As they were in the former; 0 of added files."""

    def __add__(self, other: object) -> Self:
        assert isinstance(other, DiffCount)
        return type(self)(*(one + two for one, two in zip(self, other, strict=True)))


class DiffResult(TypedDict):
    """What `penstock diff` found: the last line of `--json`."""

    kind: str
    """`summary`."""
    dataset: str
    before: str
    """A release."""
    after: str
    """A release; "" for the source."""
    source: Sequence[str]
    """The URLs of the source that was listed now; [] between two releases."""
    equal: bool
    """Whether every file is known to be the same."""
    counts: Mapping[str, DiffCount]
    """By kind: `unchanged`, `changed`, `unproven`, `renamed`, `removed`, `added`."""
    permissions: str
    """How the two differ in modes, group, owner and ACL; "" where they do not. No difference of files."""
