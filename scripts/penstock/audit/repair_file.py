"""Replaces one damaged file by bytes of the source's pinned version; of a giant it reads only the damaged
parts.

A file is fetched whole. Of a giant only the damaged parts are fetched, one ranged read each; the others are
copied from the present file, by the file system itself where it can. Every byte of the new file is read back
and compared with the manifest before the new file replaces the old one.
"""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import wait
from typing import TYPE_CHECKING, TypeVar

import xxhash

from penstock.audit.repair_source import part_bytes
from penstock.core.digests import DIGEST_BYTES, Digest, is_plain, part_of
from penstock.errors import IntegrityError, PenstockError
from penstock.filesystem.capabilities import facts
from penstock.filesystem.cold_read import ColdReader
from penstock.filesystem.errno_map import printable
from penstock.storage.file_replacement import copy_range

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penstock.audit.repair_source import Fetcher
    from penstock.core.findings import Finding
    from penstock.core.model import Record
    from penstock.state.context import Stop
    from penstock.storage.port import Mender

T = TypeVar("T")


def is_right(record: Record, parts: tuple[int, ...], data: Path) -> bool:
    """Whether a file (or these parts of a giant) reads back as published: somebody has repaired it,
    or an earlier repair that was stopped."""
    with contextlib.suppress(PenstockError), ColdReader(data, facts(data)) as cold:
        if parts:
            return all(read_back(cold, record.path, record, number)[0] for number in parts)
        read = _Digest(record)
        seen = cold.read(record.path, 0, record.size, read.update)
        return seen.stat.st_size == record.size and read.right()
    return False


def read_back(cold: ColdReader, path: str, record: Record, number: int) -> tuple[bool, str]:
    """Whether one part of a giant, read from `path`, is as published; and how it was read."""
    size = part_bytes(record)
    digest = xxhash.xxh3_128()
    seen = cold.read(path, number * size, min(size, record.size - number * size), digest.update)
    return seen.stat.st_size == record.size and digest.digest() == part_of(record.parts, number), seen.method


def refetch(
    record: Record, finding: Finding, data: Path, mender: Mender, fetcher: Fetcher, stop: Stop
) -> str:
    """Replace one file by the bytes that the manifest states. Returns how it was read back afterwards.

    Raises SourceChangedError or ObjectError when the source no longer has these bytes: the file then stays as
    it is.
    """
    method = ""

    def fill(fd: int, temporary: str) -> None:
        nonlocal method
        if record.parts:
            method = _Giant(record, finding, data, mender, fetcher, stop).fill(fd, temporary)
            return
        fetcher.fetch(record, fd, stop)
        os.fsync(fd)
        read = _Digest(record)
        with ColdReader(data, facts(data)) as cold:
            method = cold.read(temporary, 0, record.size, read.update).method
        if not read.right():
            raise _unlike(record)

    mender.replace(record.path, record.mtime_ns, fill)
    return method


def _unlike(record: Record) -> IntegrityError:
    return IntegrityError("the repaired file does not read back as written", where=printable(record.path))


class _Giant:
    """One giant made anew, many parts at once: the damaged ones from the source, the others from the file
    that is there, and all of them read back."""

    def __init__(
        self, record: Record, finding: Finding, data: Path, mender: Mender, fetcher: Fetcher, stop: Stop
    ) -> None:
        self._record, self._finding, self._data = record, finding, data
        self._mender, self._fetcher, self._stop = mender, fetcher, stop
        self._numbers = range(len(record.parts) // DIGEST_BYTES)
        self._methods: set[str] = set()
        self._facts = facts(data)

    def fill(self, fd: int, temporary: str) -> str:
        """Every part of it durable and read back; the weakest way in which that was done."""
        os.ftruncate(fd, self._record.size)
        with self._mender.old(self._record.path) as old:
            self._all(lambda number: self._make(number, fd, old), self._numbers)
        os.fsync(fd)
        wrong = [
            n for n, good in zip(self._numbers, self._look(temporary, self._numbers), strict=True) if not good
        ]
        if wrong:
            # What was thought to be good in the file that is there is not, or was not copied as it is.
            self._all(lambda number: self._fetcher.fetch(self._record, fd, self._stop, number), wrong)
            os.fsync(fd)
            if not all(self._look(temporary, wrong)):
                raise _unlike(self._record)
        return max(self._methods, key=("direct", "dropped", "cached").index)

    def _look(self, temporary: str, numbers: Sequence[int]) -> list[bool]:
        return self._all(lambda number: self._reads_back(number, temporary), numbers)

    def _all(self, work: Callable[[int], T], numbers: Sequence[int]) -> list[T]:
        """In order. None of them runs any more when this returns or raises."""
        futures = [self._fetcher.pool.submit(work, number) for number in numbers]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()
            wait(futures)

    def _make(self, number: int, fd: int, old: int | None) -> None:
        self._stop.check()
        offset, length = self._range(number)
        if old is None or number in self._finding.parts or not copy_range(old, fd, offset, length):
            self._fetcher.fetch(self._record, fd, self._stop, number)

    def _reads_back(self, number: int, temporary: str) -> bool:
        self._stop.check()
        with ColdReader(self._data, self._facts) as cold:
            good, method = read_back(cold, temporary, self._record, number)
        self._methods.add(method)
        return good

    def _range(self, number: int) -> tuple[int, int]:
        size = part_bytes(self._record)
        return number * size, min(size, self._record.size - number * size)


class _Digest:
    """Compares bytes, in order, with a record's digest: a file's own, or those of a giant's parts."""

    def __init__(self, record: Record) -> None:
        self._wanted = record.parts or bytes.fromhex(Digest.parse(record.digest).value)
        self._size = self._left = part_bytes(record) if record.parts else max(1, record.size)
        self._known = bool(record.parts) or is_plain(record.digest)
        self._hash = xxhash.xxh3_128()
        self._found = b""

    def update(self, block: memoryview) -> None:
        while block:
            if not self._left:
                self._next()
            piece = block[: self._left]
            self._hash.update(piece)
            self._left -= len(piece)
            block = block[len(piece) :]

    def _next(self) -> None:
        self._found += self._hash.digest()
        self._hash, self._left = xxhash.xxh3_128(), self._size

    def right(self) -> bool:
        """Once all bytes have passed."""
        self._next()
        return self._known and self._found == self._wanted
