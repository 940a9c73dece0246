"""The sources of a published release, to read again what it lost: pinned versions, whole files or single
parts of giants, every byte compared with the manifest."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import xxhash

from penstock.core.digests import Digest, of_hex, part_of
from penstock.core.model import Entry
from penstock.engine.shared_memory import Limiter, Shared
from penstock.engine.stream import BLOCK
from penstock.errors import (
    IntegrityError,
    ObjectError,
    TransientError,
)
from penstock.filesystem.errno_map import printable
from penstock.sources.backoff import retrying
from penstock.sources.registry import credentials, open_source
from penstock.storage.file_replacement import write_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.config.settings import DatasetConfig, EngineConfig, SourceConfig
    from penstock.core.documents.seal import SealedSource
    from penstock.core.model import Record
    from penstock.sources.port import Reader, Source
    from penstock.state.context import Stop

PARTS_AT_ONCE = 8
"""Of all giants that are repaired at a time."""


class Fetcher:
    """The sources of a release, by the index that its records have; readers for each thread. What is read
    keeps within `engine.limit`."""

    def __init__(self, dataset: DatasetConfig, sources: Sequence[SealedSource], engine: EngineConfig) -> None:
        self._attempts, self._limiter = engine.attempts, None
        if engine.limit:
            self._shared = Shared()
            self._limiter = Limiter(self._shared, engine.limit, threading.Event().wait)
        self.pool = ThreadPoolExecutor(PARTS_AT_ONCE, thread_name_prefix="parts")
        """Works on parts; nothing that it does waits for another part."""
        self.fetched = 0
        """Bytes read from the sources."""
        self._lock = threading.Lock()
        self._sources: dict[int, tuple[SourceConfig, Source]] = {}
        opened: dict[str, tuple[SourceConfig, Source]] = {}
        for config in dataset.sources:
            source = open_source(config, dataset, credentials=credentials(config), timeout=engine.timeout)
            opened[source.url] = config, source
        for index, sealed in enumerate(sources):
            if sealed.url in opened:
                self._sources[index] = opened[sealed.url]
        self._readers: dict[tuple[int, int], Reader] = {}

    def fetch(self, record: Record, fd: int, stop: Stop, part: int = -1) -> None:
        """Write the file, or one part of a giant, to its place in `fd`; on return its bytes are those that
        the manifest has. Tried again as a copy is. Raises SourceChangedError, ObjectError and
        TransientError; InterruptedRunError."""
        size = part_bytes(record)
        offset = max(part, 0) * size
        length = record.size if part < 0 else min(size, record.size - offset)
        entry = Entry(
            record.path, record.key, record.size, record.token, record.modified_ns, record.source,
            record.version, part=part, offset=offset, length=length,
        )  # fmt: skip
        wanted = record.digest if part < 0 else of_hex(part_of(record.parts, part).hex())

        def attempt() -> None:
            stop.check()
            self._fetch(entry, wanted, fd, record)

        retrying(attempt, self._attempts, stop.wait, renew=lambda: self._renew(record))

    def _fetch(self, entry: Entry, wanted: str, fd: int, record: Record) -> None:
        hashed = xxhash.xxh3_128()
        buffer = memoryview(bytearray(BLOCK))
        where, offset, length = printable(record.path), entry.offset, entry.length
        body = self._reader(record).open(entry, offset, length)
        try:
            done = 0
            while count := body.readinto(buffer):
                if done + count > length:
                    raise IntegrityError("the body is longer than published", where=where)
                if self._limiter:
                    self._limiter.take(count)
                hashed.update(buffer[:count])
                write_at(fd, buffer[:count], offset + done)
                done += count
            if done != length:
                raise TransientError("the body ended early", where=where, why=f"{done} of {length} bytes")
            body.close()
        except BaseException:
            body.abandon()
            raise
        with self._lock:
            self.fetched += length
        if of_hex(hashed.hexdigest()) != wanted:
            raise IntegrityError("the source's bytes are not those that were published", where=where)

    def _reader(self, record: Record) -> Reader:
        """Raises ObjectError when the release's source is not configured any more."""
        if record.source not in self._sources:
            raise ObjectError("its source is not in the configuration any more", where=printable(record.path))
        place = (threading.get_ident(), record.source)
        with self._lock:
            reader = self._readers.get(place)
            if reader is None:
                reader = self._readers[place] = self._sources[record.source][1].reader()
        return reader

    def _renew(self, record: Record) -> None:
        """Temporary credentials ran out."""
        with self._lock:
            config, source = self._sources[record.source]
            source.renew(credentials(config))

    def close(self) -> None:
        self.pool.shutdown()
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        if self._limiter:
            self._limiter = None
            self._shared.close()


def part_bytes(record: Record) -> int:
    """Of a giant; any other file is its own only part."""
    return Digest.parse(record.digest).part_bytes
