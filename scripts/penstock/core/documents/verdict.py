"""`audits/<release>.json`: what the last audits and repairs of a release said, and which findings stand.

Times are UTC, ISO 8601. Pure; `dataset.verdicts` reads and writes the file, and says when a finding falls.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from penstock.core.audit_selection import SoonFirst
from penstock.core.documents import typed_json
from penstock.core.documents.typed_json import INLINE, LEFT_OUT, Document, Utc


class StandingFindings(NamedTuple):
    """The findings of one audit, or what one repair left of them, that stand."""

    audit: str = ""
    at: str = ""
    counts: Mapping[str, int] = typed_json.NOTHING
    """By kind of finding."""
    from_disks: Annotated[bool, LEFT_OUT] = False
    """As of `LastAudit`."""


class LastAudit(NamedTuple):
    """The result of the last audit."""

    audit: str = ""
    began: str = ""
    choice: str = ""
    """`whole`, `sample` or `slice`."""
    status: str = ""
    """`PASSED`, `PARTLY` or `FINDINGS`."""
    counts: Mapping[str, int] = typed_json.NOTHING
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
    skipped: Mapping[str, int] = typed_json.NOTHING
    """Files that were not opened, since their data is not here: by `offline` and `tiered`."""
    grade: str = ""
    from_disks: Annotated[bool, LEFT_OUT] = False
    """Whether all that it read came from the disks of a file system's servers, past their memory."""


class AuditShown(NamedTuple):
    """The last audit in results, and whether what it found still counts."""

    audit: Annotated[LastAudit, INLINE]
    closed: Annotated[str, LEFT_OUT] = ""
    """What closed its findings, where none stand any more: `repaired 2026-03-14T12:03:11Z` or `overruled`."""


class ReadBack(NamedTuple):
    """When the release's bytes were last read back: the moment that the audit began."""

    whole: Utc | None = None
    """All of them by one audit; None if never."""
    slices: Mapping[int, Mapping[int, Utc]] = typed_json.NOTHING
    """By rotations of so many slices: when each slice was."""
    soon_first: Annotated[Mapping[int, SoonFirst], LEFT_OUT] = typed_json.NOTHING
    """Of those rotations that take files first that were read back soon: how."""


class LastRepair(NamedTuple):
    """The result of the last repair; `audit` is the id of the audit by which it went, `repaired` counts
    files."""

    at: str = ""
    audit: str = ""
    repaired: int = 0
    left: int = 0
    """Findings that it could not repair."""


class Overruling(NamedTuple):
    """The owner's word that the findings need not stand in the way."""

    at: str = ""
    by: str = ""
    why: str = ""
    counts: Mapping[str, int] = typed_json.NOTHING
    """The findings that stood."""


class Verdict(NamedTuple):
    """The whole document, of one release."""

    dataset: str = ""
    release: str = ""
    seal: str = ""
    """`sha256:<hex>` of the seal as it was published."""
    stands: Sequence[StandingFindings] = ()
    read: ReadBack = ReadBack()
    last: Annotated[LastAudit | None, LEFT_OUT] = None
    repair: Annotated[LastRepair | None, LEFT_OUT] = None
    overruled: Annotated[Overruling | None, LEFT_OUT] = None


VERDICT = Document(Verdict, "what the last audit said")
