"""Fetches inventories and lists of keys, from a bucket or this machine."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.config.source_kinds import FOLDER, folder, of_url, scheme
from penstock.core.errors import (
    LOOK_AT_FILE,
    ObjectError,
    PenstockError,
    PreflightError,
    SourceChangedError,
    TransientError,
)
from penstock.core.model import Entry
from penstock.sources import registry
from penstock.sources.backoff import retrying
from penstock.sources.port import reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.config.settings import DatasetConfig, SourceConfig
    from penstock.core.model import Listed
    from penstock.dataset.context import Context
    from penstock.sources.port import Source

BLOCK = 4 << 20  # bytes of one read
SMALL = 64 << 20  # most bytes of a file that is read into memory


class OutsideFile(NamedTuple):
    """A file on this machine, perhaps fetched from a store."""

    path: Path
    size: int
    md5: str  # MD5 of its bytes as read, in hex


class OutsideFiles(Protocol):
    """The files of one bucket, named by keys, or of this machine, named by paths."""

    def where(self, name: str) -> str:
        """Return a file's or folder's full name, for people."""

    def fetch(self, name: str, into: Path) -> OutsideFile | None:
        """Read a file to its end, perhaps into a copy at `into`; None if it is missing. Raises PenstockError
        for an unreadable file."""

    def names(self, folder: str) -> Iterator[str]:
        """Yield the names of the files below `folder`, whose name ends in a slash."""


def opened(
    context: Context, dataset: DatasetConfig, source: SourceConfig, url: str
) -> tuple[OutsideFiles, str]:
    """Return the files of a URL's bucket or machine, and the URL's name among them. A bucket is read with the
    options of the source that the file lists. Raises ConfigError, PreflightError."""
    if of_url(url) is FOLDER:
        return LocalFiles(), folder(url) + ("/" if url.endswith("/") else "")
    bucket, _, name = url.partition("://")[2].partition("/")
    root = f"{scheme(url)}://{bucket}/"
    config = replace(source, url=root)
    opened = registry.open_source(
        config,
        replace(dataset, changed="refuse"),
        credentials=registry.credentials(config),
    )
    return StoreFiles(opened, root, context.config.engine.attempts, context.stop.wait), name


def small(files: OutsideFiles, name: str, scratch: Path) -> bytes | None:
    """Return a small file's content; None if it is missing. `scratch`: a file that may be overwritten. Raises
    PreflightError for more than SMALL bytes, and as `fetch`."""
    file = files.fetch(name, scratch)
    if file is None:
        return None
    if file.size > SMALL:
        raise PreflightError(
            "too large for what it should be",
            where=files.where(name),
            why=f"{file.size:,} bytes",
            hint="name another file",
        )
    return file.path.read_bytes()


def md5(content: bytes) -> str:
    """Return the MD5 in hex, as Amazon S3 states it for an inventory's files."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


class LocalFiles:
    """The files of this machine, read in place."""

    def where(self, name: str) -> str:
        return name

    def fetch(self, name: str, into: Path) -> OutsideFile | None:  # noqa: ARG002 (the port's)
        sha, size = hashlib.md5(usedforsecurity=False), 0
        try:
            with open(name, "rb", buffering=0) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise PreflightError("not a regular file", where=name, hint="name a regular file")
                while block := file.read(BLOCK):
                    sha.update(block)
                    size += len(block)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise PreflightError(
                "a file cannot be read", where=name, why=error.strerror or "", hint=LOOK_AT_FILE
            ) from None
        return OutsideFile(Path(name), size, sha.hexdigest())

    def names(self, folder: str) -> Iterator[str]:
        for top, _, files in os.walk(folder):
            yield from (os.path.join(top, name) for name in files)


class StoreFiles:
    """The files of a bucket; `source` is its root. Transient errors are retried."""

    def __init__(self, source: Source, root: str, attempts: int, wait: Callable[[float], object]) -> None:
        self._source, self._root, self._attempts, self._wait = source, root, attempts, wait

    def where(self, name: str) -> str:
        return self._root + name

    def fetch(self, name: str, into: Path) -> OutsideFile | None:
        with self._readable(name):
            renew = self._source.renew_refused
            return retrying(lambda: self._fetched(name, into), self._attempts, self._wait, renew=renew)

    def names(self, folder: str) -> Iterator[str]:
        with self._readable(folder):
            for batch in self._source.list():
                yield from (listed.key for listed in batch if listed.key.startswith(folder))

    def _fetched(self, name: str, into: Path) -> OutsideFile | None:
        listed = self._source.list_one(name)
        return None if listed is None else self._copy(listed, into)

    def _copy(self, listed: Listed, into: Path) -> OutsideFile:
        entry = Entry(
            listed.key, listed.key, listed.size, listed.token, listed.modified_ns, length=listed.size
        )
        sha, size, buffer = hashlib.md5(usedforsecurity=False), 0, memoryview(bytearray(BLOCK))
        with reading(self._source, entry) as body, open(into, "wb", buffering=0) as file:
            while got := body.readinto(buffer):
                sha.update(buffer[:got])
                file.write(buffer[:got])
                size += got
        if size != listed.size:
            raise TransientError("a file ended early", where=self.where(listed.key))
        return OutsideFile(into, size, sha.hexdigest())

    @contextmanager
    def _readable(self, name: str) -> Iterator[None]:
        try:
            yield
        except (ObjectError, SourceChangedError) as error:
            raise _unreadable(self.where(name), error) from None


def _unreadable(where: str, error: PenstockError) -> PreflightError:
    return PreflightError(
        "a file cannot be read",
        where=where,
        why=error.reason,
        hint=error.hint or "it is read with the `storage_options` of the source: check their rights to it",
    )
