"""The result of one dataset's run, for summary and report. Every key may be missing.

`run.report_step` builds a `Result` from the receipts. `--receipt` and the report's JSON hold it too, so a key
never changes its meaning. Times are UTC ISO 8601 or seconds, sizes are bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, cast

from penstock.core import typed_json
from penstock.core.audit_documents import AuditShown
from penstock.core.element_use import Usage
from penstock.core.estimates import Reached

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class TimedAmount(TypedDict, total=False):
    """An amount, and the wall time of the step (not the sum over elements)."""

    files: int
    bytes: int
    seconds: float
    moved_bytes: int  # moved by the last command that moved any, in `moved_seconds`: rates are made of these
    moved_seconds: float
    beside_copy_bytes: int  # of verify: read by elements of copy, while others were copied


class StepResult(TimedAmount, total=False):
    """One step of the run."""

    step: str
    status: str  # `done`, `failed`, or `skipped` (its receipt existed)
    started: str
    ended: str
    elements: int
    why: str  # one line: the reason for workers and streams, or for a failure


class ElementResult(TypedDict, total=False):
    """One attempt at one shard: a bar of the report's timeline. The report shows these keys in this order."""

    step: str
    index: int
    attempt: str
    node: str
    started: float  # seconds since the epoch, as `ended`
    ended: float
    files: int
    bytes: int
    moved_bytes: int  # of `bytes`, those that this attempt moved
    seconds: float
    cpus: int
    workers: int
    streams: int
    why: str  # why this many workers and streams, in the engine's words


class Failed(TypedDict, total=False):
    """One file that failed."""

    path: str
    why: str
    step: str
    exit_code: int
    retry: bool


class EvidenceAmounts(TypedDict, total=False):
    """Counts by grade, in any order: the views sort them."""

    source: dict[str, TimedAmount]  # by core.grades.SOURCE_GRADES
    storage: dict[str, TimedAmount]  # by core.grades.STORAGE_GRADES
    methods: dict[str, TimedAmount]  # `disk`, `direct`, `dropped`, `cached`, `unread`


# A release whose source changed during the copy: files newer than listed, files gone, and the time span of
# the reads.
AmendedFiles = TypedDict("AmendedFiles", {"changed": int, "gone": int, "from": str, "until": str})


class Result(TypedDict, total=False):
    """Everything about one dataset's run."""

    dataset: str
    # `PASSED` (published, or unchanged), `FAILED`, `STOPPED` (by a signal), or `FINDINGS` (published, with
    # findings that nobody has repaired)
    status: str
    why: str  # one line: why it did not pass, or a remark on a release that did
    run: str
    release: str
    path: str  # the release's data folder, as a training job opens it
    current: str  # the path `<root>/<dataset>/current`; "" while it does not exist
    current_release: str | None  # the release that `current` names
    report: str
    sources: list[str]  # URLs, without secrets
    target: str
    file_system: str
    durability: str
    created: str
    started: str
    ended: str
    seconds: float
    files: int
    bytes: int  # of the release
    scanned: TimedAmount
    ignored: dict[str, int]
    hard_links: dict[str, int]  # `core.run_documents.RunInfo.hard_links`
    amended: AmendedFiles
    unchanged: TimedAmount  # linked from the release before
    renamed: TimedAmount  # of these, files with another name there, known by their checksums
    taken: TimedAmount  # from the staging of a run that did not end
    copied: TimedAmount
    verified: TimedAmount
    # the part of `unchanged`, `taken` and `copied` that earlier attempts' journals record
    resumed: TimedAmount
    giants: int
    parts: int
    failed: int
    bytes_in: int  # read from the source by the last command that copied any
    bytes_out: int  # written to the target
    # the configured or rehearsed ceiling that limits the copy, and the share of it that the last copying
    # command used
    ceiling: Reached
    pib_miles_an_hour: float  # of that command, if `bandwidth.distance` is configured
    retries: int
    retried: Mapping[str, int]  # retries by known cause, the most frequent first
    # [[seconds, bytes, key], ...] of the slowest copies (`core.element_documents`)
    slowest: Sequence[tuple[float, int, str]]
    usage: Usage
    evidence: EvidenceAmounts
    # how many linked files were not read back, and the oldest reading among them; missing if all were read
    carried: str
    read_after: str  # how long after writing the others were read back; missing if the seal does not say
    seal: str  # the root of the seal's tree over the records, `sha256:<hex>`
    listing_digest: str
    steps: list[StepResult]
    elements: list[ElementResult]
    histogram: Sequence[Sequence[int]]  # [[upper bound of size, files, bytes], ...], as in RunInfo
    # [[seconds since the copy began, bytes so far, files so far], ...], ascending
    throughput: Sequence[Sequence[float]]
    last_audit: AuditShown  # the release's last audit, by `dataset.verdicts`
    findings: Mapping[str, int]  # standing findings by kind
    failures: list[Failed]  # at most the first hundred; `failed` counts all
    warnings: list[str]
    version: str  # of penstock


def from_json(raw: Any) -> Result:
    """Read a result as `--receipt` wrote it. Raises ValueError if a part has another type."""
    if not isinstance(raw, dict):
        raise ValueError("it is no JSON object")
    nested: Mapping[str, Any] = {
        "usage": Usage,
        "ceiling": Reached,
        "last_audit": AuditShown,
    }
    read = {name: typed_json.read(kind, raw[name]) for name, kind in nested.items() if name in raw}
    return cast("Result", {**raw, **read})
