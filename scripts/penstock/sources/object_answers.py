"""Judges a store's answers: which error a refusal means, and whether an object's version, size, range and
length are the listed ones. A condition (If-Match, a version in the query) is not enough, since some servers
and proxies ignore it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.errors import (
    STORE_AMISS,
    ExpiredCredentialsError,
    FailedError,
    ObjectError,
    PenstockError,
    PreflightError,
    SourceChangedError,
    TransientError,
)
from penstock.core.human import in_quotes
from penstock.sources.backoff import OVERLOADED_CODES, asked_for, retry_after

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.core.model import Entry


class Meaning(NamedTuple):
    """The meaning of a store's error code or status: the error's type, words and hint."""

    error: type[PenstockError]
    what: str
    hint: str = ""


_ENDED = Meaning(ExpiredCredentialsError, "the session's keys ended")
REFUSED = Meaning(ExpiredCredentialsError, "the store refuses the credentials")
_CLOCK = Meaning(FailedError, "this machine's clock is wrong", "set it (NTP)")
# Error codes about credentials, for every store. If a key was deleted, or a server lost a session (MinIO:
# `InvalidTokenId`), the place of the source's keys may have new ones by now.
CREDENTIALS: Mapping[str, Meaning] = {
    **dict.fromkeys(
        ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "ExpiredAuthenticationToken"),
        _ENDED,
    ),
    **dict.fromkeys(("InvalidAccessKeyId", "InvalidToken", "InvalidTokenId"), REFUSED),
    **dict.fromkeys(("RequestTimeTooSkewed", "RequestExpired"), _CLOCK),
}

# error codes after which a retry may help, whatever the status
WAITS = OVERLOADED_CODES | {"RequestTimeout", "InternalError", "OperationTimedOut"}
# {status: meaning}, the same for every request, unless an error code is more precise.
STATUSES: Mapping[int, Meaning] = {
    401: REFUSED,
    407: Meaning(
        FailedError, "the proxy asks for a name and a password", "put them into HTTPS_PROXY, or name another"
    ),
}

NOTHING_THERE = (
    "open the address by curl or in a browser; then correct the source's URL, or `endpoint_url` if "
    "storage_options has it, or the page that links there"
)


def amiss(what: str, where: str, why: str = "") -> FailedError:
    """Make the error of a listing that cannot be right."""
    return FailedError(f"the listing {what}", where=where, why=why, hint=STORE_AMISS)


@contextmanager
def reaching(what: str, where: str, hint: str = "") -> Iterator[None]:
    """Turn errors of the body of the `with` statement, a source's first request, into PreflightError."""
    try:
        yield
    except PreflightError:
        raise
    except PenstockError as error:
        raise PreflightError(what, where=where, why=error.reason, hint=error.hint or hint) from None


def grouped(where: str) -> FailedError:
    return amiss(
        "lacks objects",
        where,
        "it names prefixes in place of the objects below them, which was not asked for",
    )


def within(key: str, prefix: str, where: str) -> str:
    """Return a listed key relative to the prefix. Raises FailedError for a key outside of it."""
    if not key.startswith(prefix):
        raise amiss("has a key outside of the prefix", where, in_quotes(key))
    return key[len(prefix) :]


def refusal(
    status: int,
    headers: Mapping[bytes, bytes],
    where: str,
    *,
    code: str = "",
    message: str = "",
    codes: Mapping[str, Meaning],
    listing: bool = False,
) -> PenstockError:
    """Return the error of an answer with an unwanted status.

    If `listing`, the request was for a listing, so no known object can be gone.

    | status, code | error |
    |---|---|
    | a code in `codes` or `CREDENTIALS` | the error named there |
    | 401 | ExpiredCredentialsError |
    | 407 | FailedError, since every other request gets this answer, too |
    | 429, 503, a code in `backoff.OVERLOADED_CODES`, or the next row with a Retry-After | OverloadedError |
    | 408, other 5xx, a code in `WAITS` | TransientError |
    | 412, 404, 410, 416 | SourceChangedError |
    | any other | ObjectError |
    """
    why = " ".join(filter(None, (f"status {status}", code, message[:300])))
    meaning = codes.get(code) or CREDENTIALS.get(code) or STATUSES.get(status)
    if meaning is not None:
        return meaning.error(meaning.what, where=where, why=why, hint=meaning.hint)
    if status in (408, 429) or status >= 500 or code in WAITS:
        return asked_for("the store asks for patience", where, why, status, code, retry_after(headers))
    if status == 412:
        return SourceChangedError("the object changed since it was listed", where=where, why=why)
    if status in (404, 410) and listing:
        return SourceChangedError("there is nothing at the address", where=where, why=why, hint=NOTHING_THERE)
    if status in (404, 410):
        return SourceChangedError("the object is gone since it was listed", where=where, why=why)
    if status == 416:
        return SourceChangedError("the object is shorter than it was listed", where=where, why=why)
    return ObjectError("the store refuses the object", where=where, why=why)


def misfit(
    status: int,
    length: int,
    headers: Mapping[bytes, bytes],
    version: str | None,
    entry: Entry,
    span: tuple[int, int],
    where: str,
) -> PenstockError | None:
    """Return the error of an answer of status 200 or 206 to a GET of `span` (offset, length), or None.

    `length` is the length that the answer states, or -1. For `version` see `ObjectClient.version`. Stores may
    keep objects in a Content-Encoding, and serve them as stored. The first row that applies counts:

    | the answer | error |
    |---|---|
    | states no version, though a token is listed | ObjectError: a login page, a proxy |
    | states another version than the listed token | SourceChangedError |
    | has a Content-Encoding, and another length or none | ObjectError: encoded on the way |
    | is 206, with another size of the object (`/total`) than the listed one | SourceChangedError |
    | is 200, with another length, and no token is listed | SourceChangedError |
    | is 206, with another range | ObjectError |
    | has another length | TransientError: something on the way cut it |
    | is none of these, or states no length | none |
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
        if status == 200 and not entry.token:  # only the size can show a change
            return _other_size(where, why)
        return TransientError("the answer's length is not the listed one", where=where, why=why)
    return None


def head_misfit(
    length: int, headers: Mapping[bytes, bytes], version: str | None, entry: Entry, where: str
) -> PenstockError | None:
    """Return the error of a HEAD's answer of status 200, or of a description. `length` -1: not stated."""
    if (error := other_version(headers, version, entry, where)) is not None:
        return error
    if length not in (-1, entry.size):
        return _other_size(where, f"it has {length} bytes, {entry.size} were listed")
    return None


def other_version(
    headers: Mapping[bytes, bytes], version: str | None, entry: Entry, where: str
) -> PenstockError | None:
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
