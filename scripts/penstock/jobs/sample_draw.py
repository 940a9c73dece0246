"""The draw of an audit: which files an `AuditSelection` reads.

The unit is a file or, of a giant (an object copied in parts over several shards), each part. The draw depends
only on path and part, so a killed audit continues with the same files; `jobs.counted_readings` repeats it.

If a rotation first takes files read back soon after their writing, the slices cut one order of all files into
pieces of one size:

| the file was read back | its place in the order, from 0 to 1                                     |
|------------------------|-------------------------------------------------------------------------|
| soon                   | its path's number, within the first `share`                             |
| later                  | its path's number, counted from `start` on, within what is left         |
"""

from __future__ import annotations

import math
from hashlib import blake2b
from os import fsencode
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.audit_documents import AuditSelection


def takes(choice: AuditSelection, path: str, part: int = -1, *, soon: bool = False) -> bool:
    """Return whether this file (or this part of it; -1: the whole file) is read."""
    return bool(drawn(choice, [fsencode(path)], [soon], part))


def drawn(choice: AuditSelection, paths: Sequence[bytes], soon: Sequence[bool], part: int = -1) -> list[int]:
    """Return the ascending indices in `paths` of the files (or their parts of number `part`) to read.

    Paths are bytes by `os.fsencode`. `soon`: which were read back soon after their writing; used only where
    `choice.soon_first` has a share.
    """
    if choice.kind == "whole" or (choice.kind == "sample" and choice.share >= 1):
        return list(range(len(paths)))
    seed = choice.seed if choice.kind == "sample" else "rotation"
    head = b"%b\x00%d\x00" % (seed.encode(), part)
    if choice.kind == "sample":
        # XXH3 costs a seventh of BLAKE2 a path, which took 1 s of CPU for a million paths. The seed is
        # unknown before the audit begins, so nobody can choose paths that escape.
        number, key = xxhash.xxh3_64_intdigest, int.from_bytes(blake2b(head, digest_size=8).digest())
        limit = math.ceil(choice.share * 2.0**64)
        return [i for i, path in enumerate(paths) if number(path, key) < limit]
    # BLAKE2 stays: a rotation covers everything only when all slices are cut alike, and it outlives versions
    # of penstock.
    value, turn, turns = int.from_bytes, choice.turn, choice.turns
    numbers = (value(blake2b(head + path, digest_size=8).digest()) for path in paths)
    if not (share := choice.soon_first.share):
        return [i for i, number in enumerate(numbers) if number % turns == turn]
    start, left = choice.soon_first.start, 1 - share
    fractions = zip(soon, (number / 2.0**64 for number in numbers), strict=True)
    places = (share * at if first else share + left * ((at - start) % 1) for first, at in fractions)
    return [i for i, place in enumerate(places) if min(int(place * turns), turns - 1) == turn]
