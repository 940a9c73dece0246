"""Checksums that a source states, computed in the same pass as the copy and compared.

What is checked of a row's claims (a whole object `W`, a part of a giant `P`):

    claim                                            W                  P
    full, any algorithm                              the cheapest one   -
    full, crc64nvme crc32c crc32                     as above           its own CRC is kept, to be combined
    full, of the listing or a checksum file          always             -
    composite, the size of its parts is known        if nothing full    -
    part                                             -                  the cheapest one

A claim that is contradicted is an IntegrityError. What is not checked says nothing.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING, Any, Protocol

import xxhash

from penstock.core.model import Claim
from penstock.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.core.model import Entry

# Cheapest first; among equals the longest.
RANK = ("crc64nvme", "crc32c", "xxh3_128", "xxh64", "crc32", "sha256", "sha1", "sha512", "md5")
COMBINABLE = {"crc64nvme": 16, "crc32c": 8, "crc32": 8}


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


def _crc(algorithm: str) -> Callable[[Any, int], int]:
    if algorithm == "crc32":
        return zlib.crc32
    # Loaded only where a claim needs it: it costs a worker 40 ms and some MiB.
    from awscrt import checksums

    step: Callable[[Any, int], int] = getattr(checksums, algorithm)
    return step


def new_sum(algorithm: str) -> Sum:
    """A running checksum by its name. Raises ValueError for an unknown one."""
    if algorithm in COMBINABLE:
        return _Crc(algorithm)
    if algorithm == "xxh3_128":
        return xxhash.xxh3_128()
    if algorithm == "xxh64":
        return xxhash.xxh64()
    return hashlib.new(algorithm, usedforsecurity=False)


class Composite:
    """S3's composite: the same algorithm over the raw digests of the parts."""

    __slots__ = ("_algorithm", "_left", "_outer", "_part", "_part_size")

    def __init__(self, algorithm: str, part_size: int) -> None:
        self._algorithm, self._part_size = algorithm, part_size
        self._outer = new_sum(algorithm)
        self._part = new_sum(algorithm)
        self._left = part_size

    def update(self, block: Any) -> None:
        view = memoryview(block)
        while view:
            if not self._left:
                self._next()
            piece = view[: self._left]
            self._part.update(piece)
            self._left -= len(piece)
            view = view[len(piece) :]

    def _next(self) -> None:
        self._outer.update(bytes.fromhex(self._part.hexdigest()))
        self._part = new_sum(self._algorithm)
        self._left = self._part_size

    def hexdigest(self) -> str:
        if self._left != self._part_size:
            self._next()
        return self._outer.hexdigest()


def best(claims: Iterable[Claim], kind: str) -> Claim | None:
    """The claim of a kind that is cheapest to check; unknown algorithms are passed over."""
    usable = [c for c in claims if c.kind == kind and c.algorithm in RANK]
    return min(usable, key=lambda c: RANK.index(c.algorithm), default=None)


def combinable(claims: Iterable[Claim]) -> Claim | None:
    """The full claim that CRCs of parts can prove together."""
    return best((c for c in claims if c.algorithm in COMBINABLE), "full")


def _listed(entry: Entry) -> tuple[Claim, ...]:
    return (Claim.parse(entry.checksum),) if entry.checksum else ()


class Sums:
    """The checks of one row. Feed every block once, in order; then `judge`."""

    __slots__ = ("_kept", "_must", "_sums", "_token", "_where")

    def __init__(
        self, entry: Entry, claims: Sequence[Claim], whole: Callable[[], Sequence[Claim]] | None = None
    ) -> None:
        """`whole` asks for the object's own claims when a part's answer carried none."""
        self._where, self._token = entry.key, entry.token
        self._must: list[Claim] = []
        self._kept = ""
        self._sums: dict[Claim | str, Sum] = {}
        if entry.part < 0:
            self._plan_whole(entry, claims)
        else:
            self._plan_part(entry, claims, whole)
        for claim in self._must:
            if claim not in self._sums:
                self._sums[claim] = (
                    Composite(claim.algorithm, claim.part_bytes)
                    if claim.kind == "composite"
                    else new_sum(claim.algorithm)
                )

    def _plan_whole(self, entry: Entry, claims: Sequence[Claim]) -> None:
        listed = _listed(entry)
        cheapest = best((*claims, *listed), "full")
        if cheapest:
            self._must = [cheapest, *(c for c in listed if c.kind == "full" and c != cheapest)]
            return
        composite = best((c for c in (*claims, *listed) if c.part_bytes), "composite")
        if composite:
            self._must = [composite]

    def _plan_part(
        self, entry: Entry, claims: Sequence[Claim], whole: Callable[[], Sequence[Claim]] | None
    ) -> None:
        exact = best(claims, "part")
        if exact:
            self._must = [exact]
        known = combinable((*claims, *_listed(entry)))
        if known is None and whole is not None:
            known = combinable(whole())
        if known:
            self._kept = known.algorithm
            self._sums[known.algorithm] = new_sum(known.algorithm)

    def __bool__(self) -> bool:
        """Whether there is anything to compute."""
        return bool(self._sums)

    def update(self, block: Any) -> None:
        for one in self._sums.values():
            one.update(block)

    def judge(self) -> tuple[str, str]:
        """(source grade, proof) of the row. Raises IntegrityError for a contradicted claim."""
        for claim in self._must:
            seen = self._sums[claim].hexdigest()
            if seen != claim.value:
                raise IntegrityError(
                    f"the bytes read contradict the source's own {claim.algorithm}",
                    where=self._where,
                    why=f"stated {claim.value}, read {seen}",
                )
        if self._kept:
            return "size", f"{self._kept}:part:{self._sums[self._kept].hexdigest()}"
        if self._must and self._must[0].kind != "part":
            return grade_of(self._must[0], self._token), str(self._must[0])
        return "size", ""


def grade_of(claim: Claim, token: str) -> str:
    """The source grade that a claim gives when it holds: an MD5 that is only the etag is weaker
    than a checksum that the store states as one."""
    if claim.kind != "full":
        return "composite" if claim.kind == "composite" else "size"
    return "etag-md5" if claim.algorithm == "md5" and claim.value == token else "full"


def combine(parts: Iterable[tuple[str, int]]) -> Claim | None:
    """The full claim of the bytes whose parts have these proofs (`<algorithm>:part:<hex>`) and
    lengths, in order; None when a part has no CRC or the algorithms differ."""
    algorithm, value = "", 0
    for proof, length in parts:
        if not proof:
            return None
        claim = Claim.parse(proof)
        if claim.kind != "part" or claim.algorithm not in COMBINABLE:
            return None
        if not algorithm:
            algorithm, value = claim.algorithm, int(claim.value, 16)
        elif claim.algorithm != algorithm:
            return None
        else:
            from awscrt import checksums

            join: Callable[[int, int, int], int] = getattr(checksums, f"combine_{algorithm}")
            value = join(value, int(claim.value, 16), length)
    return Claim(algorithm, "full", f"{value:0{COMBINABLE[algorithm]}x}") if algorithm else None


def judge_giant(where: str, combined: Claim | None, claims: Sequence[Claim]) -> tuple[str, str]:
    """(source grade, proof) of a giant from its parts' combined CRC and the object's own claims
    (`Source.checksum`). Raises IntegrityError when they contradict."""
    if combined is None:
        return "size", ""
    for claim in claims:
        if claim.kind == "full" and claim.algorithm == combined.algorithm:
            if claim.value != combined.value:
                raise IntegrityError(
                    f"the parts copied contradict the source's own {claim.algorithm}",
                    where=where,
                    why=f"stated {claim.value}, the parts give {combined.value}",
                )
            return "full", str(claim)
    return "size", ""


def tree_digest(part_bytes: int, parts: bytes) -> str:
    """A giant's digest from its parts' 16-byte digests, joined in order."""
    return f"xxh3_128/{part_bytes}:{xxhash.xxh3_128_hexdigest(parts)}"
