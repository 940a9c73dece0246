"""The result of one dataset's run, as summary and report read it. Every key may be missing.

`run.report_step` builds a `Result` from the receipts; it is also what `--receipt` and the JSON in the
report hold, so a key once here keeps its meaning. Times are UTC ISO 8601 or seconds, sizes are bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, cast

from penstock.core.ceilings import Reached
from penstock.core.documents import typed_json
from penstock.core.documents.verdict import AuditShown
from penstock.core.element_use import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class TimedAmount(TypedDict, total=False):
    """So much, and how long it took (wall time of the step, not the sum over elements)."""

    files: int
    bytes: int
    seconds: float
    moved_bytes: int
    """What the last command that moved any moved itself, in `moved_seconds`: rates are made of these."""
    moved_seconds: float
    beside_copy_bytes: int
    """Of verify: those that elements of copy read, while others were copied."""


class StepResult(TimedAmount, total=False):
    """One step of the run, and what it did."""

    step: str
    status: str
    """`done`, `failed`, `skipped` (its receipt was there already)."""
    started: str
    ended: str
    elements: int
    why: str
    """One line: what decided (workers, streams, what limited it), or what failed."""


class ElementResult(TypedDict, total=False):
    """One attempt at one shard: a bar of the report's timeline. The report shows these keys in this order."""

    step: str
    index: int
    attempt: str
    node: str
    started: float
    """Seconds since the epoch, as `ended`."""
    ended: float
    files: int
    bytes: int
    moved_bytes: int
    """Of `bytes`, those that this attempt moved itself."""
    seconds: float
    cpus: int
    workers: int
    streams: int
    why: str
    """Why this many workers and streams, in the engine's words."""


class Failed(TypedDict, total=False):
    """One file that failed."""

    path: str
    why: str
    step: str
    exit_code: int
    retry: bool


class EvidenceAmounts(TypedDict, total=False):
    """Counts by grade, in any order: the views sort them."""

    source: dict[str, TimedAmount]
    """By core.grades.SOURCE_GRADES."""
    storage: dict[str, TimedAmount]
    """By core.grades.STORAGE_GRADES."""
    methods: dict[str, TimedAmount]
    """`disk`, `direct`, `dropped`, `cached`, `unread`."""


AmendedFiles = TypedDict("AmendedFiles", {"changed": int, "gone": int, "from": str, "until": str})
"""Of a release whose source changed while it was copied: files newer than listed, files that left, and the
times between which they were read."""


class Result(TypedDict, total=False):
    """Everything about one dataset's run."""

    dataset: str
    status: str
    """`PASSED` (published, or already published and unchanged), `FAILED`, `STOPPED` (by a signal), or
    `FINDINGS` (published, and audits found damage that nobody has repaired)."""
    why: str
    """One line: why it did not pass, or a remark on a release that did."""
    run: str
    release: str
    path: str
    """The release's own data folder: what a training job is given."""
    current: str
    """The path `<root>/<dataset>/current`; "" while it does not exist."""
    current_release: str | None
    """The release that `current` names."""
    report: str
    sources: list[str]
    """URLs, without secrets."""
    target: str
    file_system: str
    durability: str
    created: str
    started: str
    ended: str
    seconds: float
    files: int
    bytes: int
    """Of the release."""
    scanned: TimedAmount
    ignored: dict[str, int]
    hard_links: dict[str, int]
    """`core.run_documents.RunInfo.hard_links`."""
    amended: AmendedFiles
    unchanged: TimedAmount
    """Linked from the release before."""
    renamed: TimedAmount
    """Those of them that it holds under another name, known by their checksums."""
    taken: TimedAmount
    """Taken over from the staging of a run that did not end."""
    copied: TimedAmount
    verified: TimedAmount
    resumed: TimedAmount
    """The part of `unchanged`, `taken` and `copied` that earlier attempts recorded in their journals, and
    that was not done again."""
    giants: int
    parts: int
    failed: int
    bytes_in: int
    """Read from the source by the last command that copied any."""
    bytes_out: int
    """Written to the target."""
    ceiling: Reached
    """The ceiling that binds the copy, of those that are configured or rehearsed, and how much of it the last
    command that copied any made use of."""
    pib_miles_an_hour: float
    """Of that command, where `bandwidth.distance` is configured."""
    retries: int
    retried: Mapping[str, int]
    """Those of the retries whose cause is known, by it, the most first."""
    slowest: Sequence[tuple[float, int, str]]
    """[[seconds, bytes, key], ...] of the objects whose copy took longest (`core.slow_objects`)."""
    usage: Usage
    evidence: EvidenceAmounts
    carried: str
    """How many linked files were not read back, and when the one was that was read longest ago; not there
    where all were read."""
    read_after: str
    """How long after their writing the others were read back; not there where the seal does not say it."""
    seal: str
    """The root of the seal's tree over the records, `sha256:<hex>`."""
    listing_digest: str
    steps: list[StepResult]
    elements: list[ElementResult]
    histogram: Sequence[Sequence[int]]
    """[[upper bound of size, files, bytes], ...], as in RunInfo."""
    throughput: Sequence[Sequence[float]]
    """[[seconds since the copy began, bytes so far, files so far], ...], ascending."""
    last_audit: AuditShown
    """The last entry of the release's audits, by `dataset.verdicts`."""
    findings: Mapping[str, int]
    """By kind: those of audits that stand."""
    failures: list[Failed]
    """The first hundred at most; `failed` counts all."""
    warnings: list[str]
    version: str
    """Of penstock."""


def from_json(raw: Any) -> Result:
    """A result as `--receipt` wrote it. Raises ValueError where a part of it is of another type."""
    if not isinstance(raw, dict):
        raise ValueError("it is no JSON object")
    nested: Mapping[str, Any] = {
        "usage": Usage,
        "ceiling": Reached,
        "last_audit": AuditShown,
    }
    read = {name: typed_json.read(kind, raw[name]) for name, kind in nested.items() if name in raw}
    return cast("Result", {**raw, **read})
