"""Documents of a dataset beside its releases: lines of its history, marks of states and orders, pins of
readers, the notice of work under way, and the description of an adoption. Pure: other rooms do the I/O.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from penstock.core import typed_json
from penstock.core.layout import DatasetLayout, RunLayout
from penstock.core.typed_json import (
    INLINE,
    LARGEST,
    LEFT_OUT,
    Document,
    FileNumber,
    Moment,
    ProcessName,
    RunName,
    between,
    loads,
)


class Author(NamedTuple):
    """The account that did something: its name and number, and the node's name in the cluster."""

    by: str = ""
    uid: int | None = None
    host: str = ""


NOBODY = Author()


@dataclass(frozen=True)
class HistoryLine:
    """The fields that every line has. Lines of unknown events are read as this class itself."""

    event: str = ""
    at: str = ""  # UTC, ISO 8601
    dataset: str = ""
    release: str = ""
    run: Annotated[str, LEFT_OUT] = ""  # "" for a repair
    claim: Annotated[int | None, LEFT_OUT] = None  # number of the claim that was valid
    author: Annotated[Author, INLINE] = NOBODY


@dataclass(frozen=True)
class Publication(HistoryLine):
    """The run sealed `release`, and `current` was pointed at it, or pointed at that name already."""

    event: str = "publish"
    run: str = ""
    claim: int | None = None
    seal: str = ""  # `sha256:<hex>` of the seal's bytes
    root: str = ""  # `sha256:<hex>`: root of the tree over the manifest's rows
    files: int = 0
    bytes: int = 0
    previous: str | None = None  # the release that `current` pointed at before, if it was another
    renamed: Annotated[int, LEFT_OUT] = 0  # files identified by checksums under another name (`Seal.renamed`)
    copied_files: Annotated[int, LEFT_OUT] = 0  # files from the source, neither linked nor taken over
    copied_bytes: Annotated[int, LEFT_OUT] = 0
    # repeated calls to the source by the attempts that finished the copy
    retries: Annotated[int, LEFT_OUT] = 0


@dataclass(frozen=True)
class Rollback(HistoryLine):
    """`current` was pointed back at `release`."""

    event: str = "rollback"
    claim: int | None = None
    left: Annotated[str, "from"] = ""  # the release that `current` pointed at before
    nonce: str = ""  # nonce of the `RollbackIntent` that this line completes


@dataclass(frozen=True)
class Removal(HistoryLine):
    """A release lost its name, and its files were removed afterwards."""

    event: str = "remove"
    run: str = ""
    why: str = ""
    files: int = 0  # number of files according to the release's seal, which also has `bytes`
    bytes: int = 0
    nonce: str = ""  # nonce of the `RemovalMark`


@dataclass(frozen=True)
class Unpinning(HistoryLine):
    """The owner removed a reader's pin."""

    event: str = "unpin"
    pin: str = ""  # the pin's name
    of: int | None = None  # number of the account that had placed the pin
    told: str = ""  # the pin in words


@dataclass(frozen=True)
class Signing(HistoryLine):
    """A release that was published unsigned was signed."""

    event: str = "sign"
    seal: str = ""  # `sha256:<hex>` of the seal's bytes


@dataclass(frozen=True)
class CtimeInterval(HistoryLine):
    """Penstock linked or unlinked files of a release. This moved the ctimes of their inodes, which other
    releases share (`tables.json_files`)."""

    event: str = "interval"
    # first and last moved ctime, in nanoseconds since the epoch, on the clock of the target's file system
    first_ns: int = 0
    last_ns: int = 0


class RepairCounts(NamedTuple):
    """Counts of files. They are complete even if `Repair` lists only the first paths."""

    repaired: int = 0
    unrepairable: int = 0


@dataclass(frozen=True)
class Repair(HistoryLine):
    """Files of a release were recreated."""

    event: str = "repair"
    audit: str = ""  # the audit whose findings were repaired
    repaired: Sequence[str] = ()  # paths; if there are many, only the first
    unrepairable: Sequence[tuple[str, str]] = ()  # path and reason; if there are many, only the first
    counts: RepairCounts = field(default_factory=RepairCounts)
    fetched_bytes: int = 0
    # where an fsync of fetched files ended; "" if on the servers' disks
    fsync_ends: Annotated[str, LEFT_OUT] = ""


# the kinds of lines that this version writes, by event
LINE_KINDS: dict[str, Document[Any]] = {
    kind.event: Document(kind, "a line of the dataset's history")
    for kind in (Publication, Rollback, Repair, Removal, Unpinning, Signing, CtimeInterval)
}
_OTHER = Document(HistoryLine, "a line of the dataset's history")


def line_to_json(line: HistoryLine) -> dict[str, object]:
    return LINE_KINDS[line.event].to_json(line)


def line_from_json(content: bytes, where: object) -> HistoryLine:
    """Parse a line. Raises NewerFormatError, or ValueError for anything that is no line of a history."""
    raw = loads(content)
    line: HistoryLine = LINE_KINDS.get(str(raw.get("event")), _OTHER).from_value(raw, where)
    return line


class StateMarker(NamedTuple):
    """`state.json` in a dataset's state: penstock 1.0 or later made the state."""

    penstock: str  # the version that made the state


class StatePointer(NamedTuple):
    """`.penstock` in a dataset's folder, if it is a file: the state is elsewhere (`target.state_root`)."""

    state_root: str
    id: str  # the id in the state's `root.json`; another id means a state made while this was not mounted


class StateRoot(NamedTuple):
    """`root.json` in a state below `target.state_root`: the dataset's folder that the state belongs to."""

    id: str
    root: str  # the target's root, absolute


class ClaimFile(NamedTuple):
    """`claims/<number>.json`: the dataset was claimed for this run."""

    run: RunName  # "" if the claim cannot be read
    number: int  # the claim's number, one above the previous claim's
    by: Mapping[str, object] | None  # the `list` process that made the claim, in the form of `dataset.holder`
    controller: ProcessName  # the workflow that started that process, on the same host; "": none


class Given(NamedTuple):
    """Who gave an order or ended a step, and when."""

    at: Moment = 0.0
    user: str = "?"
    host: str = "?"


class LastEnd(NamedTuple):
    """`ended.json` in a dataset's state: how the last command that staged it failed or was stopped."""

    step: str = ""  # "" if stopped between two steps
    exit: int = 1  # exit status (docs/commands.md), or 128 plus the signal's number
    why: str = ""  # the reason, in a single line
    hint: str = ""  # the message's advice, or ""
    given: Annotated[Given, INLINE] = Given()
    stopped: bool = False  # whether a signal or `penstock cancel` stopped it, not an error


class Cancellation(NamedTuple):
    """`cancelled.json` in a dataset's state: the last `penstock cancel`, which ended the dataset's arrays."""

    nonce: str = ""  # distinguishes one cancel from another; "" if there was none
    given: Annotated[Given, INLINE] = Given()


class Throttle(NamedTuple):
    """`throttle.json` in a run's folder: the last `penstock limit DATASET --nodes N`."""

    at_once: int = 0  # elements of a step that may run at once; 0: as in `cluster.max_elements`
    given: Annotated[Given, INLINE] = Given()


class TakenMark(NamedTuple):
    """`runs/<run>/taken.json`: another run was planned to use this run's staging, and may have its files."""

    by: str  # the other run
    staging: str  # name of the staging below `releases/`; "" if it is unchanged


class AdoptedTree(NamedTuple):
    """`runs/<run>/adopted.json`: the run's staging is, or is to become, a tree that penstock did not write.
    The mark is written before the tree is changed. The top folder's inode shows where the tree is now,
    so that a killed run can resume."""

    run: RunName
    adoption: str  # the comparison's id
    folder: str  # the folder of that comparison's state
    tree: str  # the tree's former path, without links
    device: FileNumber
    inode: FileNumber  # inode of the tree's top folder
    aside: str  # the folder for files that the release will not contain
    at: str  # UTC, ISO 8601
    settled: bool = False  # the journals have every file that was taken over, so only the copy is left

    @property
    def key(self) -> str:
        """The value of `staging` in rows that are taken over from this tree."""
        return f"adopted-{self.adoption}"


class RollbackIntent(NamedTuple):
    """`rollback.json`: the release that `current` is about to lead to. It exists until the history has the
    rollback's line, which has these values."""

    release: str
    left: Annotated[str, "from"]  # the release that `current` led to at that time
    nonce: str  # also in the history's line, so that two rollbacks in the same second have a line each
    at: str  # UTC, ISO 8601
    author: Annotated[Author, INLINE]
    claim: int  # number of the valid claim


class RemovalMark(NamedTuple):
    """`releases/.removing-<release>`: a release is about to be removed, and no reader pins it any more. The
    history gets a line with these values once the release has lost its name."""

    release: str
    nonce: str  # random digits in the new name of the release's folder: `.removed-<release>-<nonce>`
    at: str  # UTC, ISO 8601
    author: Annotated[Author, INLINE]
    run: RunName  # the run that published the release; its state is removed, too. "" if there is no seal
    why: str
    files: int  # number of files according to the seal, which also has `bytes`
    bytes: int


class EmptyFolders(NamedTuple):
    """`empty-folders.json` in a run and beside the manifest: a source's empty folders, if they are kept."""

    folders: Sequence[str]  # paths below `data/` in byte order; bytes that are not UTF-8 as surrogate escapes


STATE_MARKER = Document(StateMarker, "a dataset's state")
STATE_ROOT = Document(StateRoot, "a state's root")
STATE_POINTER = Document(StatePointer, "where a dataset's state lies")
CLAIM_FILE = Document(ClaimFile, "a claim of a dataset")
LAST_END = Document(LastEnd, "how a dataset's last command ended")
CANCELLATION = Document(Cancellation, "a dataset's mark of a cancel")
THROTTLE = Document(Throttle, "a run's throttle")
TAKEN_MARK = Document(TakenMark, "the mark of a staging that was taken over")
ADOPTED_TREE = Document(AdoptedTree, "the mark of an adopted tree")
ROLLBACK_INTENT = Document(RollbackIntent, "the intent of a rollback")
REMOVAL_MARK = Document(RemovalMark, "the mark of a removal")
EMPTY_FOLDERS = Document(EmptyFolders, "a list of empty folders")


class PinFile(NamedTuple):
    """The release that is read, the reader, and facts that show when the reader has ended."""

    release: str
    at: str  # time when the pin was placed: UTC, ISO 8601
    user: str = ""
    host: str = ""
    boot: str = ""
    namespace: str = ""  # namespace of the process numbers, as in a lock
    pid: int = 0
    start: str = ""  # start of the reader's process, in the kernel's ticks
    program: str = ""  # name of that process's program
    job: str = ""  # the job's number, if the kernel proves that the reader is in it
    cluster: str = ""
    restart: str = ""


class LastPin(NamedTuple):
    """The last reader that pinned a release."""

    uid: int
    at: float  # seconds since the epoch, on the file system's clock


class LastPins(NamedTuple):
    """`last-pins.json` in the dataset's folder: what gc records about pins that it removes."""

    releases: Mapping[str, LastPin]


PIN = Document(PinFile, "a pin")
LAST_PINS = Document(LastPins, "who pinned releases last")


def pin_from_json(raw: object) -> PinFile:
    """Return the pin in parsed JSON; a newer format's has only `release` and `at`. Raises ValueError."""
    if not isinstance(raw, dict) or not isinstance(raw.get("format"), int):
        raise ValueError("it is no pin")
    if newer_pins(raw):
        raw = {name: raw.get(name) for name in ("release", "at")}
    return typed_json.read(PinFile, raw)


def newer_pins(raw: object) -> int:
    """Return the format of a pin that a newer version wrote; 0 for any other pin."""
    number = raw.get("format") if isinstance(raw, dict) else None
    return number if isinstance(number, int) and number > PIN.newest else 0


Count = Annotated[int, between(0, LARGEST)]


class StillToWrite(NamedTuple):
    """What a run, repair or rehearsal will still write."""

    bytes: Count = 0  # bytes in whole blocks
    files: Count = 0  # files and folders
    chunk_files: Count = 0  # chunk files on storage targets (Lustre: objects) for `files`; 0: not known
    uid: int = -1  # owner of the files; after reading, the owner of the document
    gid: int = -1  # group of the files
    pool: str = ""  # storage pool of the files, as the vendor's commands call it; "": not known


class UnderWay(NamedTuple):
    """The process that stages the dataset, or the job that will do so."""

    step: str  # a name in the table of steps; `submit`: a submitted controller waits for SLURM
    since: str  # UTC, ISO 8601: when this controller or job began, or was submitted
    host: str = ""
    job: str = ""  # decimal number of the job that ends with the staging; "": none
    cluster: str = ""
    controller: ProcessName = ""  # the workflow that started the step; "" if a person started it
    writes: Annotated[StillToWrite, INLINE] = StillToWrite()
    made: bool = False  # a submission made the dataset's folder, to be removed with this notice

    def continues(self, before: "UnderWay") -> bool:
        """Return whether this and `before` are work of one job or, outside of jobs, of one controller."""
        if self.job or before.job:
            return (self.job, self.cluster) == (before.job, before.cluster)
        return bool(self.controller) and (self.host, self.controller) == (before.host, before.controller)


UNDER_WAY = Document(UnderWay, "what is under way of a dataset")


class Adoption(NamedTuple):
    """A comparison of a tree with a listing."""

    id: str  # 16 hex digits of a hash over the tree, the listing and all that decides how rows are cut
    dataset: str
    tree: str  # absolute path of its top folder, without links
    device: FileNumber
    inode: FileNumber  # inode of that folder
    created: str  # UTC, ISO 8601
    listing: str  # `sha256:<hex>` of the listing
    files: int
    bytes: int  # bytes of the files in the listing
    scanned: int
    ignored: Mapping[str, int]  # objects that the listing leaves out by policy, as in `RunInfo`
    read_source: bool  # whether files without a stated checksum are read at the source
    filesystem: str  # as `target.filesystem`
    recall: int  # bytes of tiered files that all elements together may fetch back to read

    def layout(self, layout: DatasetLayout) -> RunLayout:
        """Return the paths of the comparison's state, which has the shape of a run's."""
        return RunLayout(layout.adoptions / self.id)


ADOPTION = Document(Adoption, "a comparison's description")
