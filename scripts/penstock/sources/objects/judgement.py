"""What is wrong with the answer to a conditional request for an object, if anything. Pure.

A condition (If-Match, a version in the query) is not enough: some servers and proxies ignore it, so the
answer's own version, size, range and length are compared with the listing. `objects.reader` and Google's
source call it for each answer; each function returns the error to raise, or None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.errors import ObjectError, PenstockError, SourceChangedError, TransientError
from penstock.core.text import in_quotes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.core.model import Entry


def misfit(
    status: int,
    length: int,
    headers: Mapping[bytes, bytes],
    version: str | None,
    entry: Entry,
    span: tuple[int, int],
    where: str,
) -> PenstockError | None:
    """What is wrong with an answer of status 200 or 206 to a GET of `span` (offset, length). `length` is the
    length that the answer states, -1 for none. `version`: see `ObjectClient.version`. Stores may keep
    objects in a Content-Encoding, and serve their bytes as they are stored and listed.

    The first row that applies:

    | the answer | error |
    |---|---|
    | a token is listed, the answer states no version | ObjectError: a login page, a proxy |
    | a token is listed, the answer states another version | SourceChangedError |
    | has a Content-Encoding, and its length is another one, or not stated | ObjectError: encoded on the way |
    | 206: the object's size (`/total`) is not the listed one | SourceChangedError |
    | 200, and no token is listed: another length | SourceChangedError |
    | 206: another range | ObjectError |
    | another length | TransientError: something on the way cut it |
    | none of these, or no length is stated | none |
    """
    offset, wanted = span
    other_length = length not in (-1, wanted)
    encoding = headers.get(b"content-encoding", b"identity").decode("latin-1")
    foreign = encoding not in ("", "identity")
    if (error := other_version(headers, version, entry, where)) is not None:
        return error
    if foreign and length != wanted:
        stated = f"{length} bytes" if length >= 0 else "no stated length"
        why = f"Content-Encoding {encoding}, {stated} where {wanted} bytes were asked for"
        return ObjectError("the answer is encoded on the way", where=where, why=why)
    if status == 206:
        stated = headers.get(b"content-range", b"").decode("latin-1")
        expected = f"bytes {offset}-{offset + wanted - 1}/{entry.size}"
        if stated != expected:
            why = f"{in_quotes(stated)}, not {in_quotes(expected)}"
            if stated.rpartition("/")[2] not in ("", "*", str(entry.size)):
                return _other_size(where, why)
            return ObjectError("the server answers with another range", where=where, why=why)
    if other_length:
        why = f"{length} bytes where {wanted} were asked for"
        if status == 200 and not entry.token:  # the size is all that can show a change
            return _other_size(where, why)
        return TransientError("the answer's length is not the listed one", where=where, why=why)
    return None


def head_misfit(
    length: int, headers: Mapping[bytes, bytes], version: str | None, entry: Entry, where: str
) -> PenstockError | None:
    """What is wrong with an answer of status 200 to a HEAD, or with an object's description. `length`: bytes,
    -1 where none are stated."""
    if (error := other_version(headers, version, entry, where)) is not None:
        return error
    if length not in (-1, entry.size):
        return _other_size(where, f"it has {length} bytes, {entry.size} were listed")
    return None


def other_version(
    headers: Mapping[bytes, bytes], version: str | None, entry: Entry, where: str
) -> PenstockError | None:
    """What is wrong with the version that an answer states, if anything."""
    if not entry.token or version == entry.token:
        return None
    if version is None:
        kind = headers.get(b"content-type", b"no type").decode("latin-1")
        return ObjectError(
            "what answered is no object of the store",
            where=where,
            why=f"it states no version, Content-Type {kind}",
            hint="a proxy or a login page may stand in between: check endpoint_url",
        )
    return SourceChangedError(
        "the object changed since it was listed",
        where=where,
        why="its version is another one now" if version else "its version is not stated now",
    )


def _other_size(where: str, why: str) -> SourceChangedError:
    return SourceChangedError("the object's size changed since it was listed", where=where, why=why)
