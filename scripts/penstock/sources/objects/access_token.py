"""Requests OAuth 2.0 access tokens from a token server. Requests to a store then contain the token."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from penstock.core.errors import ExpiredCredentialsError, FailedError
from penstock.host import waits
from penstock.sources.backoff import retrying
from penstock.sources.http.connection import Connection
from penstock.sources.objects.answers import refusal

if TYPE_CHECKING:
    from penstock.sources.http.endpoint import Endpoint

ANSWER_LIMIT = 1 << 16  # bytes of a token server's answer, at most
# number of tries, and seconds for each try: an unresponsive server is reported within a minute
TRIES, TIMEOUT = 4, 10.0


@dataclass(frozen=True)
class AccessToken:
    """A token and the time when it expires. Picklable; the representation does not show the token's text."""

    text: str = field(default="", repr=False)  # the token; "" if requests contain no token
    expires: float | None = None  # when the token expires, in seconds since the epoch; None if never
    origin: str = ""  # see `sources.credentials`

    @property
    def line(self) -> str:
        return f"Authorization: Bearer {self.text}\r\n" if self.text else ""

    def lasts(self, seconds: float) -> bool:
        return self.expires is None or time.time() < self.expires - seconds


def jwt_grant(server: str, issuer: str, scope: str, key: str, key_id: str) -> str:
    """Make the body of a request that exchanges a signed claim of identity, valid for an hour, for a token
    (RFC 7523, 2.1). Raises ValueError if `key` is no RSA key."""
    import jwt

    now = int(time.time())
    claims = {"iss": issuer, "scope": scope, "aud": server, "iat": now, "exp": now + 3600}
    try:
        assertion = jwt.encode(claims, key, "RS256", headers={"kid": key_id})
    except (TypeError, jwt.PyJWTError):
        raise ValueError("no RSA key") from None
    return urlencode({"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": assertion})


def requested(
    server: Endpoint, line: str, lines: str = "", body: str = "", *, origin: str, hint: str
) -> AccessToken:
    """Request a token from a token server (RFC 6749, 5.1), with retries.

    `line` is the request's method and target, `lines` are whole header lines, `body` is a form's data. Raises
    the last error when the retries run out, or FailedError with `hint` if the server's answer has no token.
    """
    if body:
        lines += f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n"
    head = f"{line} HTTP/1.1\r\nHost: {server.authority}\r\n{server.proxy_lines}{lines}\r\n{body}"

    def ask() -> AccessToken:
        connection, answer = Connection(server), {}
        try:
            status = connection.request(head.encode("latin-1"))
            answer = json.loads(connection.read_all(ANSWER_LIMIT))
            if status != 200:
                raise ValueError(status)
            return AccessToken(str(answer["access_token"]), time.time() + float(answer["expires_in"]), origin)
        except (ValueError, KeyError, TypeError):
            error = refusal(status, connection.headers, server.url, message=_stated(answer), codes={})
            if error.retry and not isinstance(error, ExpiredCredentialsError):
                raise error from None
            what = "the server of access tokens gives none"
            raise FailedError(what, where=server.url, why=error.why, hint=hint) from None
        finally:
            connection.close()

    return retrying(ask, TRIES, waits.pause)


def _stated(answer: object) -> str:
    """Return the server's reason for a refusal (RFC 6749, 5.2), such as a wrong clock or a withdrawn key."""
    fields = answer if isinstance(answer, dict) else {}
    return " ".join(str(fields[name]) for name in ("error", "error_description") if name in fields)
