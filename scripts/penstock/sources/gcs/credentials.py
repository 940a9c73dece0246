"""Which access token, read-only and for an hour, a source of Google Cloud Storage uses.

| the first that is there | token |
|---|---|
| `anon`, or `token: anon` | none |
| `credentials_file`: a service account's JSON, or the line `token=` with the path of one | by a signed JWT |
| `instance_metadata`, or `token: cloud` | the metadata server's |
| `GOOGLE_APPLICATION_CREDENTIALS` of the environment: a service account's JSON | by a signed JWT |
| none of these | none |

https://developers.google.com/identity/protocols/oauth2/service-account#httprest says what the JWT holds.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from penstock.errors import FailedError, PreflightError
from penstock.sources.backoff import TRIES, retrying
from penstock.sources.http.connection import Connection
from penstock.sources.http.endpoint import Endpoint, endpoint, split
from penstock.sources.objects.refusals import refusal
from penstock.sources.secret_file import pairs, read_secret

if TYPE_CHECKING:
    from penstock.config.settings import SourceConfig

SCOPE = "https://www.googleapis.com/auth/devstorage.read_only"
METADATA = "metadata.google.internal"
HINT = "docs/configuration.md has the options of gcs; other ways to log in: `reader: fsspec`"


@dataclass(frozen=True)
class GcsCredentials:
    """What a worker needs, beside the configuration, to be let in. Picklable; never shown."""

    token: str = field(default="", repr=False)
    expires: float | None = None


def resolve(config: SourceConfig) -> GcsCredentials:
    """Raises PreflightError for files that are not kept safely or hold no account, FailedError where no token
    can be got, ConfigError for a `token_uri` that is no URL."""
    options = config.storage_options
    path = str(options.get("credentials_file") or "")
    if options.get("anon") or options.get("token") == "anon":
        return GcsCredentials()
    if not path and (options.get("instance_metadata") or options.get("token") == "cloud"):
        name, _, port = (os.environ.get("GCE_METADATA_HOST") or METADATA).partition(":")
        query = f"token?{urlencode({'scopes': SCOPE})}"
        line = f"GET /computeMetadata/v1/instance/service-accounts/default/{query}"
        # Never through a proxy.
        return _answered(Endpoint(name, int(port or 80), False, 5.0), line, "Metadata-Flavor: Google\r\n")
    path = os.path.expanduser(path or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS", ""))
    if not path:
        return GcsCredentials()
    text = read_secret(path)
    if not text.lstrip().startswith("{"):
        path = os.path.expanduser(pairs(text).get("token", ""))
        text = read_secret(path)
    server, assertion = _signed(text, path)
    body = urlencode({"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": assertion})
    lines = f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n"
    there = endpoint(server, options)
    return _answered(there, f"POST {there.origin}{split(server).path or '/'}", lines, body)


def _signed(text: str, path: str) -> tuple[str, str]:
    """Where a service account asks for a token, and the JWT by which it does."""
    import jwt

    now = int(time.time())
    try:
        account = json.loads(text)
        server = str(account["token_uri"])
        claims = {
            "iss": account["client_email"],
            "scope": SCOPE,
            "aud": server,
            "iat": now,
            "exp": now + 3600,
        }
        kid = {"kid": account["private_key_id"]}
        return server, jwt.encode(claims, account["private_key"], "RS256", headers=kid)
    except (ValueError, KeyError, TypeError, jwt.PyJWTError):
        raise PreflightError("the file is no service account's", where=path, hint=HINT) from None


def _answered(server: Endpoint, line: str, lines: str, body: str = "") -> GcsCredentials:
    head = f"{line} HTTP/1.1\r\nHost: {server.authority}\r\n{server.proxy_lines}{lines}\r\n{body}"

    def ask() -> GcsCredentials:
        connection = Connection(server)
        try:
            status = connection.request(head.encode("latin-1"))
            found = json.loads(connection.read_all(1 << 16)) if status == 200 else {}
            return GcsCredentials(str(found["access_token"]), time.time() + float(found["expires_in"]))
        except (ValueError, KeyError, TypeError):
            error = refusal(status, connection.headers, server.url, codes={})
            if error.retry:
                raise error from None
            why = f"status {status}"
            raise FailedError("there is no token to be had", where=server.url, why=why, hint=HINT) from None
        finally:
            connection.close()

    return retrying(ask, TRIES, time.sleep)
