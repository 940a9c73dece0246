"""The evidence of a release: how strongly its files are proven, and which files have too little evidence.
Also the source's checksums of giants, queried when publish joins their parts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from penstock.core import run_steps
from penstock.core.errors import ObjectError, SourceChangedError, TransientError
from penstock.core.grades import CARRIED, EVIDENCE_GRADES, SIZE_ONLY, storage_rank
from penstock.core.human import in_quotes
from penstock.core.model import SourceChecksum
from penstock.core.seal import Amount, SealedCarried, SealedEvidence
from penstock.engine.checksums import COMBINABLE, admitted
from penstock.engine.credential_renewal import Credentials
from penstock.engine.pump import as_assumed, part_sizes
from penstock.engine.stream import Sources
from penstock.fs.capabilities import passable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.config.settings import VerifyConfig
    from penstock.core.model import Entry
    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run
    from penstock.sources.port import Source
    from penstock.tables.manifest import Files


# Queries the source's checksums of a giant when publish joins its parts. A giant is an object of 64 GiB or
# more, copied in parts by several shards, so that no shard sees all its bytes.

T = TypeVar("T")

TRIES = 5  # most tries of one query
SILENT = 60.0  # seconds without a reply after which a source is not queried again


class GiantChecksums:
    """Queries the sources that the run froze, with their frozen options. The first giant opens them.

    If a source cannot be queried, or its object was replaced since the copy, the giant counts as having no
    source checksum. Publish warns and continues. After SILENT seconds without a reply a source is not queried
    again, since there may be thousands of giants. Raises FailedError if credentials are rejected and cannot
    be renewed, since with other credentials the source might state a checksum.
    """

    def __init__(self, context: Context, run: Run) -> None:
        self._context, self._dataset = context, run.dataset
        self._config = run.config.dataset
        self._policy = run.config.verify.source_checksum
        self._opened: tuple[Credentials, Sources] | None = None
        self._silent: dict[int, TransientError] = {}

    def __call__(self, entry: Entry) -> Sequence[SourceChecksum]:
        """Return the checksums that the source states for the object; () if it states none."""
        stated = self._asked(entry, lambda source: source.checksum(entry))
        return admitted(stated or (), entry.token, self._policy)

    def as_assumed(self, entry: Entry, checksum: SourceChecksum) -> bool:
        """Return whether the object was uploaded with the part size that this composite checksum assumes."""
        return as_assumed(
            self._asked(entry, lambda source: part_sizes(source, entry, checksum)) or (), checksum
        )

    def _asked(self, entry: Entry, ask: Callable[[Source], T]) -> T | None:
        if self._opened is None:
            credentials = Credentials(self._config)
            self._opened = credentials, Sources(self._config, credentials.current)
        credentials, sources = self._opened
        where, began = self._config.sources[entry.source].url, time.monotonic()
        try:
            if entry.source in self._silent:
                raise self._silent[entry.source]
            with self._context.waiting(
                self._dataset, "publish", f"what {where} states of {in_quotes(entry.path)}"
            ):
                return credentials.asked(sources, entry.source, ask, TRIES, self._context.stop.wait)
        except TransientError as error:
            if time.monotonic() - began >= SILENT:
                self._silent[entry.source] = error
            text = f"{in_quotes(entry.path)}: its source's checksum cannot be queried: {error}"
        except (SourceChangedError, ObjectError) as error:
            text = f"{in_quotes(entry.path)}: nothing can prove its parts together any more: {error}"
        self._context.emit(run_steps.Warned(self._dataset, "publish", text))
        return None


# Counts the evidence as the records pass.
#
# Empty files need no proof. Insufficient evidence is reported as early as possible: by `beyond` before the
# copy, by `unprovable` in planning, by `Evidence.add` at publish. `short` checks a sealed release. A *grade*
# says how strongly bytes are proven. The grade of the source's bytes depends on the stated checksum, from
# `size`, the weakest, to `full`. The grade of the stored bytes depends on how they were read: from `written`
# to `cold-other-node`.


class Weak(NamedTuple):
    path: str
    why: str  # the missing evidence, for people
    in_memory: bool  # whether the files only lack a read that bypasses pages kept in memory by a process


@dataclass
class _Amount:
    """The files with one kind of evidence, and what this evidence lacks ("": nothing)."""

    lacks: str
    in_memory: bool  # as in `Weak`
    files: int = 0
    bytes: int = 0


@dataclass
class Evidence:
    """The requirements, and the counts of files by grade."""

    minimum: str  # the weakest allowed storage grade
    proven: bool  # whether a checksum of the source must have proven every file
    # The place where an fsync ended on the nodes that wrote files, if not the servers' disks. It does not
    # change grades, which tell how bytes were read: until the servers lose power, such files read as written.
    fsync_ends: str = ""
    by_name: bool = False  # whether the weakest grade was configured by name; if so, a carried file lacks it
    # files by (source grade, storage grade, method, whether carried over), which are few keys
    _seen: dict[tuple[str, str, str, int], _Amount] = field(default_factory=dict)
    _read: set[int] = field(default_factory=set)  # the few times at which files were last read
    _carried: set[int] = field(default_factory=set)  # the few times at which carried files were last read

    def add(self, files: Files) -> list[Weak]:
        """Count these records, and return the files that have too little evidence."""
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
        """Return files, bytes and the oldest reading of files whose proof was carried over from an earlier
        release, not read back. None if no proof was carried over."""
        amounts = [amount for (*_, carried), amount in self._seen.items() if carried]
        if not amounts:
            return None
        oldest = _utc(min(self._carried))
        return SealedCarried(
            sum(amount.files for amount in amounts), sum(amount.bytes for amount in amounts), oldest
        )

    def sealed(self) -> SealedEvidence:
        """Return the counts of all records so far, including empty files, in the seal's form."""
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
    """Format a time as ISO 8601; "" for 0, which means that a file was never read."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else ""


def required(verify: VerifyConfig, *, direct: bool) -> Evidence:
    """Return the requirements of `verify`, with no files counted. `direct`: whether the target honours reads
    that bypass the caches.

    minimum_grade | direct reads | weakest grade allowed
    a grade       | any          | that grade
    auto          | honoured     | cold
    auto          | not honoured | reread
    """
    minimum = verify.minimum_grade
    if minimum == "auto":
        minimum = "cold" if direct else "reread"
    return Evidence(minimum, verify.source_checksum == "require", by_name=verify.minimum_grade != "auto")


def beyond(verify: VerifyConfig, *, kind: str, alone: bool) -> str:
    """Return why `minimum_grade` can never be reached, or "". `kind`: the target's file system. `alone`:
    whether this machine does all the work.

    minimum_grade         | target       | alone | can be reached
    auto, written, reread | any          | any   | yes
    cold or stronger      | not passable | any   | no
    cold-other-node       | any          | yes   | no
    any other             | any          | any   | perhaps
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
    """Return why no checksum of its source can ever prove this file, or "". `stated`: whether its source may
    state a checksum when it is read. `later`: verify's digests of whole giants.

    | the listing or a checksum file has | source may state | giant | can be proven |
    |------------------------------------|------------------|-------|---------------|
    | anything                           | yes              | any   | perhaps       |
    | none, or only one of kind `read`   | no               | any   | no            |
    | a checksum                         | no               | no    | yes           |
    | a CRC, or one of `later`           | no               | yes   | yes           |
    | another checksum                   | no               | yes   | no            |
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
    """Return why a sealed release has less evidence than the configuration now requires by name, or "". Empty
    files need no evidence."""
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
