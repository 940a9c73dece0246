"""A line of `history.jsonl`: an event that changed what readers see, or the files of a release. Pure;
`dataset.history` reads and writes the file."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from penstock.core.documents.typed_json import INLINE, LEFT_OUT, Document, loads


class Author(NamedTuple):
    """Who did it: the account's name and number, and the node as the cluster calls it."""

    by: str = ""
    uid: int | None = None
    host: str = ""


NOBODY = Author()


@dataclass(frozen=True)
class HistoryLine:
    """What each line says. Of this class itself are the lines whose event this version does not know."""

    event: str = ""
    at: str = ""
    """UTC, ISO 8601."""
    dataset: str = ""
    release: str = ""
    run: Annotated[str, LEFT_OUT] = ""
    """"" of a repair."""
    claim: Annotated[int | None, LEFT_OUT] = None
    """The number of the claim under which it was done; None where the line has none."""
    author: Annotated[Author, INLINE] = NOBODY


@dataclass(frozen=True)
class Publication(HistoryLine):
    """`current` was pointed at a release that this run sealed, or named it already when a release of that
    name was staged again."""

    event: str = "publish"
    run: str = ""
    claim: int | None = None
    seal: str = ""
    """`sha256:<hex>` of the seal's bytes."""
    root: str = ""
    """`sha256:<hex>`: the root of the tree over the manifest's rows."""
    files: int = 0
    bytes: int = 0
    previous: str | None = None
    """The release that `current` named before, where it was another one."""
    renamed: Annotated[int, LEFT_OUT] = 0
    """Files that were known by their checksums under another name (`Seal.renamed`)."""
    copied_files: Annotated[int, LEFT_OUT] = 0
    """That came from the source, neither linked nor taken over; `copied_bytes` likewise."""
    copied_bytes: Annotated[int, LEFT_OUT] = 0
    retries: Annotated[int, LEFT_OUT] = 0
    """Calls to the source that were made again, by the attempts that finished the copy."""


@dataclass(frozen=True)
class Rollback(HistoryLine):
    """`current` was pointed back at `release`."""

    event: str = "rollback"
    claim: int | None = None
    left: Annotated[str, "from"] = ""
    """The release that `current` named before."""
    nonce: str = ""
    """Of the intent that the line ends."""


@dataclass(frozen=True)
class Removal(HistoryLine):
    """A release lost its name, and its files were removed afterwards."""

    event: str = "remove"
    run: str = ""
    why: str = ""
    files: int = 0
    """As its seal had it; `bytes` likewise."""
    bytes: int = 0
    nonce: str = ""
    """Of the removal's mark."""


@dataclass(frozen=True)
class Unpinning(HistoryLine):
    """The owner took a reader's pin back."""

    event: str = "unpin"
    pin: str = ""
    """Its name."""
    of: int | None = None
    """The number of the account that had pinned."""
    told: str = ""
    """The pin in words."""


@dataclass(frozen=True)
class Signing(HistoryLine):
    """A release that was published unsigned was signed."""

    event: str = "sign"
    seal: str = ""
    """`sha256:<hex>` of the seal's bytes."""


@dataclass(frozen=True)
class CtimeInterval(HistoryLine):
    """Penstock linked files of a release, or removed names of them, and so moved the ctimes that other
    releases show of the same files (`tables.ctime_intervals`)."""

    event: str = "interval"
    first_ns: int = 0
    """The first ctime that was so moved, in nanoseconds since the epoch, by the target's file system."""
    last_ns: int = 0


class RepairCounts(NamedTuple):
    """Numbers of files, also where `Repair` names the first ones alone."""

    repaired: int = 0
    unrepairable: int = 0


@dataclass(frozen=True)
class Repair(HistoryLine):
    """Files of a release were made anew."""

    event: str = "repair"
    audit: str = ""
    """The audit whose findings were repaired."""
    repaired: Sequence[str] = ()
    """Paths; of a long list the first ones."""
    unrepairable: Sequence[tuple[str, str]] = ()
    """Path and why; of a long list the first ones."""
    counts: RepairCounts = field(default_factory=RepairCounts)
    fetched_bytes: int = 0
    fsync_ends: Annotated[str, LEFT_OUT] = ""
    """Where an fsync of the fetched files ended, if not on the servers' disks; "" where no node says so."""


KINDS: dict[str, Document[Any]] = {
    kind.event: Document(kind, "a line of the dataset's history")
    for kind in (Publication, Rollback, Repair, Removal, Unpinning, Signing, CtimeInterval)
}
"""By event: what this version writes."""
_OTHER = Document(HistoryLine, "a line of the dataset's history")


def to_json(line: HistoryLine) -> dict[str, object]:
    """What `history.jsonl` holds of it."""
    return KINDS[line.event].to_json(line)


def from_json(content: bytes, where: object) -> HistoryLine:
    """Of one line's bytes, `where` is the file. Raises NewerFormatError, and ValueError for what is no line
    of a history."""
    raw = loads(content)
    line: HistoryLine = KINDS.get(str(raw.get("event")), _OTHER).from_value(raw, where)
    return line
