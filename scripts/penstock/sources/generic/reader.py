"""Reads objects through fsspec, whose protocols know no conditional requests.

The protocol's description of an object (etag, generation, or size and time of change) is requested before and
after its bytes. Both descriptions must be of the listed version, and alike, or the object counts as changed.
`FsspecSource.reader` makes a reader for each thread. It sends requests that only read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.core.errors import ObjectError, SourceChangedError, TransientError, longer
from penstock.sources.checksum_headers import COMBINE
from penstock.sources.generic.info import checksums_of, modified, protocol_errors, token_of
from penstock.sources.port import REQUEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.model import Entry, SourceChecksum
    from penstock.sources.generic.info import Info
    from penstock.sources.generic.opener import Opener

LONGEST = 300.0
"""Seconds that one request may take: `port.REQUEST` bytes at 28 KB/s. The libraries' own limits are on the
time without a byte, which a server that sends a byte now and then never reaches; gcsfs has none."""


class FsspecBody:
    """One range: by ranged requests where the protocol has them, else through a file object. `described` is
    the object's description before its bytes."""

    def __init__(self, reader: FsspecReader, entry: Entry, offset: int, length: int, described: Info) -> None:
        self.checksums: Sequence[SourceChecksum] = [
            checksum
            for checksum in checksums_of(described)
            if length == entry.size or checksum.algorithm in COMBINE
        ]
        self._reader, self._entry, self._modified = reader, entry, modified(described)
        self._at, self._end = offset, offset + length
        self._ready = memoryview(b"")
        self._file: Any = None
        self._beyond = False
        """The object has bytes behind its stated end."""

    def readinto(self, buffer: memoryview) -> int:
        if not self._ready and self._at < self._end:
            self._ready = memoryview(self._next())
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _next(self) -> bytes:
        """The next bytes of the range. The object's last ones are requested with one byte more: what the
        object has beyond is kept for `close`."""
        size = min(REQUEST, self._end - self._at)
        last = self._at + size == self._entry.size
        block = self._requested(self._at, size + last)
        if not block:
            raise TransientError("the body ended early", where=self._entry.key)
        if len(block) > size + last:
            raise ObjectError("the server ignores ranges", where=self._entry.key)
        self._at += min(len(block), size)
        self._beyond = len(block) > size
        return block[:size]

    def _requested(self, start: int, size: int) -> bytes:
        fs, path = self._reader.fs, self._reader.path(self._entry.key)
        try:
            if fs.async_impl:
                # No range of an empty object can be requested.
                span = {"start": start, "end": start + size} if self._entry.size else {}
                return bytes(_within(fs, fs._cat_file, path, **span))  # noqa: SLF001
            if self._file is None:
                self._file = fs.open(path, "rb")
                self._file.seek(start)
            block: bytes = self._file.read(size)
            return block
        except protocol_errors() as error:
            raise self._reader.opener.failure(error, self._entry.key) from None

    def close(self) -> None:
        whole = self._at == self._end and not self._ready
        try:
            ended = whole and self._at == self._entry.size and not self._beyond
            if ended and (self._file is not None or not self._at):
                # A file has ended when its transfer is complete.
                self._beyond = bool(self._requested(self._at, 1))
        finally:
            self.abandon()
        if whole:
            changed = modified(self._reader.look(self._entry))
            if changed != self._modified:
                why = "written again while it was read"
                raise SourceChangedError(
                    "the object changed since it was listed", where=self._entry.key, why=why
                )
            if self._beyond:
                raise longer(self._entry.key, self._entry.size)

    def abandon(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class FsspecReader:
    """See `port.Reader`. For one thread: a file system object of its own, made when it is first used and
    after credentials were renewed."""

    def __init__(self, opener: Opener) -> None:
        self.opener = opener
        self._fs: Any = None
        self._secrets: object = None

    @property
    def fs(self) -> Any:
        if self._fs is None or self._secrets is not self.opener.secrets:
            self._secrets = self.opener.secrets
            self._fs = self.opener.connect()
        return self._fs

    def path(self, key: str) -> str:
        return self.opener.path(self.fs, key)

    def look(self, entry: Entry) -> Info:
        """The protocol's description of the object, which must be of the listed version. Raises
        SourceChangedError where it is not, and what `Opener.failure` makes of the protocol's errors."""
        try:
            fs, path = self.fs, self.path(entry.key)
            fs.invalidate_cache()
            info: Info = _within(fs, fs._info, path) if fs.async_impl else fs.info(path)  # noqa: SLF001
        except protocol_errors() as error:
            raise self.opener.failure(error, entry.key) from None
        token = token_of(info)
        if info.get("size") != entry.size or (entry.token and token != entry.token):
            raise SourceChangedError(
                "the object changed since it was listed",
                where=entry.key,
                why="what the store states of it is another",
            )
        return info

    def open(self, entry: Entry, offset: int, length: int) -> FsspecBody:
        return FsspecBody(self, entry, offset, length, self.look(entry))

    def close(self) -> None:
        self.opener.disconnect(self._fs)
        self._fs = None


def _within(fs: Any, request: Any, *arguments: object, **more: object) -> Any:
    """The result of a coroutine function of an asynchronous protocol, within LONGEST."""
    from fsspec.asyn import sync

    return sync(fs.loop, request, *arguments, timeout=LONGEST, **more)
