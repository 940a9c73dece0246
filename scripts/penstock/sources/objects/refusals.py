"""Which error a store's refusal means: one table of statuses for all stores, codes by store. Pure. Each
dialect's client calls `refusal` for an answer that it did not want."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.core.errors import (
    ExpiredCredentialsError,
    FailedError,
    ObjectError,
    PenstockError,
    SourceChangedError,
)
from penstock.sources.backoff import asked_for, retry_after

if TYPE_CHECKING:
    from collections.abc import Container, Mapping


class Meaning(NamedTuple):
    """What a code of a store means, whatever status it comes with: the error's type, its words, its hint."""

    error: type[PenstockError]
    what: str
    hint: str = ""


_ENDED = Meaning(ExpiredCredentialsError, "the session's keys ended")
REFUSED = Meaning(ExpiredCredentialsError, "the store refuses the credentials")
_CLOCK = Meaning(FailedError, "this machine's clock is wrong", "set it (NTP)")
CREDENTIALS: Mapping[str, Meaning] = {
    **dict.fromkeys(
        ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "ExpiredAuthenticationToken"),
        _ENDED,
    ),
    **dict.fromkeys(("InvalidAccessKeyId", "InvalidToken", "InvalidTokenId"), REFUSED),
    **dict.fromkeys(("RequestTimeTooSkewed", "RequestExpired"), _CLOCK),
}
"""What codes say of the credentials, in every store. A key that was deleted, or a session that a server no
longer knows (MinIO: `InvalidTokenId`), may have been replaced where the source takes its keys from."""

STATUSES: Mapping[int, Meaning] = {
    401: REFUSED,
    407: Meaning(
        FailedError, "the proxy asks for a name and a password", "put them into HTTPS_PROXY, or name another"
    ),
}
"""Statuses that mean the same for every request, unless a code says more."""

NOTHING_THERE = (
    "look at it in another way; then correct the source's URL (and `endpoint_url`, where storage_options has "
    "one), or have what links there corrected"
)


def refusal(
    status: int,
    headers: Mapping[bytes, bytes],
    where: str,
    *,
    code: str = "",
    message: str = "",
    codes: Mapping[str, Meaning],
    waits: Container[str] = (),
    listing: bool = False,
) -> PenstockError:
    """The error of an answer with a status that was not wanted. `waits`: codes after which a retry may help.
    `listing`: the request was of a listing, so nothing is known yet that could be gone.

    | status, code | error |
    |---|---|
    | one of `codes`, one of `CREDENTIALS` | what it says there |
    | 401 | ExpiredCredentialsError |
    | 407 | FailedError: every other request is answered so too |
    | 429, 503, `backoff.OVERLOADED_CODES`; one of the next row with a Retry-After | OverloadedError |
    | 408, other 5xx, one of `waits` | TransientError |
    | 412; 404, 410; 416 | SourceChangedError |
    | all else | ObjectError |
    """
    why = " ".join(filter(None, (f"status {status}", code, message[:300])))
    meaning = codes.get(code) or CREDENTIALS.get(code) or STATUSES.get(status)
    if meaning is not None:
        return meaning.error(meaning.what, where=where, why=why, hint=meaning.hint)
    if status in (408, 429) or status >= 500 or code in waits:
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
