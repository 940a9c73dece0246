"""The keys of the result of one dataset's run, for summary and report. Every key may be missing.

`run.report_step` builds a `Result` from the receipts. `--receipt` and the report's JSON also contain it, so a
key never changes its meaning. Times are UTC ISO 8601 or seconds, sizes are in bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, cast

from penstock.core import typed_json
from penstock.core.element_documents import Usage
from penstock.core.estimates import Reached
from penstock.core.findings import AuditShown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class TimedAmount(TypedDict, total=False):
    """An amount, and the wall time of the step (not the sum over elements)."""

    files: int
    bytes: int
    seconds: float
    # bytes that the last command that moved any has moved, in `moved_seconds`; a rate is the quotient of the
    # two
    moved_bytes: int
    moved_seconds: float
    # bytes of verify's work that the copy's elements read back while other files were copied
    beside_copy_bytes: int


class StepResult(TimedAmount, total=False):
    """One step of the run."""

    step: str
    status: str  # `done`, `failed`, or `skipped` (the step's receipt existed already)
    started: str
    ended: str
    elements: int
    why: str  # reason for the numbers of workers and streams, or for a failure, in one line


class ElementResult(TypedDict, total=False):
    """One attempt at one shard: a bar in the report's timeline. The report shows these keys in this order."""

    step: str
    index: int
    attempt: str
    node: str
    started: float  # seconds since the epoch, like `ended`
    ended: float
    files: int
    bytes: int
    moved_bytes: int  # the part of `bytes` that this attempt moved
    seconds: float
    cpus: int
    workers: int
    streams: int
    why: str  # reason for the numbers of workers and streams, in the engine's words


class Failed(TypedDict, total=False):
    """One file that failed."""

    path: str
    why: str
    step: str
    exit_code: int
    retry: bool


class EvidenceAmounts(TypedDict, total=False):
    """Amounts by grade, in any order, since the views sort them."""

    source: dict[str, TimedAmount]  # amounts by grade of `core.grades.SOURCE_GRADES`
    storage: dict[str, TimedAmount]  # amounts by grade of `core.grades.STORAGE_GRADES`
    methods: dict[str, TimedAmount]  # amounts by method: `disk`, `direct`, `dropped`, `cached`, `unread`


# The amendments of a release whose source changed during the copy: numbers of files newer than listed and of
# files gone, and the reads' time span.
AmendedFiles = TypedDict("AmendedFiles", {"changed": int, "gone": int, "from": str, "until": str})


class Result(TypedDict, total=False):
    """Everything about one dataset's run."""

    dataset: str
    # The run's result: `PASSED` (published, or unchanged), `FAILED`, `STOPPED` (by a signal), or `FINDINGS`
    # (published, with findings that nobody has repaired)
    status: str
    why: str  # why the run did not pass, or a remark on the release if it did, in one line
    run: str
    release: str
    path: str  # the release's data folder, as a training job opens it
    current: str  # the path `<root>/<dataset>/current`; "" while it does not exist
    current_release: str | None  # the release that `current` names
    report: str
    sources: list[str]  # URLs of the sources, without secrets
    target: str
    file_system: str
    durability: str
    created: str
    started: str
    ended: str
    seconds: float
    files: int
    bytes: int  # bytes of the release
    scanned: TimedAmount
    ignored: dict[str, int]
    hard_links: dict[str, int]  # counts of hard links, as in `core.run_documents.RunInfo.hard_links`
    amended: AmendedFiles
    unchanged: TimedAmount  # files linked from the previous release
    # the part of `unchanged` that has other names in the previous release, found by checksums
    renamed: TimedAmount
    taken: TimedAmount  # files taken from the staging of a run that did not end
    copied: TimedAmount
    verified: TimedAmount
    # the part of `unchanged`, `taken` and `copied` that earlier attempts' journals record
    resumed: TimedAmount
    giants: int
    parts: int
    failed: int
    bytes_in: int  # bytes read from the source by the last command that copied files
    bytes_out: int  # bytes written to the target by the last command that copied files
    # the configured or rehearsed ceiling that limits the copy, and the share of it that the last copying
    # command used
    ceiling: Reached
    # speed of the last command that copied files, if `bandwidth.distance` is configured
    pib_miles_an_hour: float
    retries: int
    retried: Mapping[str, int]  # {cause of retries, if known: number of retries}, the most frequent first
    # [[seconds, bytes, key], ...] of the slowest copies (`core.element_documents`)
    slowest: Sequence[tuple[float, int, str]]
    usage: Usage
    evidence: EvidenceAmounts
    # number of linked files that were not read back, and the oldest reading among them; missing if all files
    # were read
    carried: str
    # how long after writing the other files were read back; missing if the seal does not state this
    read_after: str
    seal: str  # the root of the seal's tree over the records, `sha256:<hex>`
    listing_digest: str
    steps: list[StepResult]
    elements: list[ElementResult]
    histogram: Sequence[Sequence[int]]  # [[upper bound of size, files, bytes], ...], as in RunInfo
    # [[seconds since the copy began, bytes so far, files so far], ...], ascending
    throughput: Sequence[Sequence[float]]
    last_audit: AuditShown  # the release's last audit, from `dataset.release_records`
    findings: Mapping[str, int]  # number of standing findings by kind
    # the first hundred failed files, at most; `failed` is the number of all failed files
    failures: list[Failed]
    warnings: list[str]
    version: str  # penstock's version


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
