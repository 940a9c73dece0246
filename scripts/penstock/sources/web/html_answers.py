"""What an answer holds in place of a file's own bytes: an HTML page (a login, a notice, a folder's page), or
the file in an encoding. Pure but for `decoded`, which reads an answer's body."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.sources.http.connection import Connection

_PAGES = ("text/html", "application/xhtml+xml")
_PAGE_NAMES = re.compile(r"\.(?:[xs]?html?|xht|shtml|php\d?|aspx?|jspx?|cgi|cfm)\Z", re.IGNORECASE)
_BEGIN = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:\s|<!--.*?-->|<\?xml.*?\?>)*"
    rb"<(?:!--|(?:!doctype\s+html|html|head|body|title|meta|script|style|link|noscript|form|div)\b)",
    re.IGNORECASE | re.DOTALL,
)
BLOCK = 1 << 20
"""Bytes that are read at a time."""
_STORED = {
    "gzip": (".gz", ".tgz", ".taz", ".svgz", ".bgz"),
    "compress": (".z", ".taz"),
    "bzip2": (".bz2", ".bz", ".tbz", ".tbz2"),
    "xz": (".xz", ".txz"),
    "br": (".br",),
    "zstd": (".zst", ".tzst"),
}
"""By a Content-Encoding, without `x-`: the ends of names whose files are stored in it."""


def is_page(headers: Mapping[bytes, bytes]) -> bool:
    """Whether an answer says that it is an HTML page. Names of headers are in lower case."""
    stated = headers.get(b"content-type", b"").partition(b";")[0]
    return stated.strip().lower().decode("latin-1") in _PAGES


def page_name(key: str) -> bool:
    """Whether a file of this name is expected to be an HTML page."""
    return _PAGE_NAMES.search(key) is not None


def encoding_of(headers: Mapping[bytes, bytes]) -> str:
    """The Content-Encoding of an answer, without the `x-` of older servers; "" where it has none."""
    stated = headers.get(b"content-encoding", b"").decode("latin-1").strip().lower()
    return "" if stated == "identity" else stated.removeprefix("x-")


def stored_in(key: str, encoding: str) -> bool:
    """Whether a file of this name is expected to hold bytes in this encoding. Apache states it of such files
    (`AddEncoding x-gzip .gz .tgz`), and answers with them as they are stored. Of any other name it says that
    the server encodes what it holds, or that it holds the encoded form alone."""
    return key.lower().endswith(_STORED.get(encoding, ()))


def decoded(body: Connection, encoding: str) -> Iterator[bytes]:
    """The body of an answer in the Content-Encoding that it states (`encoding_of`), in pieces of 1 MiB at
    most. Raises ValueError for an encoding that is not known, and for bytes that are not in it."""
    if encoding not in ("", "gzip", "deflate"):
        raise ValueError(f"it comes in the encoding {encoding[:40]}, although none was asked for")
    unpack = zlib.decompressobj(32 + zlib.MAX_WBITS) if encoding else None
    block = memoryview(bytearray(BLOCK))
    while count := body.readinto(block):
        while count < BLOCK and (more := body.readinto(block[count:])):
            count += more  # by chunks of a byte each the parser would begin anew for each of them
        data = bytes(block[:count])
        while data and unpack is not None:
            try:
                yield unpack.decompress(data, BLOCK)
            except zlib.error as error:
                raise ValueError(f"it is not in the encoding {encoding} that it states") from error
            if unpack.unused_data:
                raise ValueError(f"something follows its end in {encoding}")
            data = unpack.unconsumed_tail
        yield data
    if unpack is not None:
        yield unpack.flush()
    if unpack is not None and not unpack.eof:
        raise ValueError(f"it ends within its encoding {encoding}")


def begins_as_page(data: bytes) -> bool:
    """Whether bytes are the beginning of an HTML page, whatever the server calls them."""
    return _BEGIN.match(data) is not None
