"""Checksums that a source states: they are computed while the bytes are copied, and compared.

A checksum is `full` (over the whole object), `composite` (over its parts' digests, as S3 makes it) or `part`
(over one part). A giant is an object copied in parts, over several shards. The table shows which checksums
are checked for a whole object `W`, and for a part `P` of a giant:

    checksum                                         W                  P
    full, any algorithm                              the cheapest       -
    full, crc64nvme crc32c crc32                     the cheapest       the part's CRC is kept, to be combined
    full, from the listing or a checksum file        always             -
    composite whose parts' size is known             if none is full    if no CRC can be kept: sums of the
                                                                        pieces between the source's cuts
    part, from an answer of the source               -                  the cheapest
    part, from the row itself (a repair)             -                  only this checksum

A contradicted checksum raises IntegrityError. The sums kept of a giant's parts together prove the giant
(`combine`, `compose`, `judge_giant`), whichever attempts copied these. The source's cuts are the ends of its
parts. CRCs of pieces can always be joined. Other sums can be joined only if the giant's parts end at cuts.
"""

from __future__ import annotations

import hashlib
import zlib
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import xxhash

from penstock.core.errors import IntegrityError
from penstock.core.grades import SIZE_ONLY
from penstock.core.model import XXH3, Digest, SourceChecksum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.core.model import Entry

# algorithms, the cheapest first; of equally cheap algorithms, the one with the longest sum first
RANK = ("crc64nvme", "crc32c", "xxh3_128", "xxh64", "crc32", "sha256", "sha1", "sha512", "md5")
SLOW = frozenset({"sha256", "sha1", "sha512", "md5"})  # slower than all other work on the bytes together
# number of hex digits of each algorithm whose sums of parts can be combined into the sum of the whole
COMBINABLE = {"crc64nvme": 16, "crc32c": 8, "crc32": 8}


class Stated(Protocol):
    """The fields of a row (`Entry` or `Expected`) that the checks need."""

    @property
    def key(self) -> str: ...
    @property
    def token(self) -> str: ...
    @property
    def checksum(self) -> str: ...
    @property
    def part(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...


class Sum(Protocol):
    """A running checksum."""

    def update(self, block: Any, /) -> object: ...
    def hexdigest(self) -> str: ...


class _Crc:
    __slots__ = ("_digits", "_step", "_value")

    def __init__(self, algorithm: str) -> None:
        self._digits = COMBINABLE[algorithm]
        self._step = _crc(algorithm)
        self._value = 0

    def update(self, block: Any) -> None:
        self._value = self._step(block, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:0{self._digits}x}"


@cache
def _crc(algorithm: str) -> Callable[[Any, int], int]:
    if algorithm == "crc32":
        return zlib.crc32
    # Imported only if a checksum needs it, as it costs a worker 40 ms and some MiB.
    from awscrt import checksums

    step: Callable[[Any, int], int] = getattr(checksums, algorithm)
    return step


def new_sum(algorithm: str) -> Sum:
    """Return a new running checksum. Raises ValueError for an unknown algorithm."""
    if algorithm in COMBINABLE:
        return _Crc(algorithm)
    if algorithm == XXH3:
        return xxhash.xxh3_128()
    if algorithm == "xxh64":
        return xxhash.xxh64()
    return hashlib.new(algorithm, usedforsecurity=False)


class Pieces:
    """The sums of the pieces between cuts at multiples of `part_size`. The first byte fed is at `offset`."""

    __slots__ = ("_algorithm", "_left", "_part_size", "_piece", "_sizes", "_values")

    def __init__(self, algorithm: str, part_size: int, offset: int = 0, sizes: Sequence[int] = ()) -> None:
        """`sizes` are the sizes of the parts, if they differ."""
        self._algorithm, self._part_size = algorithm, part_size
        self._piece = new_sum(algorithm)
        self._sizes = list(reversed(sizes))
        self._left = self._sizes.pop() if sizes else part_size - offset % part_size
        self._values: list[str] = []

    def update(self, block: Any) -> None:
        view = memoryview(block)
        while view:
            piece = view[: self._left]
            self._piece.update(piece)
            self._left -= len(piece)
            view = view[len(piece) :]
            if not self._left:
                self._next()

    def _next(self) -> None:
        self._values.append(self._piece.hexdigest())
        self._piece = new_sum(self._algorithm)
        if self._sizes:
            self._part_size = self._sizes.pop()
        self._left = self._part_size

    def hexdigest(self) -> str:
        if self._left != self._part_size:
            self._next()
        return "".join(self._values)


class Composite(Pieces):
    """S3's composite checksum: the parts' algorithm over their raw digests."""

    __slots__ = ()

    def hexdigest(self) -> str:
        return _over(self._algorithm, super().hexdigest())


class GiantDigest(Composite):
    """A giant's digest, computed from all its bytes: xxh3_128 over its parts' digests."""

    __slots__ = ("_part_bytes",)

    def __init__(self, part_bytes: int) -> None:
        super().__init__(XXH3, part_bytes)
        self._part_bytes = part_bytes

    @property
    def parts(self) -> bytes:
        """The parts' 16-byte digests, joined in order. Valid after the last byte."""
        return bytes.fromhex(Pieces.hexdigest(self))

    def digest(self) -> Digest:
        """Return the giant's digest. Valid after the last byte."""
        return tree_digest(self._part_bytes, self.parts)


def _over(algorithm: str, values: str) -> str:
    outer = new_sum(algorithm)
    outer.update(bytes.fromhex(values))
    return outer.hexdigest()


def sum_of(checksum: SourceChecksum, sizes: Sequence[int] = ()) -> Sum:
    """Return a new running sum for a checksum of the whole object.

    The parts of a composite have the size `checksum.part_bytes`, or the `sizes` if given.
    """
    if checksum.kind == "composite":
        return Composite(checksum.algorithm, checksum.part_bytes, sizes=sizes)
    return new_sum(checksum.algorithm)


def contradicted(where: str, checksum: SourceChecksum, read: str, token: str = "") -> None:
    """Raise IntegrityError if the sum `read` differs from the checksum."""
    if read != checksum.value and checksum.kind == "read":
        raise IntegrityError(
            "the bytes are not those that came when the object was listed",
            where=where,
            why=f"{checksum.algorithm} {checksum.value} then, {read} now; its source states no size of it",
        )
    if read != checksum.value:
        raise IntegrityError(
            f"the bytes read contradict the source's own {checksum.algorithm}",
            where=where,
            why=f"stated {checksum.value}, read {read}{_doubt(checksum, token)}",
        )


def _doubt(checksum: SourceChecksum, token: str) -> str:
    """Return a hint if the checksum is only an etag (not every store's etags are MD5s), or else ""."""
    if not is_etag(checksum, token):
        return ""
    return " (it is the etag; if this store's etags are no MD5, set `verify.source_checksum: stated`)"


def is_etag(checksum: SourceChecksum, token: str) -> bool:
    """Return whether the checksum is only the object's etag."""
    if checksum.algorithm != "md5":
        return False
    return token.lower() == (f"{checksum.value}-{checksum.parts}" if checksum.parts else checksum.value)


def admitted(checksums: Iterable[SourceChecksum], token: str, policy: str) -> tuple[SourceChecksum, ...]:
    """Return the checksums that the setting `verify.source_checksum` admits.

    | policy | ignored checksums |
    |---|---|
    | auto, require | none |
    | stated | MD5s that are only the etag: some stores' etags look like MD5s but are not |
    | fast | MD5, SHA-1, SHA-256, SHA-512: slower than all other work on the bytes together |
    """
    if policy == "stated":
        return tuple(checksum for checksum in checksums if not is_etag(checksum, token))
    if policy == "fast":
        return tuple(checksum for checksum in checksums if checksum.algorithm not in SLOW)
    return tuple(checksums)


def best(checksums: Iterable[SourceChecksum], kind: str) -> SourceChecksum | None:
    """Return the checksum of this kind that is cheapest to compute."""
    usable = [c for c in checksums if c.kind == kind and c.algorithm in RANK]
    return min(usable, key=lambda c: RANK.index(c.algorithm), default=None)


def combinable(checksums: Iterable[SourceChecksum]) -> SourceChecksum | None:
    """Return the cheapest full checksum that the CRCs of all parts can prove together."""
    return best((c for c in checksums if c.algorithm in COMBINABLE), "full")


def listed(entry: Stated) -> tuple[SourceChecksum, ...]:
    """Return the checksum stated by the listing or a checksum file, or in a repair by the manifest."""
    return (SourceChecksum.parse(entry.checksum),) if entry.checksum else ()


class Sums:
    """The checks of one row. Feed every block once, in order, and then call `judge`."""

    __slots__ = (
        "_kept",
        "_must",
        "_policy",
        "_sizes",
        "_sums",
        "_token",
        "_where",
        "failed",
        "stated",
    )

    def __init__(
        self,
        entry: Stated,
        checksums: Sequence[SourceChecksum],
        whole: Callable[[], Sequence[SourceChecksum]] | None = None,
        *,
        policy: str = "auto",
        sizes: Sequence[int] = (),
    ) -> None:
        """`whole` requests the object's own checksums if a part's answer had none. `admitted` explains
        `policy`. `sizes` are the sizes of the object's uploaded parts, if known."""
        self._where, self._token = entry.key, entry.token
        self._policy, self._sizes = policy, sizes
        self.failed: SourceChecksum | None = None  # the checksum that `judge` found contradicted
        checksums = admitted(checksums, entry.token, policy)
        # all checksums that the source states of the object
        self.stated: tuple[SourceChecksum, ...] = (*checksums, *listed(entry))
        self._must: list[SourceChecksum] = []
        self._kept: SourceChecksum | None = None  # sum that a part keeps to be joined; its value is ""
        self._sums: dict[SourceChecksum, Sum] = {}
        if entry.part < 0:
            self._plan_whole(entry)
        else:
            self._plan_part(entry, checksums, whole)
        for checksum in self._must:
            if checksum not in self._sums:
                self._sums[checksum] = sum_of(checksum, sizes)

    def _plan_whole(self, entry: Stated) -> None:
        cheapest = best(self.stated, "full")
        if cheapest:
            self._must = [cheapest, *(c for c in listed(entry) if c.kind == "full" and c != cheapest)]
            return
        sizes_known = len(self._sizes)
        composite = best((c for c in self.stated if c.part_bytes or sizes_known == c.parts), "composite")
        if composite:
            self._must = [composite._replace(part_bytes=0) if sizes_known else composite]
            return
        self._must = [checksum for checksum in listed(entry) if checksum.kind == "read"]

    def _plan_part(
        self,
        entry: Stated,
        checksums: Sequence[SourceChecksum],
        whole: Callable[[], Sequence[SourceChecksum]] | None,
    ) -> None:
        own = [checksum for checksum in listed(entry) if checksum.kind == "part"]
        if own:
            self._must = own
            return
        exact = best(checksums, "part")
        if exact:
            self._must = [exact]
        full = combinable(self.stated)
        if full is None and whole is not None:
            self.stated += admitted(whole(), entry.token, self._policy)
            full = combinable(self.stated)
        if full:
            self._kept = SourceChecksum(full.algorithm, "part", "")
            self._sums[self._kept] = new_sum(full.algorithm)
            return
        cut = best((c for c in self.stated if c.part_bytes and _joins(c, entry)), "composite")
        if cut:
            self._kept = SourceChecksum(cut.algorithm, "pieces", "", part_bytes=cut.part_bytes)
            self._sums[self._kept] = Pieces(cut.algorithm, cut.part_bytes, entry.offset)

    @property
    def proves(self) -> bool:
        """Whether a `judge` that passes proves the row, or proves the giant together with its other parts."""
        return self._kept is not None or bool(self._must and self._must[0].kind not in ("part", "read"))

    def __bool__(self) -> bool:
        """Whether any sum must be computed."""
        return bool(self._sums)

    @property
    def slow(self) -> bool:
        """Whether a sum is slow enough to deserve its own thread."""
        return any(checksum.algorithm in SLOW for checksum in self._sums)

    def update(self, block: Any) -> None:
        for running in self._sums.values():
            running.update(block)

    def judge(self) -> tuple[str, str]:
        """Return the row's source grade and proof. Raises IntegrityError for a contradicted checksum."""
        for checksum in self._must:
            self.failed = checksum
            contradicted(self._where, checksum, self._sums[checksum].hexdigest(), self._token)
        self.failed = None
        if self._kept:
            return SIZE_ONLY, str(self._kept._replace(value=self._sums[self._kept].hexdigest()))
        if self._must and self._must[0].kind != "part":
            return grade_of(self._must[0], self._token), str(self._must[0])
        return SIZE_ONLY, ""


def judge_at_once(
    entry: Entry, checksums: Sequence[SourceChecksum], data: memoryview
) -> tuple[str, str] | None:
    """Judge a whole object whose bytes are in memory by the cheapest algorithm in `RANK`.

    Returns None if the first stated checksum has another algorithm, or another value. `Sums` then decides.
    """
    if entry.checksum or not checksums:
        return None
    checksum = checksums[0]
    if checksum.kind != "full" or checksum.algorithm != RANK[0]:
        return None
    computed = new_sum(RANK[0])
    computed.update(data)
    if computed.hexdigest() != checksum.value:
        return None
    return grade_of(checksum, entry.token), str(checksum)


def _joins(checksum: SourceChecksum, entry: Stated) -> bool:
    """Return whether the sums kept of a giant's parts can be joined. All its parts give the same answer."""
    part = entry.offset // entry.part if entry.part else entry.length
    return checksum.algorithm in COMBINABLE or part % checksum.part_bytes == 0


def grade_of(checksum: SourceChecksum, token: str) -> str:
    """Return the source grade of a checksum that matched. An MD5 that is only the etag is weaker than a
    stated checksum."""
    if checksum.kind != "full":
        return "composite" if checksum.kind == "composite" else "size"
    return "etag-md5" if checksum.algorithm == "md5" and checksum.value == token else "full"


def combine(parts: Iterable[tuple[str, int]]) -> SourceChecksum | None:
    """Combine the proofs (`<algorithm>:part:<hex>`) and lengths of all parts, in order, into a full checksum.

    Returns None if a part has no CRC, or the algorithms differ.
    """
    algorithm, value = "", ""
    for proof, length in parts:
        if not proof:
            return None
        checksum = SourceChecksum.parse(proof)
        if checksum.kind != "part" or checksum.algorithm not in COMBINABLE:
            return None
        if algorithm not in ("", checksum.algorithm):
            return None
        value = _joined(checksum.algorithm, value, checksum.value, length) if algorithm else checksum.value
        algorithm = checksum.algorithm
    return SourceChecksum(algorithm, "full", value) if algorithm else None


def _joined(algorithm: str, first: str, second: str, length: int) -> str:
    """Combine the CRCs of two adjacent pieces; `length` is the size of the second."""
    from awscrt import checksums

    join: Callable[[int, int, int], int] = getattr(checksums, f"combine_{algorithm}")
    return f"{join(int(first, 16), int(second, 16), length):0{COMBINABLE[algorithm]}x}"


def compose(parts: Iterable[tuple[str, int, int]]) -> SourceChecksum | None:
    """Return the composite checksum from the proofs, offsets and lengths of all parts, in order.

    A proof is `<algorithm>:pieces:<hex>/<bytes between cuts>`. Returns None if the proofs cannot be joined.
    """
    first: SourceChecksum | None = None
    values: list[str] = []
    for proof, offset, length in parts:
        checksum = SourceChecksum.parse(proof) if proof else None
        if checksum is None or checksum.kind != "pieces":
            return None
        first = first or checksum
        size, digits = checksum.part_bytes, len(new_sum(checksum.algorithm).hexdigest())
        pieces = [checksum.value[i : i + digits] for i in range(0, len(checksum.value), digits)]
        same = (checksum.algorithm, size) == (first.algorithm, first.part_bytes)
        if not same or len(pieces) != -(-(offset + length) // size) - offset // size:
            return None
        begun = offset % size
        if begun:
            # This part continues the piece that the previous part began.
            if not values or checksum.algorithm not in COMBINABLE:
                return None
            values[-1] = _joined(checksum.algorithm, values[-1], pieces.pop(0), min(size - begun, length))
        values += pieces
    if first is None:
        return None
    value = _over(first.algorithm, "".join(values))
    return SourceChecksum(first.algorithm, "composite", value, len(values), first.part_bytes)


def judge_giant(
    where: str, computed: Iterable[SourceChecksum], checksums: Sequence[SourceChecksum], token: str = ""
) -> tuple[str, str]:
    """Return a giant's source grade and proof from `computed`, the checksums that `combine`, `compose` or a
    pass over the whole file gave.

    Raises IntegrityError if they contradict the object's own checksums.
    """
    for ours in computed:
        for checksum in checksums:
            if (checksum.kind, checksum.algorithm, checksum.part_bytes) != (
                ours.kind,
                ours.algorithm,
                ours.part_bytes,
            ):
                continue
            if checksum.value != ours.value:
                raise IntegrityError(
                    f"the parts copied contradict the source's own {checksum.algorithm}",
                    where=where,
                    why=f"stated {checksum.value}, the parts give {ours.value}{_doubt(checksum, token)}",
                )
            return grade_of(checksum, ""), str(checksum)
    return SIZE_ONLY, ""


def tree_digest(part_bytes: int, parts: bytes) -> Digest:
    """Return a giant's digest from its parts' 16-byte digests, which are joined in order in `parts`."""
    return Digest(XXH3, xxhash.xxh3_128_hexdigest(parts), part_bytes)
