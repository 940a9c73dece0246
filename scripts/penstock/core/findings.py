"""What is found when a tree is compared: with a listing (which objects it has already, and how it differs),
or with the records of its release, by an audit. Documents of audits and repairs: the choice of files that an
audit reads, its findings, the files that a repair fetched, and the verdict on a release. Pure.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Protocol, TypeVar

from penstock.core import human, typed_json
from penstock.core.human import in_quotes
from penstock.core.layout import DatasetLayout, RunLayout
from penstock.core.model import Copied, Entry, Reuse, proof_text
from penstock.core.typed_json import INLINE, LEFT_OUT, Document, FileNumber, Utc

# Trees that are compared with a listing: staging that a run takes over, and trees that penstock did not
# write.

# Merges a listing with the files that another run's staging already has, both in the order of paths.
#
# Equal size and time never suffice: the source's version token, the key, the source and the size must be
# equal. Verify always reads back files that are taken over. (`run.previous_release` compares columns of the
# listing with the current release.)


class HasPath(Protocol):
    @property
    def path(self) -> str: ...


Lying = TypeVar("Lying", bound=HasPath)  # a file already on the target


def merge(
    listing: Iterable[Sequence[Entry]], held: Iterator[Lying], reused: Callable[[Entry, Lying], Reuse | None]
) -> Iterator[list[Entry]]:
    """Return the listing's batches. An entry without `reuse` gets `reused(entry, file)` as its `reuse` if
    both streams have its path. Both streams are in ascending order of the path's bytes."""
    lying = next(held, None)
    for batch in listing:
        out: list[Entry] = []
        for entry in batch:
            if lying is not None and lying.path != entry.path:
                mine = os.fsencode(entry.path)
                while lying is not None and os.fsencode(lying.path) < mine:
                    lying = next(held, None)
            if lying is not None and lying.path == entry.path and not entry.reuse:
                entry = entry._replace(reuse=reused(entry, lying))
            out.append(entry)
        yield out


class Held(NamedTuple):
    """An object in another run's staging: all of it, or parts of a giant."""

    path: str
    entry: Entry  # the object as that run copied it
    copied: Copied | None  # None: a giant
    parts: dict[int, tuple[Entry, Copied]]


def grouped(rows: Iterable[tuple[Entry, Copied]]) -> Iterator[Held]:
    """Return the copied rows of a run, in order, with the rows of each giant grouped together."""
    giant: Held | None = None
    for entry, copied in rows:
        if giant is not None and giant.path != entry.path:
            yield giant
            giant = None
        if entry.part < 0:
            yield Held(entry.path, entry, copied, {})
        else:
            giant = giant or Held(entry.path, entry, None, {})
            giant.parts[entry.part] = (entry, copied)
    if giant is not None:
        yield giant


def alike(
    entry: Entry,
    theirs: Entry,
    *,
    sources: Mapping[int, int],
    keep_mtime: bool,
    certain: Callable[[Entry], bool],
) -> bool:
    """Return whether another run copied exactly the listed object. `sources` maps that run's source indices
    to this run's. `certain`: whether the source's token is strong: an equal token then proves equal bytes.

    | token is strong (`certain`) and the same | size, key, version, source | time, if kept    | answer |
    |------------------------------------------|----------------------------|------------------|--------|
    | yes                                      | same                       | same             | True   |
    | anything else                                                                            || False  |
    """
    return (
        entry.token == theirs.token
        and entry.size == theirs.size
        and entry.key == theirs.key
        and entry.version == theirs.version
        and sources.get(theirs.source) == entry.source
        and (not keep_mtime or entry.modified_ns == theirs.modified_ns)
        and certain(entry)
    )


def taken(copied: Copied, run: str) -> Reuse:
    """Return the `Entry.reuse` by which this run takes over a row that `run` copied."""
    proof = proof_text(copied.source_proof, copied.owed)
    return Reuse(copied.digest, copied.source_grade, proof, None, copied.written_host, run)


# Differences between a tree that penstock did not write and its source, with marks as in `diff`; for
# `penstock adopt`.
#
# | mark | kind     | means                                                                          |
# |------|----------|--------------------------------------------------------------------------------|
# | -    | missing  | the source has the file, but the tree lacks it                                 |
# | *    | size     | the tree's file has another size                                               |
# | *    | content  | the tree's file has the same size, but other bytes than the source (`PROOFS`)  |
# | *    | replaced | the tree has a link, folder or special file in place of the file               |
# | +    | extra    | the tree has the file, but the source lacks it                                 |
# | +    | link     | a symbolic link that the source does not have                                  |
# | +    | special  | a FIFO, socket or device                                                       |
# | !    | unread   | the tree's file could not be read: nothing is known of its bytes               |
# | !    | source   | the source's object could not be compared: it changed, is gone, or is refused  |
# | !    | moving   | the tree's file was written to while it was compared                           |
# | ~    | time     | same size, another time; the bytes were not compared with anything             |
# | ?    | excluded | the tree has a file that `include` or `exclude` leaves out of the dataset      |
# | ?    | folder   | a folder that contains no file of the source                                   |
# | ?    | unlinked | a symbolic link or special file; the source's own ones are left out as well    |
# | ?    | away     | the file was not read, since its data is in an archive or a lower tier         |
#
# Kinds marked `~` and `?` are reported but do not count as differences, also not in the exit status.

MARKS = {
    "missing": "-",
    "size": "*",
    "content": "*",
    "replaced": "*",
    "extra": "+",
    "link": "+",
    "special": "+",
    "unread": "!",
    "source": "!",
    "moving": "!",
    "time": "~",
    "excluded": "?",
    "folder": "?",
    "unlinked": "?",
    "away": "?",
}
KINDS = tuple(MARKS)
TOLD = frozenset(kind for kind, mark in MARKS.items() if mark in "~?")  # kinds that are no difference
# Kinds for files that the tree has and the listing does not.
NOT_LISTED = frozenset({"extra", "link", "special", "excluded", "folder", "unlinked"})
# Kinds of listed files whose bytes a release would have to get from the source.
TO_FETCH = frozenset({"missing", "size", "content", "replaced", "unread", "moving", "away"})

SAME, UNLIKE, OTHER, UNREAD, SOURCE, AWAY, STALE = (
    "same", "unlike", "other", "unread", "source", "away", "stale",
)  # fmt: skip
# States of a surveyed row. `unlike`: it is no regular file of the listed size. `other`: it has other bytes.
# `stale`: it was seen, but must be read again.
STATES = (SAME, UNLIKE, OTHER, UNREAD, SOURCE, AWAY, STALE)

CHECKSUM, READ, SIZE = "checksum", "source", "size"
# how a tree's bytes are compared: with the source's checksum, the source's bytes, or only the size
PROOFS = (CHECKSUM, READ, SIZE)


class Difference(NamedTuple):
    """A difference: a line of `differences.jsonl`, and part of a comparison's result."""

    kind: str
    path: str  # bytes that are not UTF-8 stay as \udcXX escapes, which JSON carries
    size: int  # bytes of the listed file, or of the tree's file if none is listed
    why: str
    how: str = ""  # one of `PROOFS` if the kind is `content`

    @property
    def mark(self) -> str:
        return MARKS[self.kind]

    def derived(self) -> Mapping[str, object]:
        """Return the further JSON fields."""
        return {"mark": self.mark}


def difference_from_json(line: bytes) -> Difference:
    """Parse a line of `differences.jsonl`. Raises ValueError."""
    difference = typed_json.read(Difference, typed_json.loads(line))
    if difference.kind not in MARKS:
        raise ValueError(f"{in_quotes(difference.kind)} is no kind of difference")
    return difference


# Selects the files that an audit reads: all, a random sample, or the next slice of a rotation. The unit is a
# file, or a part of a giant.

# Annotations are read at run time (`core.typed_json`): no `from __future__ import annotations`.

CONFIDENCE = 0.95  # probability with which one of the damaged files that `promise` counts is found
_MEMORY = "the memory of {} may have answered, and damage on the disks below it shows later"


class SoonFirst(NamedTuple):
    """How a rotation begins with files that were read back soon after their writing (`core.grades.is_soon`).
    The slices of a rotation together read everything only if these values are equal in all slices."""

    share: float = 0.0  # fraction of all files that were read back soon, below 1; 0: slices ignore the delay
    start: float = 0.0  # the first slice's beginning in the order of the other files, as a fraction


NONE_FIRST = SoonFirst()


@dataclass(frozen=True)
class AuditSelection:
    """`whole`, `sample` (a fraction `share`, drawn by `seed`) or `slice` (`turn`, from 0, of `turns`)."""

    kind: str = "whole"
    share: float = 1.0
    seed: str = ""
    turn: int = 0
    turns: int = 1
    soon_first: SoonFirst = NONE_FIRST

    @property
    def end(self) -> float:
        """The end of a slice in the order of the files that do not come first; above 1 if it wraps around."""
        end, (share, start) = (self.turn + 1) / self.turns, self.soon_first
        return start + max(0.0, end - share) / (1 - share) if share else end

    def detects(self, damaged: int) -> float:
        """Return the probability that at least one of `damaged` files, distributed at random, is read."""
        fraction = 1.0 if self.kind == "whole" else self.share if self.kind == "sample" else 1 / self.turns
        return 1.0 - (1.0 - fraction) ** damaged

    def promise(self, memory: str = "") -> str:
        """Say in a sentence what this audit can miss. `memory`: the machines that may have answered reads
        from memory instead of the disks (`core.grades.answered_by`)."""
        if self.kind == "whole":
            return f"every byte is read: {_MEMORY.format(memory) if memory else 'any damage is found'}"
        fraction = self.share if self.kind == "sample" else 1 / self.turns
        enough = 1 if fraction >= 1 else math.ceil(math.log(1 - CONFIDENCE) / math.log(1 - fraction))
        sentence = (
            f"one damaged file is found with a probability of {fraction:.2%}, "
            f"{enough} or more with at least {CONFIDENCE:.0%}"
        )
        if self.kind == "slice":
            first = ", first what was read back soon after its writing" if self.soon_first.share else ""
            together = f"slice {self.turn + 1} of {self.turns}{first}: all slices together read every byte"
            sentence = f"{together}; {sentence}"
        return f"{sentence}; {_MEMORY.format(memory)}" if memory else sentence


WHOLE = AuditSelection()  # every file


def parse_fraction(text: str) -> float:
    """Return `1%`, `0.5 %` or `0.01` as a fraction. Raises ValueError outside (0, 1]."""
    text = text.strip()
    fraction = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    if not 0 < fraction <= 1:
        raise ValueError(text)
    return fraction


def parse_turns(text: str) -> int:
    """Return `1/30` as 30. Raises ValueError for anything but 1/1 to 1/10000."""
    numerator, _, turns = text.partition("/")
    if numerator.strip() != "1" or not 1 <= int(turns) <= 10_000:
        raise ValueError(text)
    return int(turns)


class Audit(NamedTuple):
    """An audit of a release."""

    id: str
    dataset: str
    release: str
    seal: str  # `sha256:<hex>` of the release's seal at the audit's start; a new seal requires a new audit
    created: Utc  # UTC, ISO 8601
    choice: AuditSelection
    limit: int | None = None  # bytes a second for all elements together
    recall: int = 0  # bytes of tiered files that all elements together may fetch back to read
    filesystem: str = "auto"  # as `target.filesystem`
    direct: str = "unshared"  # as `verify.direct`
    look: bool = False  # whether this is the quick check of `gate --mend`, which is never resumed

    def layout(self, layout: DatasetLayout) -> RunLayout:
        """Return the paths of the audit's state, which has the shape of a run's."""
        return RunLayout(layout.audits / self.id)


AUDIT = Document(Audit, "an audit's description")


# The findings of an audit, a line for each deviation, with marks as in `diff`.
#
# | mark | kind     | means                                                                     |
# |------|----------|---------------------------------------------------------------------------|
# | -    | missing  | the manifest has the file, but the tree lacks it                          |
# | -    | folder   | an empty folder that the release kept from its source is missing          |
# | +    | extra    | the tree has the file, but the manifest lacks it                          |
# | *    | changed  | the file's bytes are not those published (of a giant, only some parts)    |
# | *    | replaced | the tree has a link, folder or special file in place of the file          |
# | !    | mode     | mode, owner, group or ACL is not as published                             |
# | !    | unread   | the file could not be read: nothing is known of its bytes                 |
# | !    | manifest | the manifest or the seal itself is damaged                                |

EMPTY_FOLDER = "folder"

FINDING_MARKS = {
    "missing": "-",
    EMPTY_FOLDER: "-",
    "extra": "+",
    "changed": "*",
    "replaced": "*",
    "mode": "!",
    "unread": "!",
    "manifest": "!",
}
# kinds of findings whose file a repair recreates from its source
REPAIRABLE = frozenset({"missing", "changed", "replaced", "unread"})
# Kinds of findings about a file in the manifest. A comparison of the tree finds them in the manifest's order.
OF_A_FILE = frozenset({"missing", "changed", "replaced"})


class Finding(NamedTuple):
    """A deviation: a line of `findings.jsonl`, and part of an audit's result."""

    kind: str
    path: str  # bytes that are not UTF-8 stay as \udcXX escapes, which JSON carries
    why: str
    parts: Sequence[int] = ()  # numbers of a giant's damaged parts

    @property
    def mark(self) -> str:
        return FINDING_MARKS[self.kind]

    def derived(self) -> Mapping[str, object]:
        """Return the further JSON fields."""
        return {"mark": self.mark}


def finding_from_json(line: bytes) -> Finding:
    """Parse a line of `findings.jsonl`. Raises ValueError."""
    finding = typed_json.read(Finding, typed_json.loads(line))
    if finding.kind not in FINDING_MARKS:
        raise ValueError(f"{in_quotes(finding.kind)} is no kind of finding")
    return finding


def also_repaired(release: str, count: int) -> str:
    """Return the sentence for a release whose shared damaged files were repaired, too."""
    them = "1 file is" if count == 1 else f"{human.count(count)} files are"
    return f"{them} the same in release {release}, and repaired there, too"


def also_in(release: str, count: int) -> str:
    """Return the sentence for a release that still has shared damaged files."""
    them = "1 damaged file is" if count == 1 else f"{human.count(count)} damaged files are"
    return f"{them} the same in release {release}, and not repaired there"


class SkippedFile(NamedTuple):
    """A skipped file, or all parts of a giant that were skipped for the same reason."""

    kind: str  # `offline` or `tiered`
    path: str  # bytes that are not UTF-8 stay as \udcXX escapes, which JSON carries
    bytes: int
    why: str


def skipped_from_json(line: bytes) -> SkippedFile:
    """Parse a line of `skipped.jsonl`. Raises ValueError."""
    return typed_json.read(SkippedFile, typed_json.loads(line))


class FetchedFile(NamedTuple):
    """A damaged file. Bytes of a path that are not UTF-8 stay as \\udcXX escapes."""

    path: str
    why: str = ""  # why the file cannot be restored, or ""
    how: str = ""  # weakest method with which reading back bypassed the caches
    inode: FileNumber = 0  # inode of the file in the repair's staging, which read back as published; or 0


class FetchedFiles(NamedTuple):
    """The files of a shard, in order. A file without `why` and `inode` was right in the release already."""

    files: Sequence[FetchedFile] = ()
    bytes: int = 0  # bytes fetched from the sources


FETCHED_FILES = Document(FetchedFiles, "what a repair fetched")


# `audits/<release>.json`: the last audits and repairs of a release, and its standing findings. Times are in
# UTC, ISO 8601.


class StandingFindings(NamedTuple):
    """The findings of an audit that are still valid, or those that a repair could not remove."""

    audit: str = ""
    at: str = ""
    counts: Mapping[str, int] = typed_json.NOTHING  # number of findings by kind
    from_disks: Annotated[bool, LEFT_OUT] = False  # as in `LastAudit`


class LastAudit(NamedTuple):
    audit: str = ""
    began: str = ""
    choice: str = ""  # `whole`, `sample` or `slice`
    status: str = ""  # `PASSED`, `PARTLY` or `FINDINGS`
    counts: Mapping[str, int] = typed_json.NOTHING
    files: int = 0  # files that were read, out of `of_files` in the release
    of_files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    promise: str = ""  # a sentence on the damage that the audit would have found
    ended: str = ""
    by: str = ""  # the account that ran the audit
    # numbers of files not opened, since their data is in an archive or a lower tier: by `offline`, `tiered`
    skipped: Mapping[str, int] = typed_json.NOTHING
    grade: str = ""
    # whether the audit read all its bytes from the disks of the servers, past the servers' memory
    from_disks: Annotated[bool, LEFT_OUT] = False


class AuditShown(NamedTuple):
    """The last audit as results show it, and whether its findings still count."""

    audit: Annotated[LastAudit, INLINE]
    # how all its findings were closed: `repaired 2026-03-14T12:03:11Z` or `overruled`
    closed: Annotated[str, LEFT_OUT] = ""


class ReadBack(NamedTuple):
    """When the release's bytes were last read back: the moment at which the audit began."""

    whole: Utc | None = None  # when a single audit read all bytes; None: never
    # when each slice was read, by the number of slices in the rotation
    slices: Mapping[int, Mapping[int, Utc]] = typed_json.NOTHING
    # the order of rotations that begin with files that were read back soon after their writing
    soon_first: Annotated[Mapping[int, SoonFirst], LEFT_OUT] = typed_json.NOTHING


class LastRepair(NamedTuple):
    """The last repair. `audit`: the audit whose findings it repaired. `repaired`: number of files."""

    at: str = ""
    audit: str = ""
    repaired: int = 0
    left: int = 0  # findings that the repair could not remove


class Overruling(NamedTuple):
    """The owner's decision to ignore the findings."""

    at: str = ""
    by: str = ""
    why: str = ""
    counts: Mapping[str, int] = typed_json.NOTHING  # the overruled findings, by kind


class Verdict(NamedTuple):
    """The content of `audits/<release>.json`."""

    dataset: str = ""
    release: str = ""
    seal: str = ""  # `sha256:<hex>` of the seal as it was published
    stands: Sequence[StandingFindings] = ()
    read: ReadBack = ReadBack()
    last: Annotated[LastAudit | None, LEFT_OUT] = None
    repair: Annotated[LastRepair | None, LEFT_OUT] = None
    overruled: Annotated[Overruling | None, LEFT_OUT] = None


VERDICT = Document(Verdict, "what the last audit said")
