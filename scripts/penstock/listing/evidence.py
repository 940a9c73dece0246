"""The evidence of a release: how strongly its files are proven, counted while the records pass, and which
files have too little.

Empty files prove themselves: their size is all there is. Insufficient evidence is reported as soon as it can
be known: preflight calls `beyond` before anything is copied, plan calls `unprovable` with the rows of the
listing, and publish gives every record to `Evidence.add`, last. `short` judges a release that is sealed
already.

Pure. A *grade* says how strongly something is proven: of the source's bytes by the checksum that the source
states (`size`, the weakest, to `full`), of the stored bytes by how they were read back (`written` to
`cold-other-node`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.documents.seal import Amount, SealedCarried, SealedEvidence
from penstock.core.grades import CARRIED, EVIDENCE_GRADES, SIZE_ONLY, storage_rank
from penstock.core.model import SourceChecksum
from penstock.engine.checksums import COMBINABLE
from penstock.fs.capabilities import passable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.config.settings import VerifyConfig
    from penstock.core.model import Entry
    from penstock.tables.files import Files


class Weak(NamedTuple):
    """A file with too little evidence."""

    path: str
    why: str
    """What is lacking, for people."""
    in_memory: bool
    """Whether it lacks no more than a reading past the pages that somebody keeps in memory."""


@dataclass
class _Amount:
    """Files of one kind of evidence, and what it lacks ("" when it is enough)."""

    lacks: str
    in_memory: bool
    """As `Weak.in_memory`."""
    files: int = 0
    bytes: int = 0


@dataclass
class Evidence:
    """Counts of the grades, and what is required."""

    minimum: str
    """The weakest storage grade that is allowed."""
    proven: bool
    """Whether a checksum of the source must have proven every file."""
    fsync_ends: str = ""
    """Where an fsync ended on nodes that wrote files, if not on the servers' disks. No grade follows from it:
    grades say what was read, and such a file is read as it was written until the servers lose power."""
    by_name: bool = False
    """Whether the weakest grade was asked for by name: then a file that was carried over lacks it."""
    _seen: dict[tuple[str, str, str, int], _Amount] = field(default_factory=dict)
    """By source grade, storage grade, method, and whether it was carried over: few."""
    _read: set[int] = field(default_factory=set)
    """When files were last read: few times."""
    _carried: set[int] = field(default_factory=set)
    """The same of those that were carried over."""

    def add(self, files: Files) -> list[Weak]:
        """Count these records. Returns the files with too little evidence."""
        carried = files["carried"]
        kinds = zip(files["source_grade"], files["storage_grade"], files["method"], carried, strict=True)
        weak = []
        for kind, path, size in zip(kinds, files["path"], files["size"], strict=True):
            amount = self._seen.get(kind) or self._new(kind)
            amount.files += 1
            amount.bytes += size
            if amount.lacks and size:
                weak.append(Weak(path, amount.lacks, amount.in_memory))
        self._read.update(files["read_at"])
        self._carried.update(compress(files["read_at"], carried))
        return weak

    def _new(self, kind: tuple[str, str, str, int]) -> _Amount:
        source, stored, method, carried = kind
        lacks, proven = "", source != SIZE_ONLY or not self.proven
        if carried and self.by_name and self.minimum != "written":
            lacks = f"carried over ({stored} then), required is {self.minimum}"
        elif storage_rank(stored) < storage_rank(self.minimum):
            lacks = f"{stored} ({method}), required is {self.minimum}"
        elif not proven:
            lacks = "no checksum of its source proved it"
        in_memory = proven and not self.by_name and (stored, method) == ("reread", "cached")
        amount = self._seen[kind] = _Amount(lacks, in_memory)
        return amount

    def _by(self, field_of_kind: int) -> dict[str, Amount]:
        amounts: dict[str, Amount] = {}
        for kind, added in self._seen.items():
            name = CARRIED if kind[3] and field_of_kind else str(kind[field_of_kind])
            amount = amounts.get(name, Amount())
            amounts[name] = Amount(amount.files + added.files, amount.bytes + added.bytes)
        return amounts

    def carried(self) -> SealedCarried | None:
        """What was not read back for this release, but carried over from an earlier one: files, bytes, and
        the oldest reading. None where all was read back."""
        amounts = [seen for (*_, carried), seen in self._seen.items() if carried]
        if not amounts:
            return None
        oldest = _utc(min(self._carried))
        return SealedCarried(sum(one.files for one in amounts), sum(one.bytes for one in amounts), oldest)

    def sealed(self) -> SealedEvidence:
        """The counts of all records added so far, as the seal has them. Empty files are counted too."""
        return SealedEvidence(
            source=self._by(0),
            storage=self._by(1),
            methods=self._by(2),
            oldest_read=_utc(min(self._read, default=0)),
            required_storage=self.minimum,
            required_source="any checksum" if self.proven else "none",
            fsync_ends=self.fsync_ends,
        )


def _utc(seconds: int) -> str:
    """ISO 8601; "" of 0, which stands for a file that was never read."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else ""


def required(verify: VerifyConfig, *, direct: bool) -> Evidence:
    """What `verify` requires, with nothing counted yet. `direct`: whether the target honours reads past the
    caches.

    minimum_grade | direct reads | weakest grade allowed
    a grade       | any          | that grade
    auto          | honoured     | cold
    auto          | not          | reread
    """
    minimum = verify.minimum_grade
    if minimum == "auto":
        minimum = "cold" if direct else "reread"
    return Evidence(minimum, verify.source_checksum == "require", by_name=verify.minimum_grade != "auto")


def beyond(verify: VerifyConfig, *, kind: str, alone: bool) -> str:
    """Why `minimum_grade` can never be reached, or "". `kind` is the target's file system; `alone`: this
    machine does everything.

    minimum_grade         | target       | alone | can be reached
    auto, written, reread | any          | any   | yes
    cold and more         | not passable | any   | no
    cold-other-node       | any          | yes   | no
    else                  | any          | any   | perhaps
    """
    minimum = verify.minimum_grade
    if minimum in ("auto", "written", "reread"):
        return ""
    if not passable(kind):
        return f"on {kind} bytes can be in caches that no read can be shown to pass"
    if minimum == "cold-other-node" and alone:
        return "who writes and who reads back is the same machine"
    return ""


def unprovable(entry: Entry, *, stated: bool, giant: bool, later: Sequence[str]) -> str:
    """Why no checksum of its source can ever prove this file, or "". `stated`: whether its source may
    state one when it is read; `later`: digests that verify makes of giants as a whole.

    | the listing or a checksum file has | source may state | giant | can be proven |
    |------------------------------------|------------------|-------|---------------|
    | anything                           | yes              | any   | perhaps       |
    | nothing, or what was read then     | no               | any   | no            |
    | a checksum                         | no               | no    | yes           |
    | a CRC, or one of `later`           | no               | yes   | yes           |
    | another one                        | no               | yes   | no            |
    """
    if stated or not entry.size:
        return ""
    if not entry.checksum or (checksum := SourceChecksum.parse(entry.checksum)).kind == "read":
        return "nothing states a checksum of it"
    algorithm = checksum.algorithm
    if giant and algorithm not in COMBINABLE and algorithm not in later:
        return (
            f"its parts cannot prove {algorithm} together (with `sha256` in `verify.digests` a SHA256 can be)"
        )
    return ""


def short(sealed: SealedEvidence, verify: VerifyConfig) -> str:
    """Why a release that is sealed has less evidence (its seal's account of it) than is asked for by name
    now, or "". Empty files need none."""
    lacking = []
    if verify.source_checksum == "require" and _bytes(sealed.source, SIZE_ONLY):
        lacking.append("files that no checksum of the source proved")
    if verify.minimum_grade != "auto":
        weaker = EVIDENCE_GRADES[: EVIDENCE_GRADES.index(verify.minimum_grade)]
        lacking += [
            f"files of which is known no more than `{g}`" for g in weaker if _bytes(sealed.storage, g)
        ]
    return " and ".join(lacking)


def _bytes(amounts: Mapping[str, Amount], grade: str) -> int:
    return amounts.get(grade, Amount()).bytes
