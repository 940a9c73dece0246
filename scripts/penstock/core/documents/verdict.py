"""`audits/<release>.json`: last audits and repairs of a release, and its standing findings. Times: UTC, ISO
8601."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from penstock.core.audit_selection import SoonFirst
from penstock.core.documents import typed_json
from penstock.core.documents.typed_json import INLINE, LEFT_OUT, Document, Utc


class StandingFindings(NamedTuple):
    """The findings of an audit that stand, or that a repair left."""

    audit: str = ""
    at: str = ""
    counts: Mapping[str, int] = typed_json.NOTHING  # by kind of finding
    from_disks: Annotated[bool, LEFT_OUT] = False  # as in `LastAudit`


class LastAudit(NamedTuple):
    audit: str = ""
    began: str = ""
    choice: str = ""  # `whole`, `sample` or `slice`
    status: str = ""  # `PASSED`, `PARTLY` or `FINDINGS`
    counts: Mapping[str, int] = typed_json.NOTHING
    files: int = 0  # read, of `of_files` in the release
    of_files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    promise: str = ""  # what it would have found, for people
    ended: str = ""
    by: str = ""  # the account
    # files not opened, since their data is not here: by `offline` and `tiered`
    skipped: Mapping[str, int] = typed_json.NOTHING
    grade: str = ""
    # all that it read came from the disks of a file system's servers, past their memory
    from_disks: Annotated[bool, LEFT_OUT] = False


class AuditShown(NamedTuple):
    """The last audit in results, and whether its findings still count."""

    audit: Annotated[LastAudit, INLINE]
    # what closed all its findings: `repaired 2026-03-14T12:03:11Z` or `overruled`
    closed: Annotated[str, LEFT_OUT] = ""


class ReadBack(NamedTuple):
    """When the release's bytes were last read back: the moment that the audit began."""

    whole: Utc | None = None  # all of them by one audit; None: never
    # when each slice was, by the number of slices in the rotation
    slices: Mapping[int, Mapping[int, Utc]] = typed_json.NOTHING
    # of rotations that first read files that were read back soon: their order
    soon_first: Annotated[Mapping[int, SoonFirst], LEFT_OUT] = typed_json.NOTHING


class LastRepair(NamedTuple):
    """The last repair. `audit`: the audit that it followed; `repaired` counts files."""

    at: str = ""
    audit: str = ""
    repaired: int = 0
    left: int = 0  # findings that it could not repair


class Overruling(NamedTuple):
    """The owner's decision to ignore the findings."""

    at: str = ""
    by: str = ""
    why: str = ""
    counts: Mapping[str, int] = typed_json.NOTHING  # findings that stood


class Verdict(NamedTuple):
    """The document of one release."""

    dataset: str = ""
    release: str = ""
    seal: str = ""  # `sha256:<hex>` of the seal as it was published
    stands: Sequence[StandingFindings] = ()
    read: ReadBack = ReadBack()
    last: Annotated[LastAudit | None, LEFT_OUT] = None
    repair: Annotated[LastRepair | None, LEFT_OUT] = None
    overruled: Annotated[Overruling | None, LEFT_OUT] = None


VERDICT = Document(Verdict, "what the last audit said")
