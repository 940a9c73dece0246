"""The port of sources: list objects, and read ranges of them. Reading fails if the object has changed.

`registry.open_source` picks an implementation: `posix`, `objects` with its dialects (`s3`, `azure`, `gcs`,
`web`), or `generic`. A `Source` is cheap, so each worker makes its own. No source changes the data it reads.
Optional abilities are further protocols (`Continued`, `WholeReader`, ...); callers test for them by
`isinstance`. Sizes and offsets are bytes; keys are relative to the source's root.
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
        """Give new credentials (`registry.credentials`) to every reader of this source."""
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
