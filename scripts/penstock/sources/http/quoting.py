"""Names as they stand in a URL: every byte is quoted but unreserved ones, once (RFC 3986, SigV4).
Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote_from_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNRESERVED = "-._~"
_PLAIN = re.compile(r"[A-Za-z0-9/._~-]*")


def quoted(key: str) -> str:
    """A key (`str` by os.fsdecode) as it stands in a path; slashes stay."""
    if _PLAIN.fullmatch(key):
        return key
    return quote_from_bytes(key.encode("utf-8", "surrogateescape"), safe="/" + _UNRESERVED)


def quoted_value(value: str) -> str:
    """A value as it stands in a query."""
    return quote_from_bytes(value.encode("utf-8", "surrogateescape"), safe=_UNRESERVED)


def query_string(pairs: Sequence[tuple[str, str]]) -> str:
    """A query in the order of its quoted names, as SigV4 signs it."""
    return "&".join(f"{k}={v}" for k, v in sorted((quoted_value(k), quoted_value(v)) for k, v in pairs))
