"""The port of sources: list objects, and read ranges that fail when the object changed; the source of a URL,
opened with its secrets; and the items of a source with folders that no release can hold.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, contextmanager
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from penstock.config.source_kinds import FOLDER, SourceKind, kind, of_url, scheme
from penstock.core.errors import ConfigError, PreflightError
from penstock.core.human import counted, in_quotes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from penstock.config.settings import DatasetConfig, SourceConfig
    from penstock.core.errors import ExpiredCredentialsError
    from penstock.core.model import Entry, Listed, SourceChecksum


# Collects the items of a source with folders that no release can contain: links, special files, unreadable
# files. A listing raises `error` after it has listed the whole source.

SHOWN = 100  # number of refused files that one message names, at most; all are counted


class Remedy(Enum):
    """What a person can do about an item, besides leaving it out by `exclude`."""

    LINK = (
        "set `links` of the dataset to `follow`, which copies the files that links lead to, or to `skip`, "
        "which leaves links out"
    )
    ASTRAY = "mend the links that lead to no file of the source, or set `links` of the dataset to `skip`"
    UNREAD = "let this account read what cannot be read (`chmod`, an ACL)"
    SPECIAL = "remove what is neither a file nor a folder: it holds no data"
    CHANGE = "change them at the source"
    CUT = (
        "name a list of the keys by `list_from` of the source, or have its server list all names of a folder"
    )


class RefusedFiles:
    """Items that the dataset's policies refuse: all are counted, and the error names the first SHOWN.

    `keep` decides which items belong to the dataset; other items are never refused. `keep` gets a folder's
    key with a slash at its end, and returns False only if nothing below it belongs. The root ("") always
    belongs.
    """

    def __init__(self, keep: Callable[[str], bool] | None = None) -> None:
        self.count = 0
        self.left_out = 0  # items that would be refused, if `include` and `exclude` did not leave them out
        self._keep = keep
        self._lines: list[str] = []
        self._remedies: dict[Remedy, None] = {}

    def add(self, path: str, why: str, remedy: Remedy) -> None:
        """Refuse an item, or count it in `left_out` if it is outside the dataset. `path` is relative to the
        source's root."""
        if path and self._keep is not None and not self._keep(path):
            self.left_out += 1
            return
        self.count += 1
        self._remedies[remedy] = None
        if len(self._lines) < SHOWN:
            self._lines.append(f"{in_quotes(path or '.')}: {why}")

    def error(self, url: str) -> PreflightError:
        lines = list(self._lines)
        if self.count > len(lines):
            lines.append(f"... and {self.count - len(lines)} more")
        return PreflightError(
            f"{counted(self.count, 'item')} of the source cannot be staged",
            where=url,
            why="\n  " + "\n  ".join(lines),
            hint=";\n  ".join(remedy.value for remedy in self._remedies)
            + "; or leave them out by `exclude` patterns",
        )


# The port of sources: list objects, and read ranges of them. Reading fails if the object has changed.
#
# `open_source` picks an implementation: `posix`, `object_source` with its dialects (`s3`, `azure`, `gcs` and
# `web`), `ftp`, or `generic`. A `Source` is cheap, so each worker makes its own. No source changes the data
# it reads. Optional abilities are further protocols (`Continued`, `WholeReader`, ...); callers test for them
# by `isinstance`. Sizes and offsets are bytes; keys are relative to the source's root.

REQUEST = 8 << 20  # bytes of one request to a source that cannot stream a whole object


# Returns whether a key belongs to the dataset or, for a key that ends in a slash, whether anything in that
# folder may. Sources still list other keys, but never refuse the dataset because of them.
Keep = Callable[[str], bool]


class Body(Protocol):
    """The bytes of one range of one object, read once, in order."""

    # The source's checksums of these bytes. They are set when `open` returns, so that the caller can compute
    # the same kinds while reading. For a range, only `full` checksums that combine from parts are given:
    # crc64nvme, crc32c, crc32.
    checksums: Sequence[SourceChecksum]

    def readinto(self, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes at hand; return 0 only at the end of the range.

        Raises TransientError for a body that ends early or a connection that breaks. Raises
        SourceChangedError if the object is not the listed one, ObjectError for a refusal.
        """

    def close(self) -> None:
        """End reading. If the whole range was read, keep the connection, and check again that the object is
        the listed one (POSIX: fstat). Raise SourceChangedError if it is not."""

    def abandon(self) -> None:
        """Drop the body, whether it was read or not. Never raises."""


class Reader(Protocol):
    """Reads for ONE thread. Owns a connection or folder descriptors until the caller of `Source.reader` calls
    `close`."""

    def open(self, entry: Entry, offset: int, length: int) -> Body:
        """Open bytes `[offset, offset + length)` of the listed version of the object.

        The request is conditional (If-Match, version, fstat), and the answer's etag and size are compared
        too. Raises as `Body.readinto`, and ExpiredCredentialsError if the store refuses the credentials.
        """

    def close(self) -> None: ...

    def checksum(self, entry: Entry) -> Sequence[SourceChecksum] | None:  # noqa: ARG002
        """Do as `Source.checksum`, over this reader's connection. None: call the source's method."""
        return None

    def data_bytes(self, key: str, size: int) -> int:  # noqa: ARG002
        """Return an upper bound for the number of this file's bytes outside holes; `size` if the file's size
        differs, or holes are not reported. Raises as `open`."""
        return size


@runtime_checkable
class WholeReader(Reader, Protocol):
    """A reader that can read small objects by a single call."""

    def whole(self, entry: Entry, buffer: memoryview) -> tuple[memoryview, Sequence[SourceChecksum]] | None:
        """Return all bytes of the listed version and their stated checksums, with all checks of `open` and
        `close`.

        The bytes are returned as a part of `buffer`, which is larger than the object. None means that the
        bytes did not come in one read; the caller then uses `open`.
        """


@runtime_checkable
class AheadReader(WholeReader, Protocol):
    """A reader that can prefetch objects, to hide the latency of requests."""

    def ahead(self, entry: Entry) -> None:
        """Request the whole object now. The caller then calls `whole` in the order of the requests; `whole`
        drops requests that the caller skips. Never raises PenstockError: `whole` raises it instead."""


@runtime_checkable
class Continued(Protocol):
    """A source whose listing can begin at any key."""

    def list_between(self, after: bytes, upto: bytes | None) -> Iterator[Sequence[Listed]]:
        """List the objects with `after` < key <= `upto` (None: to the end), and only these."""


class Source(Protocol):
    """One root or prefix of one store. Rare abilities have a default here."""

    url: str  # the URL for people and for the seal; never contains a secret
    # The argument `renew` of `backoff.retrying`, if the source resolves its credentials itself; called by one
    # thread at a time.
    renew_refused: Callable[[ExpiredCredentialsError, bool], None] | None = None
    # Does as `list`, but sorts on disk in this folder, and yields nothing before the store's listing has
    # ended. Used after `listing_order.DisorderError`. The attribute is None if the store always lists in the
    # order of the keys' bytes.
    list_sorted: Callable[[Path], Iterator[Sequence[Listed]]] | None = None
    # Makes a function that many threads may call, over kept connections. It returns the object of a key as
    # `list` does, or None if the store does not find it. The object's time may lack fractions of a second.
    # The function retries transient errors, and raises the other errors of `list_one`.
    asking: Callable[[], AbstractContextManager[Callable[[str], Listed | None]]] | None = None

    @property
    def origin(self) -> str:
        """Identify the store or file system itself, since the URL may lead to another by now. The run records
        this text, so that list can find an interrupted listing. It contains no secret. Raises OSError for an
        unreadable folder."""
        return self.url

    @property
    def ignored(self) -> Mapping[str, int]:
        """Return how many items the last listing left out by policy, for each reason ({"links": 2})."""
        return {}

    @property
    def untimed(self) -> int:
        """Count the objects of the last listing whose metadata states no time (`times: metadata`)."""
        return 0

    @property
    def hard_links(self) -> Mapping[str, int]:
        """Describe the last listing's hard links. `of` counts the files with several names, `files` their
        names beyond the first; `bytes` is the size of copies under those names. Empty if there are none."""
        return {}

    @property
    def empty_folders(self) -> Sequence[str]:
        """Return the last listing's empty folders, in the order of the files; all of them are in memory.
        Returns () unless the dataset keeps empty folders (`empty_folders: keep`)."""
        return ()

    def renew(self, credentials: object) -> None:  # noqa: ARG002
        """Give new credentials (`port.credentials`) to every reader of this source."""
        return

    def check(self) -> bool | None:
        """Make one cheap request, and return whether the source has an object; None if that is not known.
        Raises PreflightError with the URL and a remedy if the source cannot be reached."""

    def list(self) -> Iterator[Sequence[Listed]]:
        """List everything below the root in batches, ascending by the key's bytes (`os.fsencode`), in bounded
        memory. Raises an error if the store's pages come in another order, or in a circle."""

    def list_one(self, key: str) -> Listed | None:
        """Return the object of this key as `list` would list it now.

        None means that the object is gone, both by name and in a new listing of its prefix; an unreadable
        object is not gone. Raises TransientError for passing faults, ExpiredCredentialsError, ObjectError for
        a refusal, and SourceChangedError if something else took the object's place.
        """

    def reader(self) -> Reader: ...

    def checksum(self, entry: Entry) -> Sequence[SourceChecksum]:  # noqa: ARG002
        """Query the checksums of the whole object, for a giant (an object copied in parts), whose ranges'
        answers may not state them. Return () if it has none."""
        return ()

    def part_sizes(self, entry: Entry, parts: int) -> Sequence[int] | None:  # noqa: ARG002
        """Return the size of each part of the listed version, in bytes; () if not stated, None if the store
        has no uploads in parts.

        This costs a request for each part, and is used when composite checksums do not match. Raises
        PenstockError.
        """
        return None


@contextmanager
def reading(source: Source, entry: Entry) -> Iterator[Body]:
    """Open the listed object with a new reader, for a `with` statement. The body is closed at its end, or
    dropped after an error. Raises as `Body.readinto` and `Body.close`."""
    with closing(source.reader()) as reader:
        body = reader.open(entry, 0, entry.size)
        try:
            yield body
        except BaseException:
            body.abandon()
            raise
        body.close()


# Opens the source of a URL with its secrets, and judges version tokens.
#
# The module of a kind of source (`config.source_kinds`) is imported on use, so no other store's library is
# loaded. Only `credentials`, and `open_source` without credentials, read the environment and files of
# secrets, and may use the network or a helper process. A *token* is a store's mark of an object's version (an
# etag, a generation), or "" if the store states none.


def pinned(url: str, token: str) -> bool:
    """Return whether reads can be conditional on this token. They can for a strong etag or a generation, but
    not for a date or a weak etag."""
    return of_url(url).pins and bool(token) and " " not in token and not token.startswith("W/")


def may_be_split(url: str, token: str) -> bool:
    """Return whether ranges read at different times are sure to be of one version. If not, one request has to
    read the whole object."""
    return pinned(url, token) if of_url(url).pins else bool(token)


def same_bytes(url: str, token: str) -> bool:
    """Return whether an equal token means equal bytes. This holds for a folder's files (size, times, inode)
    and for strong etags, but not for weak etags or dates."""
    return bool(token) if of_url(url) is FOLDER else pinned(url, token)


def _reading(config: SourceConfig) -> SourceKind:
    """Return the kind that reads this source. Raises ConfigError for a user or password in the URL, but
    allows a user name alone if the protocol takes it (`sftp://user@host`)."""
    user, at_sign, _ = config.url.partition("://")[2].partition("/")[0].rpartition("@")
    if scheme(config.url) and at_sign and (":" in user or not of_url(config.url).user):
        raise ConfigError(
            "user info in a source's URL", hint="name a profile or a credentials_file in storage_options"
        )
    return kind(config.url, config.storage_options)


def credentials(config: SourceConfig) -> object | None:
    """Resolve the secrets of a source now, as a picklable object; None if it needs no secrets.

    The parent process calls this. Workers get the result through a pipe. Before temporary secrets expire
    (`expires`), they get new secrets by `Source.renew`. Raises ConfigError, PreflightError.
    """
    if not (module := _reading(config).secrets):
        return None
    secrets: object | None = import_module(f"penstock.sources.{module}").resolve(config)
    return secrets


def expires(secrets: object | None) -> float | None:
    """Return when the credentials expire, in seconds since the epoch; None if never, or unknown."""
    end = getattr(secrets, "expires", None)
    return end if isinstance(end, float) else None


def open_source(
    config: SourceConfig,
    dataset: DatasetConfig,
    *,
    credentials: object | None = None,
    keep: Keep | None = None,
) -> Source:
    """Open the source of a configuration, by `open_source` of its kind's module. Nothing is listed or read
    yet.

    Workers pass their parent's `credentials`; without them the secrets are resolved here. Raises ConfigError
    for an unusable URL or option, PreflightError if the secrets cannot be resolved.
    """
    package = import_module(f"penstock.sources.{_reading(config).package}")
    source: Source = package.open_source(config, credentials, dataset=dataset, keep=keep)
    return source
