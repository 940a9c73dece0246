"""`audits/<release>.json`: what the last audits and repairs of a release said, and which findings stand.

Times are UTC, ISO 8601. `state.verdicts` says when a finding falls.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TypedDict, cast

from penstock.core.documents import typed_json

FORMAT = 1

Json = dict[str, object]


@dataclass(frozen=True)
class StandingFindings:
    """The findings of one audit, or what one repair left of them, that stand."""

    audit: str = ""
    at: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    """By kind of finding."""


class LastAuditJson(TypedDict):
    """`LastAudit` in results."""

    audit: str
    began: str
    choice: str
    status: str
    counts: Mapping[str, int]
    files: int
    of_files: int
    bytes: int
    seconds: float
    promise: str
    ended: str
    by: str


@dataclass(frozen=True)
class LastAudit:
    """The result of the last audit."""

    audit: str = ""
    began: str = ""
    choice: str = ""
    """`whole`, `sample` or `slice`."""
    status: str = ""
    """`PASSED` or `FINDINGS`."""
    counts: Mapping[str, int] = field(default_factory=dict)
    files: int = 0
    """That it read, of `of_files` in the release."""
    of_files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    promise: str = ""
    """What it would have found, for people."""
    ended: str = ""
    by: str = ""
    """The account."""

    def to_json(self) -> LastAuditJson:
        return cast("LastAuditJson", {**asdict(self), "counts": dict(self.counts)})


@dataclass(frozen=True)
class ReadBack:
    """When the release's bytes were last read back: the moment that the audit began."""

    whole: str | None = None
    """All of them by one audit; None if never."""
    slices: Mapping[int, Mapping[int, str]] = field(default_factory=dict)
    """By rotations of so many slices: when each slice was."""


@dataclass(frozen=True)
class LastRepair:
    at: str = ""
    audit: str = ""
    repaired: int = 0
    left: int = 0
    """Findings that it could not repair."""


@dataclass(frozen=True)
class Overruling:
    """The owner's word that the findings need not stand in the way."""

    at: str = ""
    by: str = ""
    why: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    """The findings that stood."""


@dataclass(frozen=True)
class Verdict:
    dataset: str = ""
    release: str = ""
    seal: str = ""
    """`sha256:<hex>` of the seal as it was published."""
    stands: Sequence[StandingFindings] = ()
    read: ReadBack = field(default_factory=ReadBack)
    last: LastAudit | None = None
    repair: LastRepair | None = None
    overruled: Overruling | None = None


def to_json(verdict: Verdict) -> Json:
    """What the file holds; what never happened is left out."""
    slices = {str(of): {str(one): at for one, at in seen.items()} for of, seen in verdict.read.slices.items()}
    written: Json = {
        "format": FORMAT,
        "dataset": verdict.dataset,
        "release": verdict.release,
        "seal": verdict.seal,
        "stands": [{"audit": one.audit, "at": one.at, "counts": dict(one.counts)} for one in verdict.stands],
        "read": {"whole": verdict.read.whole, "slices": slices},
    }
    if verdict.last is not None:
        written["last"] = verdict.last.to_json()
    if verdict.repair is not None:
        written["repair"] = asdict(verdict.repair)
    if verdict.overruled is not None:
        written["overruled"] = {**asdict(verdict.overruled), "counts": dict(verdict.overruled.counts)}
    return written


def from_json(content: bytes, where: object) -> Verdict:
    """Of the file's bytes, `where` is its path. Raises NewerFormatError, and ValueError for what is no such
    document."""
    return typed_json.parse(Verdict, content, "what the last audit said", FORMAT, where)
