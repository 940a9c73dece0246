"""Reads objects through a protocol of fsspec that knows no conditional requests.

The protocol's description of an object (etag, generation, or size and time of change) is requested before and
after its bytes. Both descriptions must be of the listed version, or the object counts as changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import ObjectError, SourceChangedError, TransientError
from penstock.sources.checksum_headers import COMBINE
from penstock.sources.generic.info import claims_of, failure, protocol_errors, token_of
from penstock.sources.port import REQUEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.model import Claim, Entry
    from penstock.sources.generic.info import Info


class FsspecBody:
    """One range: by ranged requests where the protocol has them, else through a file object."""

    def __init__(
        self, reader: FsspecReader, entry: Entry, offset: int, length: int, claims: list[Claim]
    ) -> None:
        self.claims: Sequence[Claim] = claims
        self._reader, self._entry = reader, entry
        self._at, self._end = offset, offset + length
        self._ready = memoryview(b"")
        self._file: Any = None

    def readinto(self, buffer: memoryview) -> int:
        if not self._ready and self._at < self._end:
            self._ready = memoryview(self._next())
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _next(self) -> bytes:
        size = min(REQUEST, self._end - self._at)
        fs, path = self._reader.fs, self._reader.path(self._entry.key)
        try:
            if fs.async_impl:
                block = bytes(fs.cat_file(path, start=self._at, end=self._at + size))
            else:
                if self._file is None:
                    self._file = fs.open(path, "rb")
                    self._file.seek(self._at)
                block = self._file.read(size)
        except protocol_errors() as error:
            raise failure(error, self._entry.key) from None
        if not block:
            raise TransientError("the body ended early", where=self._entry.key)
        if len(block) > size:
            raise ObjectError("the server ignores ranges", where=self._entry.key)
        self._at += len(block)
        return block

    def close(self) -> None:
        self.abandon()
        if self._at == self._end and not self._ready:
            self._reader.look(self._entry)

    def abandon(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class FileSystem(Protocol):
    """What a reader needs of its source (`generic.source`)."""

    @property
    def secrets(self) -> object:
        """Present ones: they may be renewed at any time."""

    def connect(self) -> Any:
        """A new file system object of fsspec, with the present secrets."""

    def path(self, fs: Any, key: str) -> str:
        """The name by which `fs` knows an object."""


class FsspecReader:
    """For one thread: a file system object of its own."""

    def __init__(self, source: FileSystem) -> None:
        self._source = source
        self._fs: Any = None
        self._secrets: object = None

    @property
    def fs(self) -> Any:
        if self._fs is None or self._secrets is not self._source.secrets:
            self._secrets = self._source.secrets
            self._fs = self._source.connect()
        return self._fs

    def path(self, key: str) -> str:
        return self._source.path(self.fs, key)

    def look(self, entry: Entry) -> Info:
        """The protocol's description of the object, which must be of the listed version."""
        try:
            self.fs.invalidate_cache()
            info: Info = self.fs.info(self.path(entry.key))
        except protocol_errors() as error:
            raise failure(error, entry.key) from None
        token = token_of(info)
        if info.get("size") != entry.size or (entry.token and token != entry.token):
            raise SourceChangedError(
                "the object changed since it was listed", where=entry.key, why=f"{entry.token} is now {token}"
            )
        return info

    def open(self, entry: Entry, offset: int, length: int) -> FsspecBody:
        whole = length == entry.size
        claims = [c for c in claims_of(self.look(entry)) if whole or c.algorithm in COMBINE]
        return FsspecBody(self, entry, offset, length, claims)

    def close(self) -> None:
        self._fs = None
