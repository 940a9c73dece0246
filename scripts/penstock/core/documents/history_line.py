"""A line of `history.jsonl`: an event that changed what readers see, or the files of a release."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from penstock.core.documents.typed_json import INLINE, LEFT_OUT, Document, loads


class Author(NamedTuple):
    """The account's name and number, and the node as the cluster calls it."""

    by: str = ""
    uid: int | None = None
    host: str = ""


NOBODY = Author()


@dataclass(frozen=True)
class HistoryLine:
    """The fields of each line. Lines of unknown events are of this class itself."""

    event: str = ""
    at: str = ""  # UTC, ISO 8601
    dataset: str = ""
    release: str = ""
    run: Annotated[str, LEFT_OUT] = ""  # "": of a repair
    claim: Annotated[int | None, LEFT_OUT] = None  # number of the claim that was valid
    author: Annotated[Author, INLINE] = NOBODY


@dataclass(frozen=True)
class Publication(HistoryLine):
    """`current` was pointed at a release that this run sealed, or named a release of that name already."""

    event: str = "publish"
    run: str = ""
    claim: int | None = None
    seal: str = ""  # `sha256:<hex>` of the seal's bytes
    root: str = ""  # `sha256:<hex>`: root of the tree over the manifest's rows
    files: int = 0
    bytes: int = 0
    previous: str | None = None  # the release that `current` named before, if another
    renamed: Annotated[int, LEFT_OUT] = 0  # files identified by checksums under another name (`Seal.renamed`)
    copied_files: Annotated[int, LEFT_OUT] = 0  # files from the source, neither linked nor taken over
    copied_bytes: Annotated[int, LEFT_OUT] = 0
    # repeated calls to the source, by the attempts that finished the copy
    retries: Annotated[int, LEFT_OUT] = 0


@dataclass(frozen=True)
class Rollback(HistoryLine):
    """`current` was pointed back at `release`."""

    event: str = "rollback"
    claim: int | None = None
    left: Annotated[str, "from"] = ""  # the release that `current` named before
    nonce: str = ""  # of the intent that the line ends


@dataclass(frozen=True)
class Removal(HistoryLine):
    """A release lost its name, and its files were removed afterwards."""

    event: str = "remove"
    run: str = ""
    why: str = ""
    files: int = 0  # as in its seal; `bytes` likewise
    bytes: int = 0
    nonce: str = ""  # of the removal's mark


@dataclass(frozen=True)
class Unpinning(HistoryLine):
    """The owner removed a reader's pin."""

    event: str = "unpin"
    pin: str = ""  # its name
    of: int | None = None  # number of the account that had pinned
    told: str = ""  # the pin in words


@dataclass(frozen=True)
class Signing(HistoryLine):
    """A release that was published unsigned was signed."""

    event: str = "sign"
    seal: str = ""  # `sha256:<hex>` of the seal's bytes


@dataclass(frozen=True)
class CtimeInterval(HistoryLine):
    """Penstock linked or unlinked files of a release, and so moved the ctimes that other releases show of
    these inodes (`tables.ctime_intervals`)."""

    event: str = "interval"
    # first and last moved ctime, in nanoseconds since the epoch, by the target's file system
    first_ns: int = 0
    last_ns: int = 0


class RepairCounts(NamedTuple):
    """Counts of files, complete even if `Repair` names only the first."""

    repaired: int = 0
    unrepairable: int = 0


@dataclass(frozen=True)
class Repair(HistoryLine):
    """Files of a release were made anew."""

    event: str = "repair"
    audit: str = ""  # the audit whose findings were repaired
    repaired: Sequence[str] = ()  # paths; of a long list the first
    unrepairable: Sequence[tuple[str, str]] = ()  # path and reason; of a long list the first
    counts: RepairCounts = field(default_factory=RepairCounts)
    fetched_bytes: int = 0
    # where an fsync of fetched files ended, if not on the servers' disks; or ""
    fsync_ends: Annotated[str, LEFT_OUT] = ""


# by event, as this version writes them
KINDS: dict[str, Document[Any]] = {
    kind.event: Document(kind, "a line of the dataset's history")
    for kind in (Publication, Rollback, Repair, Removal, Unpinning, Signing, CtimeInterval)
}
_OTHER = Document(HistoryLine, "a line of the dataset's history")


def to_json(line: HistoryLine) -> dict[str, object]:
    return KINDS[line.event].to_json(line)


def from_json(content: bytes, where: object) -> HistoryLine:
    """Parse a line. Raises NewerFormatError, and ValueError for anything that is no line of a history."""
    raw = loads(content)
    line: HistoryLine = KINDS.get(str(raw.get("event")), _OTHER).from_value(raw, where)
    return line
