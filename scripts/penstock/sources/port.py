"""The port of sources: list objects, and read ranges that fail when the object changed.

`registry.open_source` picks an implementation: `posix`, `objects` with its dialects (`s3`, `azure`, `gcs`,
`web`), or `generic`. A `Source` is cheap: each worker makes its own. No source changes what it reads.
Optional abilities are further protocols (`Continued`, `WholeReader`, ...), found by `isinstance`. Sizes and
offsets are bytes; keys are relative to the source's root.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from penstock.core.errors import ExpiredCredentialsError
    from penstock.core.model import Entry, Listed, SourceChecksum

REQUEST = 8 << 20  # bytes of a request to a source that cannot stream a whole object


# Whether a key belongs to the dataset; for a key that ends in a slash, whether anything in that folder may.
# Sources still list other keys, but refuse the dataset for none of them.
Keep = Callable[[str], bool]


class Body(Protocol):
    """The bytes of one range of one object, read once, in order."""

    # Checksums that the source states of these bytes, known once `open` returned, so that reading can compute
    # the same ones. For a range, only `full` checksums that combine from parts: crc64nvme, crc32c, crc32.
    checksums: Sequence[SourceChecksum]

    def readinto(self, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes at hand; return 0 only at the end of the range.

        Raises TransientError for a body that ends early or a connection that breaks. Raises
        SourceChangedError when the object is not the listed one, ObjectError for a refusal.
        """

    def close(self) -> None:
        """End reading. After the whole range, check again that the object is the listed one (POSIX: fstat);
        raise SourceChangedError if not. Only a range read to its end keeps its connection."""

    def abandon(self) -> None:
        """Drop the body, read or not. Never raises."""


class Reader(Protocol):
    """Reads for ONE thread: owns a connection or folder descriptors until `close`, which the caller of
    `Source.reader` calls."""

    def open(self, entry: Entry, offset: int, length: int) -> Body:
        """Open bytes `[offset, offset + length)` of the listed version of the object.

        The request is conditional (If-Match, version, fstat), and the answer's etag and size are compared
        too. Raises as `Body.readinto`, and ExpiredCredentialsError for credentials that the store no longer
        takes.
        """

    def close(self) -> None: ...

    def checksum(self, entry: Entry) -> Sequence[SourceChecksum] | None:  # noqa: ARG002
        """Do as `Source.checksum` over this reader's connection. None: call the source's."""
        return None

    def data_bytes(self, key: str, size: int) -> int:  # noqa: ARG002
        """Return an upper bound of this key's bytes outside holes; `size` if the file's size differs or holes
        are not reported. Raises as `open`."""
        return size


@runtime_checkable
class WholeReader(Reader, Protocol):
    """A reader with a shorter way for small objects."""

    def whole(self, entry: Entry, buffer: memoryview) -> tuple[memoryview, Sequence[SourceChecksum]] | None:
        """Return all bytes of the listed version and their stated checksums, with all checks of `open` and
        `close`.

        The bytes lie somewhere in `buffer`, which is larger than the object. None: they did not come in one
        read; use `open`.
        """


@runtime_checkable
class AheadReader(WholeReader, Protocol):
    """A reader that can prefetch objects, to hide the latency of requests."""

    def ahead(self, entry: Entry) -> None:
        """Request the whole object now. `whole` follows in the order of the requests, and drops requests that
        the caller skipped. Never raises PenstockError: `whole` raises instead."""


@runtime_checkable
class Continued(Protocol):
    """A source whose listing can begin at any key."""

    def list_between(self, after: bytes, upto: bytes | None) -> Iterator[Sequence[Listed]]:
        """List the objects with `after` < key <= `upto` (None: to the end), without listing the others."""


class Source(Protocol):
    """One root or prefix of one store. Rare abilities have a default here."""

    url: str  # for people and for the seal: never with a secret in it
    # For a source that resolves its credentials itself: the `renew` of `backoff.retrying`, for one thread at
    # a time.
    renew_refused: Callable[[ExpiredCredentialsError, bool], None] | None = None
    # As `list`, sorted on disk in this folder, once the store's listing has ended. Used after
    # `listing_order.DisorderError`, for a store that may not list in the order of the keys' bytes.
    list_sorted: Callable[[Path], Iterator[Sequence[Listed]]] | None = None
    # Makes a function for many threads, over kept connections: the object of a key as `list` states it,
    # though its time may lack fractions of a second; None if the store does not find it. It retries transient
    # errors, and raises the other errors of `list_one`.
    asking: Callable[[], AbstractContextManager[Callable[[str], Listed | None]]] | None = None

    @property
    def origin(self) -> str:
        """Identify the store or file system beyond the URL, which may lead elsewhere by now. Never a secret.
        The run records it, so that list can find an interrupted listing. Raises OSError for an unreadable
        folder."""
        return self.url

    @property
    def ignored(self) -> Mapping[str, int]:
        """Count the items that the last listing left out by policy, by reason: {"links": 2, "filtered":
        1}."""
        return {}

    @property
    def untimed(self) -> int:
        """Count the objects of the last listing whose metadata states no time (`times: metadata`)."""
        return 0

    @property
    def hard_links(self) -> Mapping[str, int]:
        """Describe the last listing's hard links: `of` files have several names; `files` counts the names
        beyond the first, and `bytes` what copies of them take. Empty when there are none."""
        return {}

    @property
    def empty_folders(self) -> Sequence[str]:
        """Return the last listing's empty folders, in the files' order, all in memory; () unless the dataset
        keeps them (`empty_folders: keep`)."""
        return ()

    def renew(self, credentials: object) -> None:  # noqa: ARG002
        """Give new credentials (`registry.credentials`) to every reader of this source."""
        return

    def check(self) -> None:
        """Reach the source once, cheaply. Raises PreflightError that names the URL and what to do."""

    def list(self) -> Iterator[Sequence[Listed]]:
        """List everything below the root in batches, ascending by the key's bytes (`os.fsencode`), in bounded
        memory. Pages in another order, or in a circle, are an error."""

    def list_one(self, key: str) -> Listed | None:
        """Return the object of this key as `list` would state it now.

        None: it is gone, both by name and in a new listing of its prefix. An unreadable object is not gone.
        Raises TransientError for what may pass, ExpiredCredentialsError, ObjectError for a refusal, and
        SourceChangedError where something else took its place.
        """

    def reader(self) -> Reader: ...

    def checksum(self, entry: Entry) -> Sequence[SourceChecksum]:  # noqa: ARG002
        """Query the whole object's checksums, where answers to ranges do not state them (a giant's parts). ()
        when there are none."""
        return ()

    def part_sizes(self, entry: Entry, parts: int) -> Sequence[int] | None:  # noqa: ARG002
        """Return the size of each part of the listed version, in bytes; () if not stated, None if the store
        has no uploads in parts.

        This costs a request for each part: it is for composite checksums that do not hold. Raises
        PenstockError.
        """
        return None


@contextmanager
def reading(source: Source, entry: Entry) -> Iterator[Body]:
    """Open the listed object with a reader of its own: closed at the end, dropped after an error. Raises as
    `Body.readinto` and `Body.close`."""
    with closing(source.reader()) as reader:
        body = reader.open(entry, 0, entry.size)
        try:
            yield body
        except BaseException:
            body.abandon()
            raise
        body.close()
