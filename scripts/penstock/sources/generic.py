"""FTP, and sources that fsspec opens: SFTP, Hugging Face, memory, ..., and stores with `reader: fsspec`.

The listing descends folder by folder, in byte order of the keys. The protocols have no conditional requests,
so an object's description (etag, generation, or size and time of change) is requested before and after its
bytes. Both descriptions must be equal, and of the listed version. All requests only read.
"""

from __future__ import annotations

import contextlib
import json
import threading
from typing import TYPE_CHECKING, Any

from penstock.config import source_kinds
from penstock.core.errors import ObjectError, SourceChangedError, TransientError, longer
from penstock.core.human import printable
from penstock.core.model import Listed
from penstock.sources.generic_opener import (
    Opener,
    checksums_of,
    finds_by_prefix,
    modified,
    protocol_errors,
    token_of,
)
from penstock.sources.port import REQUEST, Reader, RefusedFiles, Remedy, Source
from penstock.sources.stated_checksums import COMBINE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.config.settings import DatasetConfig, SourceConfig
    from penstock.core.model import Entry, SourceChecksum
    from penstock.sources.ftp import Info
    from penstock.sources.generic_opener import FsspecCredentials
    from penstock.sources.port import Keep

    Names = list[tuple[bytes, str, Info]]


# Seconds that one request may take: enough for `port.REQUEST` bytes at 28 KB/s. The libraries limit only the
# time without a byte, which slow transfers never reach; gcsfs has no limit.
LONGEST = 300.0


class FsspecBody:
    """One range, read by ranged requests if the protocol has them, else through a file object. `described` is
    the object's description, requested before its bytes."""

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
        self._beyond = False  # whether the object has bytes after its stated end

    def readinto(self, buffer: memoryview) -> int:
        if not self._ready and self._at < self._end:
            self._ready = memoryview(self._next())
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _next(self) -> bytes:
        """Return the next bytes of the range. With the object's last bytes, one more byte is requested; if
        that byte comes, `close` raises an error."""
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
                # The end of a file is certain only when its transfer is complete.
                self._beyond = bool(self._requested(self._at, 1))
        finally:
            self.abandon()
        if whole:
            changed = modified(self._reader.look(self._entry))
            if changed != self._modified:
                raise _changed(self._entry, "written again while it was read")
            if self._beyond:
                raise longer(self._entry.key, self._entry.size)

    def abandon(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class FsspecReader(Reader):
    """See `port.Reader`. Has its own file system object, made on first use, and again after credentials were
    renewed."""

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
        """Request the object's description. Raises SourceChangedError if it is not of the listed version, and
        the results of `Opener.failure` for the protocol's errors."""
        try:
            fs, path = self.fs, self.path(entry.key)
            fs.invalidate_cache()
            info: Info = _within(fs, fs._info, path) if fs.async_impl else fs.info(path)  # noqa: SLF001
        except protocol_errors() as error:
            raise self.opener.failure(error, entry.key) from None
        token = token_of(info)
        if info.get("size") != entry.size or (entry.token and token != entry.token):
            raise _changed(entry, "what the store states of it is another")
        return info

    def open(self, entry: Entry, offset: int, length: int) -> FsspecBody:
        return FsspecBody(self, entry, offset, length, self.look(entry))

    def close(self) -> None:
        self.opener.disconnect(self._fs)
        self._fs = None


def _changed(entry: Entry, why: str) -> SourceChangedError:
    return SourceChangedError("the object changed since it was listed", where=entry.key, why=why)


def _within(fs: Any, request: Any, *arguments: object, **more: object) -> Any:
    """Run a coroutine function of an asynchronous protocol, within LONGEST."""
    from fsspec.asyn import sync

    return sync(fs.loop, request, *arguments, timeout=LONGEST, **more)


BATCH = 2048  # objects in a batch of `list`


class FsspecSource(Source):
    def __init__(
        self,
        config: SourceConfig,
        credentials: FsspecCredentials | None = None,
        *,
        dataset: DatasetConfig | None = None,
        keep: Keep | None = None,
    ) -> None:
        self.url, self._options = config.url, config.storage_options
        self._links = "refuse" if dataset is None else dataset.links
        self._keep = keep
        self._opener = Opener(config, credentials)
        self._markers = self._skipped = 0
        self._threads = threading.local()

    @property
    def origin(self) -> str:
        return f"{self.url} {json.dumps(dict(self._options), sort_keys=True, default=str)}"

    @property
    def ignored(self) -> Mapping[str, int]:
        """Numbers of folders' markers (in stores of plain keys), and of links skipped by policy."""
        counts = {"markers": self._markers + self._opener.markers, "links": self._skipped}
        return {what: count for what, count in counts.items() if count}

    def renew(self, credentials: object) -> None:
        self._opener.renew(credentials)

    def check(self) -> bool | None:
        """Connect and look at the root. Raises ConfigError, PreflightError."""
        with self._opener.connected() as fs:
            try:
                fs.info(self._opener.root) if self._opener.root else fs.ls(self._opener.root, detail=True)
            except protocol_errors() as error:
                raise self._opener.unreachable(error) from None
        return None

    def list(self) -> Iterator[Sequence[Listed]]:
        """See `port.Source`. If the protocol lists folder by folder, memory grows only with the largest
        folder. Raises PreflightError at the end, naming the items that the policies refuse."""
        self._markers = self._skipped = 0
        offenders = RefusedFiles(self._keep)
        batch: list[Listed] = []
        with self._opener.connected() as fs:
            fs.invalidate_cache()
            try:
                for listed in self._walk(fs, offenders):
                    batch.append(listed)
                    if len(batch) >= BATCH:
                        yield batch
                        batch = []
            except protocol_errors() as error:
                raise self._opener.unreachable(error) from None
        if batch:
            yield batch
        if offenders.count:
            raise offenders.error(self.url)

    def _walk(self, fs: Any, offenders: RefusedFiles) -> Iterator[Listed]:
        if self._opener.is_file(fs):
            info = fs.info(self._opener.root)
            name = self._opener.root.rpartition("/")[2]
            yield Listed(name, info["size"], token_of(info), modified(info))
            return
        levels = [iter(self._names(fs, "", offenders))]
        while levels:
            for order, key, info in levels[-1]:
                if order.endswith(b"/"):
                    try:
                        levels.append(iter(self._names(fs, key, offenders)))
                    except PermissionError as error:
                        offenders.add(
                            f"{key}/",
                            f"folder cannot be listed: {self._opener.cleaned(str(error))}",
                            Remedy.UNREAD,
                        )
                        continue
                    break
                if info["type"] == "link" or info.get("islink"):
                    yield from self._link(fs, key, offenders)
                elif info["type"] != "file":
                    offenders.add(key, f"neither a file nor a folder ({info['type']})", Remedy.SPECIAL)
                elif not isinstance(info.get("size"), int):
                    offenders.add(key, "its size is not stated", Remedy.CHANGE)
                else:
                    yield Listed(key, info["size"], token_of(info), modified(info))
            else:
                levels.pop()

    def _link(self, fs: Any, key: str, offenders: RefusedFiles) -> Iterator[Listed]:
        if self._links == "skip":
            self._skipped += 1
        elif self._links == "refuse":
            offenders.add(key, "symbolic link", Remedy.LINK)
        else:
            path = self._opener.path(fs, key)
            info = fs.info(path) if fs.isfile(path) else {}
            if isinstance(info.get("size"), int):
                yield Listed(key, info["size"], token_of(info), modified(info))
            else:
                offenders.add(key, "link to something that is not a regular file", Remedy.ASTRAY)

    def _names(self, fs: Any, folder: str, offenders: RefusedFiles) -> Names:
        path = f"{self._opener.root}/{folder}" if folder else self._opener.root
        names: dict[bytes, tuple[str, Info]] = {}
        for info in fs.ls(path, detail=True):
            if "line" in info:
                why = f"the server's listing of this folder has a line that cannot be read: {info['line']}"
                if info["cut"]:
                    why = f"the server's listing is not whole ({info['names']} names came): {info['cut']}"
                remedy = Remedy.CUT if info["cut"] else Remedy.CHANGE
                offenders.add(f"{folder}/" if folder else "", printable(why), remedy)
                continue
            name = info["name"].rstrip("/").rpartition("/")[2]
            if info["name"].strip("/") == path.strip("/") or not name:
                self._itself(fs, path, folder, info, offenders)
                continue
            if info["type"] == "file" and info["name"].endswith("/"):
                self._itself(fs, path, f"{folder}/{name}".lstrip("/"), info, offenders)
                continue
            key = f"{folder}/{name}" if folder else name
            order = key.encode("utf-8", "surrogateescape") + (b"/" if info["type"] == "directory" else b"")
            names[order] = (key, info)
        return [(order, *names[order]) for order in sorted(names)]

    def list_one(self, key: str) -> Listed | None:
        """List the object from the same description that readers compare with the listing."""
        try:
            with self._own_reader() as reader:
                fs = reader.fs
                fs.invalidate_cache()
                try:
                    info = fs.info(reader.path(key))
                except FileNotFoundError:
                    self._check_gone(fs, key)
                    return None
        except protocol_errors() as error:
            raise self._opener.failure(error, key) from None
        if info.get("type") != "file" or not isinstance(info.get("size"), int):
            raise SourceChangedError("no longer a file with a size", where=key)
        return Listed(key, info["size"], token_of(info), modified(info))

    @contextlib.contextmanager
    def _own_reader(self) -> Iterator[FsspecReader]:
        """Return this thread's reader, which logs in once for all keys. After an error it logs in again,
        since its connection may be dead."""
        reader: FsspecReader | None = getattr(self._threads, "reader", None)
        if reader is None:
            reader = self._threads.reader = self.reader()
        try:
            yield reader
        except BaseException:
            reader.close()
            raise

    def _check_gone(self, fs: Any, key: str) -> None:
        """Raise TransientError if each folder on the key's path still lists the next name of the path."""
        if self._opener.is_file(fs):
            return
        unread = RefusedFiles()
        path = ""
        for name in key.split("/"):
            path = f"{path}/{name}" if path else name
            folder = path.rpartition("/")[0]
            names = self._names(fs, folder, unread)
            if not unread.count and all(named != path for _, named, _ in names):
                return
        raise TransientError("the store lists the object, and does not find it", where=key)

    def _itself(self, fs: Any, path: str, folder: str, info: Info, offenders: RefusedFiles) -> None:
        """Handle an item listed below a folder under the folder's own name, in a store of plain keys.

        An empty object `folder/` is the folder's marker, and is counted. An object `folder/` with bytes, and
        objects `folder//...`, cannot be files of a tree, and are refused, as in S3.
        """
        if info["type"] != "directory":
            if info.get("size"):
                offenders.add(f"{folder}/", f"names a folder but holds {info['size']} bytes", Remedy.CHANGE)
            else:
                self._markers += 1
            return
        if not finds_by_prefix(fs):
            return
        held = 0
        for name in fs.find(path, prefix="/", withdirs=False):
            rest = name[len(path.rstrip("/")) :] if name.startswith(path) else ""
            if not rest.startswith("//"):
                continue
            if rest.endswith("/"):
                self._markers += 1
            else:
                held += 1
                offenders.add(f"{folder}{rest[not folder :]}", "has an empty segment", Remedy.CHANGE)
        if not held:
            self._markers += 1

    def reader(self) -> FsspecReader:
        return FsspecReader(self._opener)

    def checksum(self, entry: Entry) -> Sequence[SourceChecksum]:
        """See `port.Source`. A protocol without checksums is not queried, since an FTP server may accept only
        the caller's connection."""
        if not source_kinds.of_url(self.url).states_checksums:
            return ()
        with self._own_reader() as reader:
            return checksums_of(reader.look(entry))


open_source = FsspecSource
