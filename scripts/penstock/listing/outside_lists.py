"""Reads a source's listing from a list of keys, and queries the source for facts that the list lacks. Fetches
such lists, and inventories, from a bucket or this machine. Also decides which keys belong to the dataset, by
gitignore's patterns: `include`, then `exclude`.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import chain, groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.config.access_rules import Patterns
from penstock.config.source_kinds import FOLDER, folder, of_url, scheme
from penstock.core.errors import (
    LOOK_AT_FILE,
    ObjectError,
    PenstockError,
    PreflightError,
    SourceChangedError,
    TransientError,
)
from penstock.core.human import counted
from penstock.core.layout import Offenders, check_key
from penstock.core.model import Entry, Listed
from penstock.host import waits
from penstock.sources import port
from penstock.sources.backoff import retrying
from penstock.sources.listing_order import BATCH, between, in_order
from penstock.sources.port import reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from penstock.config.settings import DatasetConfig, SourceConfig
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
    opened = port.open_source(
        config,
        replace(dataset, changed="refuse"),
        credentials=port.credentials(config),
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


# Selects the keys of the dataset by gitignore's patterns.
#
# A key belongs to the dataset if a pattern of `include` matches it and no pattern of `exclude` does. `**`
# matches every key. `!pattern` cancels an earlier match in the same list.

EVERYTHING = ("**",)  # the `include` that matches every key


class Filter:
    """The patterns of one dataset. Raises ConfigError for a pattern that is invalid in gitignore."""

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        self._include = None if tuple(include) == EVERYTHING else Patterns("include", include).match
        self._exclude = Patterns("exclude", exclude).match if exclude else None
        self._takes_back = any(pattern.startswith("!") for pattern in exclude)

    @property
    def everything(self) -> bool:
        """Whether every key belongs to the dataset."""
        return self._include is None and self._exclude is None

    def accepts(self, key: str) -> bool:
        """Return whether an object's key belongs to the dataset. For folders, `wants` decides."""
        return (self._include is None or self._include(key)) and not (
            self._exclude is not None and self._exclude(key)
        )

    def wants(self, key: str) -> bool:
        """Return whether a key belongs to the dataset. For a folder (a key that ends in a slash), return
        False only if `exclude` leaves out all keys below it."""
        if key.endswith("/"):
            return self._exclude is None or self._takes_back or not self._exclude(key)
        return self.accepts(key)

    def keep(self, batch: Sequence[Listed]) -> Sequence[Listed]:
        """Return the dataset's objects in `batch`; `batch` itself if the filter accepts every key."""
        if self.everything:
            return batch
        accepts = self.accepts
        return [listed for listed in batch if accepts(listed.key)]


# Reads a source's listing from a list of keys.
#
# The objects are sorted by the bytes of their keys, without repetition, in bounded memory, whatever the order
# of the list. No key is dropped without a message:
#
# | the key is                                           | then                                            |
# |------------------------------------------------------|-------------------------------------------------|
# | listed several times, without a contradiction        | merged, and counted                             |
# | listed several times, with several sizes or versions | rejected; the error names it                    |
# | not at the source                                    | rejected; the error names it                    |
# | of another size or version at the source             | rejected; the error names it                    |
# | listed with its size and version                     | accepted; only folder sources are queried       |

AT_ONCE = 32  # number of concurrent queries to a source


class KeyList:
    """A `listers.StatedLister` of one source. `scratch`: a folder for fetched and sorted files."""

    def __init__(
        self, context: Context, dataset: DatasetConfig, config: SourceConfig, source: Source, scratch: Path
    ) -> None:
        self._config, self._source, self._scratch = config, source, scratch
        self._files, self._name = opened(context, dataset, config, config.list_from or "")
        self._where = self._files.where(self._name)
        self._attempts, self._stop = context.config.engine.attempts, context.stop
        self._filter = Filter(dataset.include, dataset.exclude)
        self._sums = Filter(dataset.checksums, ()) if dataset.checksums else None
        self._pinned = dataset.changed == "pinned"
        self._patterns = (dataset.include, dataset.exclude, dataset.checksums)
        self._list: OutsideFile | None = None
        self._ignored: Counter[str] = Counter()
        self._refused = Offenders()

    @property
    def ignored(self) -> Mapping[str, int]:
        return self._ignored

    def note(self) -> str:
        """Describe the list in one sentence, and query the source for its first key. Raises PreflightError
        for an unreadable or empty list."""
        first = next((row for batch in self._rows() for row in batch), None)
        if first is None:
            raise PreflightError(
                "the list of keys is empty",
                where=self._where,
                hint="give a list with at least one key, or leave it out",
            )
        if self._lacking(first):
            with self._asking() as ask:
                self._answer(first, ask)
            return f"listed by the keys of {self._where}; the source is asked for what it does not state"
        return f"listed by the keys of {self._where}, with sizes and versions"

    @property
    def refused(self) -> int:
        """The number of keys rejected so far. A listing that lacks rejected keys must not be resumed."""
        return self._refused.total

    def identity(self) -> str:
        """Return a text that identifies, with the source, which objects are listed."""
        self._fetch()
        assert self._list is not None
        return f"{self._list.md5} {self._list.size} {self._patterns}"

    def list(self) -> Iterator[Sequence[Listed]]:
        return self.list_between(b"", None)

    def list_between(self, after: bytes, upto: bytes | None) -> Iterator[Sequence[Listed]]:
        self._ignored.clear()
        self._refused = Offenders()
        with self._asking() as ask, waits.threads(AT_ONCE, "asking") as pool:
            rows_in_order = between(in_order(self._wanted(), folder=self._scratch), after, upto)
            merged = self._merged(rows_in_order)
            while rows := list(islice(merged, BATCH)):
                self._stop.check()
                batch = []
                for row, answer in zip(rows, pool.map(lambda row: self._answer(row, ask), rows), strict=True):
                    if isinstance(answer, Listed):
                        batch.append(answer)
                    else:
                        self._refused.add(row.key, answer)
                if batch:
                    yield batch
        if self._refused.total:
            raise PreflightError(
                f"{counted(self._refused.total, 'key')} of the list cannot be staged",
                where=self._where,
                why="\n  " + "\n  ".join(self._refused.lines()),
                hint="correct the list; its keys are relative to the source, byte for byte",
            )

    def _fetch(self) -> Path:
        if self._list is None:
            self._list = self._files.fetch(self._name, self._scratch / "keys")
        if self._list is None:
            raise PreflightError(
                "there is no list of keys", where=self._where, hint="correct `list_from` of the source"
            )
        return self._list.path

    def _rows(self) -> Iterator[Sequence[Listed]]:
        """Yield the list's rows in the list's order, with the source's URL removed from keys."""
        from penstock.tables.stated_lists import read_keys

        path = self._fetch()
        top = self._source.url if self._source.url.endswith("/") else f"{self._source.url}/"
        tops = tuple({top, top.removeprefix("file://")})
        for batch in read_keys(path, self._where):
            if any(row.key.startswith(tops) for row in batch):
                yield [_below(row, tops) for row in batch]
            else:
                yield batch

    def _wanted(self) -> Iterator[Sequence[Listed]]:
        """Yield the rows that belong to the dataset, since the source is only queried for these."""
        for batch in self._rows():
            self._stop.check()
            kept = self._filter.keep(batch)
            self._ignored["filtered"] += len(batch) - len(kept)
            if self._sums is not None and len(kept) < len(batch):
                kept = [*kept, *self._sums.keep([row for row in batch if not self._filter.accepts(row.key)])]
            yield kept

    def _merged(self, batches: Iterator[Sequence[Listed]]) -> Iterator[Listed]:
        for key, group in groupby(chain.from_iterable(batches), attrgetter("key")):
            first, *others = group
            for row in others:
                self._ignored["named twice"] += 1
                joint = joined(first, row)
                if joint is None:
                    self._refused.add(key, f"is listed twice, and differs: {_told(first)}; {_told(row)}")
                    break
                first = joint
            else:
                yield first

    def _asking(self) -> AbstractContextManager[Callable[[str], Listed | None]]:
        if self._source.asking is not None:
            return self._source.asking()
        list_one = self._source.list_one
        return nullcontext(lambda key: retrying(lambda: list_one(key), self._attempts, self._stop.wait))

    def _lacking(self, row: Listed) -> bool:
        """Return whether the source must be queried. A folder source always must be, since a list cannot
        state penstock's token for a file."""
        if self._pinned and not row.version:
            return True
        return row.size < 0 or not row.token or not of_url(self._config.url).pins

    def _answer(self, row: Listed, ask: Callable[[str], Listed | None]) -> Listed | str:
        """Return the object of a row, or the reason why the row is rejected."""
        if not self._lacking(row):
            return row
        if reason := check_key(row.key):
            return reason
        try:
            listed = ask(row.key)
        except (ObjectError, SourceChangedError) as error:
            return error.reason
        if listed is None:
            return "is not at the source"
        if row.size not in (-1, listed.size):
            return f"has {listed.size:,} bytes at the source, and {row.size:,} in the list"
        if row.token not in ("", listed.token):
            return f"has the version {listed.token} at the source, and {row.token} in the list"
        return listed._replace(checksum=row.checksum) if row.checksum else listed


def joined(former: Listed, latter: Listed) -> Listed | None:
    """Merge two rows of one key; None if they contradict each other."""
    values = []
    for field, nothing in (
        ("size", -1),
        ("token", ""),
        ("modified_ns", 0),
        ("version", ""),
        ("checksum", ""),
    ):
        first, second = getattr(former, field), getattr(latter, field)
        if first != second and nothing not in (first, second):
            return None
        values.append(second if first == nothing else first)
    return Listed(former.key, *values)


def _told(row: Listed) -> str:
    words = [f"{row.size:,} bytes" if row.size >= 0 else "no size", row.token, row.version, row.checksum]
    return ", ".join(filter(None, words))


def _below(row: Listed, tops: tuple[str, ...]) -> Listed:
    for top in tops:
        if row.key.startswith(top):
            return row._replace(key=row.key[len(top) :])
    return row
