"""One damaged file made anew, from the source's pinned version, and only where it is damaged.

A file is fetched whole; of a giant only the damaged parts are, one ranged read each, and the
others are copied from what is there, every byte compared with the manifest on the way.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from typing import TYPE_CHECKING, Any

import xxhash

from penstock.core.model import Entry
from penstock.engine.stream import BLOCK, may_retry, pause
from penstock.errors import (
    ExpiredCredentialsError,
    IntegrityError,
    ObjectError,
    PenstockError,
    SourceChangedError,
    TransientError,
)
from penstock.sources.opening import credentials, open_source
from penstock.storage.cold import ColdReader
from penstock.storage.facts import facts
from penstock.storage.failures import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from penstock.config.model import DatasetConfig, EngineConfig, SourceConfig
    from penstock.core.findings import Finding
    from penstock.core.model import Record
    from penstock.sources.port import Reader, Source
    from penstock.storage.mending import Mender

DIGEST_BYTES = 16


class Fetcher:
    """The sources of a release, by the index that its records have; readers for each thread."""

    def __init__(self, dataset: DatasetConfig, seal: Mapping[str, Any], engine: EngineConfig) -> None:
        self.attempts = engine.attempts
        self.fetched = 0
        """Bytes read from the sources."""
        self._lock = threading.Lock()
        self._sources: dict[int, tuple[SourceConfig, Source]] = {}
        opened: dict[str, tuple[SourceConfig, Source]] = {}
        for config in dataset.sources:
            source = open_source(config, dataset, credentials=credentials(config), timeout=engine.timeout)
            opened[source.url] = config, source
        for index, told in enumerate(seal.get("sources", ())):
            if told["url"] in opened:
                self._sources[index] = opened[told["url"]]
        self._readers: dict[tuple[int, int], Reader] = {}

    def reader(self, record: Record) -> Reader:
        """Raises ObjectError when the release's source is not configured any more."""
        if record.source not in self._sources:
            raise ObjectError("its source is not in the configuration any more", where=printable(record.path))
        place = (threading.get_ident(), record.source)
        with self._lock:
            reader = self._readers.get(place)
            if reader is None:
                reader = self._readers[place] = self._sources[record.source][1].reader()
        return reader

    def renew(self, record: Record) -> None:
        """Temporary credentials ran out."""
        with self._lock:
            config, source = self._sources[record.source]
            source.renew(credentials(config))

    def count(self, size: int) -> None:
        with self._lock:
            self.fetched += size

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()


def is_right(record: Record, parts: tuple[int, ...], data: Path) -> bool:
    """Whether a file (or these parts of a giant) reads back as published: somebody has repaired it,
    or an earlier repair that was stopped."""
    size = part_bytes(record)
    with contextlib.suppress(PenstockError), ColdReader(data, facts(data)) as cold:
        for number in parts:
            length = min(size, record.size - number * size)
            digest = xxhash.xxh3_128()
            seen = cold.read(record.path, number * size, length, digest.update)
            if seen.stat.st_size != record.size or digest.digest() != _part(record, number):
                return False
        if not parts:
            read = _Digest(record)
            seen = cold.read(record.path, 0, record.size, read.update)
            return seen.stat.st_size == record.size and read.right()
        return True
    return False


def refetch(
    record: Record,
    finding: Finding,
    data: Path,
    mender: Mender,
    fetcher: Fetcher,
    wait: Callable[[float], bool],
) -> str:
    """Replace one file by what the manifest says it is; how it was read back afterwards.

    Raises SourceChangedError or ObjectError when the source does not have these bytes any more:
    the file then stays as it is. `wait(seconds)` is True when the run is to stop.
    """
    seen = facts(data)
    method = ""

    def fill(fd: int, temporary: str) -> None:
        nonlocal method
        if record.parts:
            _fill_giant(record, finding, fd, mender, fetcher, wait)
        else:
            _fetch(_entry(record), 0, record.size, record.digest, fd, fetcher, record, wait)
        os.fsync(fd)
        read = _Digest(record)
        with ColdReader(data, seen) as cold:
            method = cold.read(temporary, 0, record.size, read.update).method
        if not read.right():
            raise IntegrityError(
                "the repaired file does not read back as written", where=printable(record.path)
            )

    mender.replace(record.path, record.mtime_ns, fill)
    return method


def _entry(record: Record) -> Entry:
    return Entry(
        record.path, record.key, record.size, record.token, record.modified_ns, record.source, record.version,
        length=record.size,
    )  # fmt: skip


def _fill_giant(
    record: Record,
    finding: Finding,
    fd: int,
    mender: Mender,
    fetcher: Fetcher,
    wait: Callable[[float], bool],
) -> None:
    size = part_bytes(record)
    os.ftruncate(fd, record.size)
    with mender.old(record.path) as old:
        for number, offset in enumerate(range(0, record.size, size)):
            length = min(size, record.size - offset)
            digest = f"xxh3_128:{_part(record, number).hex()}"
            if old is not None and number not in finding.parts and _keep(old, fd, offset, length, digest):
                continue
            entry = _entry(record)._replace(part=number, offset=offset, length=length)
            _fetch(entry, offset, length, digest, fd, fetcher, record, wait)


def _keep(old: int, new: int, offset: int, length: int, digest: str) -> bool:
    """Copy a part that is still good; False when it is not after all."""
    hashed = xxhash.xxh3_128()
    done = 0
    while done < length:
        try:
            block = os.pread(old, min(BLOCK, length - done), offset + done)
        except OSError:
            return False
        if not block:
            return False
        hashed.update(block)
        _write(new, memoryview(block), offset + done)
        done += len(block)
    return f"xxh3_128:{hashed.hexdigest()}" == digest


def _fetch(
    entry: Entry,
    offset: int,
    length: int,
    digest: str,
    fd: int,
    fetcher: Fetcher,
    record: Record,
    wait: Callable[[float], bool],
) -> None:
    tried = 0
    while True:
        tried += 1
        try:
            _fetch_once(entry, offset, length, digest, fd, fetcher, record)
            return
        except PenstockError as error:
            if isinstance(error, SourceChangedError) or not may_retry(error, tried, fetcher.attempts):
                raise
            if isinstance(error, ExpiredCredentialsError):
                fetcher.renew(record)
            asked = error.after if isinstance(error, TransientError) else None
            # Spreading retries needs no secret randomness.
            if wait(pause(tried, asked, random.random())):  # noqa: S311
                raise


def _fetch_once(
    entry: Entry, offset: int, length: int, digest: str, fd: int, fetcher: Fetcher, record: Record
) -> None:
    hashed = xxhash.xxh3_128()
    buffer = memoryview(bytearray(BLOCK))
    body = fetcher.reader(record).open(entry, offset, length)
    try:
        done = 0
        while count := body.readinto(buffer):
            if done + count > length:
                raise IntegrityError("the body is longer than published", where=printable(record.path))
            hashed.update(buffer[:count])
            _write(fd, buffer[:count], offset + done)
            done += count
        if done != length:
            raise TransientError(
                "the body ended early", where=printable(record.path), why=f"{done} of {length} bytes"
            )
        body.close()
    except BaseException:
        body.abandon()
        raise
    fetcher.count(length)
    if f"xxh3_128:{hashed.hexdigest()}" != digest:
        raise IntegrityError(
            "the source's bytes are not those that were published", where=printable(record.path)
        )


def _write(fd: int, view: memoryview, offset: int) -> None:
    while view:
        done = os.pwrite(fd, view, offset)
        offset, view = offset + done, view[done:]


def part_bytes(record: Record) -> int:
    """Of a giant; any other file is its own only part."""
    return int(record.digest.partition(":")[0].partition("/")[2] or 0)


def _part(record: Record, number: int) -> bytes:
    return record.parts[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]


class _Digest:
    """Compares bytes, in order, with a record's digest: a file's own, or those of a giant's parts."""

    def __init__(self, record: Record) -> None:
        kind, _, value = record.digest.partition(":")
        self._wanted = record.parts or bytes.fromhex(value)
        self._size = self._left = part_bytes(record) if record.parts else max(1, record.size)
        self._known = bool(record.parts) or kind == "xxh3_128"
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
