"""What `library_source` needs of the library that fsspec has for a store: list a page, fetch a range, name an
error.

An implementation sends requests through the library's own signed calls, and does not use the library's
folders and files. Its folders (`ls`) hide keys with an empty segment (`a//b`), and its files (`open`,
`get_file`) are not always read on the condition that they are the listed version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.core.model import Claim, Entry
    from penstock.errors import PenstockError
    from penstock.sources.objects.pages import Objects


LONGEST = 300.0
"""Seconds that one request may take: `port.REQUEST` bytes at 28 KB/s. The libraries' own limits are on the
time without a byte, which a server that sends a byte now and then never reaches."""


class Answer(NamedTuple):
    """An answer with bytes of an object, or without any where its description was requested."""

    data: bytes
    status: int
    length: int
    """The number of bytes; in a description the object's size."""
    headers: Mapping[bytes, bytes]
    """By names in lower case."""
    version: str | None
    """The version that the answer states, as the listing's `token` has it; None where it states none."""
    claims: Sequence[Claim]
    """What the answer states of the whole object."""


class ObjectLibrary(Protocol):
    """One library. Methods raise what the library raises, which `failure` understands."""

    in_order: bool
    """Whether listings always come in the byte order of the names."""
    least: int
    """The smallest page (in objects) of a listing whose prefix is an object's whole name that surely has that
    object."""

    def defaults(self) -> Mapping[str, object]:
        """Options of the file system object that hold where the configuration gives none."""

    def page(self, fs: Any, bucket: str, prefix: str, token: str, limit: int) -> Objects:
        """The page after `token` ("": the first one) of the objects whose names begin with `prefix`, with
        their whole names; at most `limit` of them."""

    def fetch(self, fs: Any, bucket: str, name: str, entry: Entry, offset: int, length: int) -> Answer:
        """Bytes `[offset, offset + length)`, on the condition that the object is the listed version
        (`entry.token`, unless it is ""); with length 0 the object's description."""

    def failure(self, error: BaseException, where: str) -> PenstockError | None:
        """What an error of the library means for one object; None for one that is not the library's."""
