"""The port of sources: list, and read ranges that fail when the object changed.

Implementations: `posix`, `objects` with its dialects (`s3`, `azure`, `gcs`, `web`) and `generic`.
`registry.open_source` picks one by the URL and `storage_options.reader`.
A `Source` is cheap to make. It is not sent between processes: each worker makes its own from the
configuration.

Steps list a source (`listing.collection`), workers of the engine read its objects (`engine.transfer`).
Implementations touch the network, or the source's folder, and never change what they read. A source or reader
that can do more than the rest has a further protocol here (`Continued`, `WholeReader`, ...), and callers find
out by `isinstance`. In all of them sizes and offsets are bytes, and keys are relative to the source's root.
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

REQUEST = 8 << 20
"""Bytes of one request of a source that cannot stream a whole object."""


Keep = Callable[[str], bool]
"""Whether a key belongs to the dataset; of a key that ends in a slash, whether anything in that folder may. A
source lists other keys all the same, but refuses the dataset for none of them."""


class Body(Protocol):
    """The bytes of one range of one object, read once, in order."""

    checksums: Sequence[SourceChecksum]
    """What the source states of these bytes, known as soon as `open` returned, so that the same checksums can
    be computed while the bytes are read. For a range that is not the whole object only `full` checksums are
    given that can be combined from parts: crc64nvme, crc32c, crc32."""

    def readinto(self, buffer: memoryview) -> int:
        """Fill `buffer` as far as bytes are at hand; 0 exactly at the end of the range.

        Raises TransientError for a body that ends early or a connection that breaks,
        SourceChangedError when the object is not the listed one, ObjectError for a refusal.
        """

    def close(self) -> None:
        """End of reading. After the whole range was read: checks once more that the object is
        the listed one (POSIX: fstat) and raises SourceChangedError. Keeps a connection only
        when the range was read to its end."""

    def abandon(self) -> None:
        """Drop the body, read or not; never raises."""


class Reader(Protocol):
    """Reads for ONE thread: owns a connection or folder descriptors, and reuses them until `close`. Who made
    it (`Source.reader`) closes it."""

    def open(self, entry: Entry, offset: int, length: int) -> Body:
        """Bytes `[offset, offset + length)` of the listed version of the object.

        Conditional (If-Match, version, fstat), and the answer's own etag and size compared. Raises as
        `Body.readinto`, and ExpiredCredentialsError for credentials that the store no longer takes.
        """

    def close(self) -> None: ...

    def checksum(self, entry: Entry) -> Sequence[SourceChecksum] | None:  # noqa: ARG002
        """As `Source.checksum`, over the connection that it has. None: the source is to be asked."""
        return None

    def data_bytes(self, key: str, size: int) -> int:  # noqa: ARG002
        """How many bytes of the file that has this key now are no hole, at most: `size` where it has another
        size, or holes are not reported. Raises as `open`."""
        return size


@runtime_checkable
class WholeReader(Reader, Protocol):
    """A reader that has a shorter way for small objects."""

    def whole(self, entry: Entry, buffer: memoryview) -> tuple[memoryview, Sequence[SourceChecksum]] | None:
        """All bytes of the listed version, and what the source states of them, with all checks of `open` and
        `close`. The bytes lie somewhere in `buffer`, which is larger than the object. None when they did not
        come in one read: the caller then uses `open`."""


@runtime_checkable
class AheadReader(WholeReader, Protocol):
    """A reader that can request objects before they are read, since answers take time."""

    def ahead(self, entry: Entry) -> None:
        """Request the whole object now. `whole` is called for it later, in the order of the requests;
        requests that the caller skips are dropped then. Never raises PenstockError: `whole` raises what went
        wrong."""


@runtime_checkable
class Continued(Protocol):
    """A source whose listing can begin at any key."""

    def list_between(self, after: bytes, upto: bytes | None) -> Iterator[Sequence[Listed]]:
        """Of the objects of `list`, those whose keys come behind `after`, up to and with `upto` (None: to the
        end), without listing the others."""


class Source(Protocol):
    """One root or prefix of one store. What few sources have is answered here for all others."""

    url: str  # for people and for the seal: never with a secret in it
    renew_refused: Callable[[ExpiredCredentialsError, bool], None] | None = None
    """The `renew` of `backoff.retrying`, for one thread at a time, of a source that resolves its credentials
    anew by itself."""
    list_sorted: Callable[[Path], Iterator[Sequence[Listed]]] | None = None
    """As `list`, sorted on disk in the folder given: for the listing after one that raised
    `listing_order.DisorderError`, of a store that may list its keys in another order than that of their
    bytes. Begins when the store's listing has ended."""
    asking: Callable[[], AbstractContextManager[Callable[[str], Listed | None]]] | None = None
    """A function for many threads at once, over connections that are kept. It states the object of a key as
    `list` does, but for its time, which may lack the fractions of a second; None when the store does not find
    it. It retries what may pass, and raises what else `list_one` does."""

    @property
    def origin(self) -> str:
        """Which store or file system it is, beyond the URL, which may lead elsewhere by now: list writes this
        into the run's description, and finds a listing by it that was broken off. Never a secret. Raises
        OSError for a folder that cannot be looked at."""
        return self.url

    @property
    def ignored(self) -> Mapping[str, int]:
        """How many items the last listing left out by policy, by reason: {"links": 2, "filtered": 1}."""
        return {}

    @property
    def untimed(self) -> int:
        """Objects of the last listing whose metadata states no time (`times: metadata`)."""
        return 0

    @property
    def hard_links(self) -> Mapping[str, int]:
        """Of the last listing: `of` files have several names; `files` counts their names beyond the first,
        and `bytes` what copies of these take. Empty when there are none."""
        return {}

    @property
    def empty_folders(self) -> Sequence[str]:
        """The folders of the last listing that hold nothing, in the order of the files; () unless the dataset
        keeps them (`empty_folders: keep`). All are in memory."""
        return ()

    def renew(self, credentials: object) -> None:  # noqa: ARG002
        """New credentials (`registry.credentials`) for every reader of this source."""
        return

    def check(self) -> None:
        """Reach it once, cheaply. Raises PreflightError that names the URL and what to do."""

    def list(self) -> Iterator[Sequence[Listed]]:
        """Everything below the root, in batches, in ascending order of the key's bytes
        (`os.fsencode`). Bounded memory. A changed or looping page order is an error."""

    def list_one(self, key: str) -> Listed | None:
        """The object of this key as `list` would state it now. None when it is gone: not found by its name,
        and missing in a new listing of its prefix too. An object that may not be read does not count as gone.

        Raises TransientError for what may pass, ExpiredCredentialsError, ObjectError for a refusal, and
        SourceChangedError where something else took its place.
        """

    def reader(self) -> Reader: ...

    def checksum(self, entry: Entry) -> Sequence[SourceChecksum]:  # noqa: ARG002
        """Query the checksums of the whole object, where the answers to its ranges do not state them (a
        giant's parts). () when there are none."""
        return ()

    def part_sizes(self, entry: Entry, parts: int) -> Sequence[int] | None:  # noqa: ARG002
        """Bytes of each part of the listed version, in order; () when the store does not state them, None
        where no object is uploaded in parts. It takes one request a part, so it is called only where a
        composite checksum does not hold. Raises PenstockError."""
        return None


@contextmanager
def reading(source: Source, entry: Entry) -> Iterator[Body]:
    """The body of the listed object, by a reader of its own: closed at the end, dropped after an error.
    Raises as `Body.readinto` and `Body.close`."""
    with closing(source.reader()) as reader:
        body = reader.open(entry, 0, entry.size)
        try:
            yield body
        except BaseException:
            body.abandon()
            raise
        body.close()
