"""Which access token a source of Google Cloud Storage uses, and the request for it.

A token is asked for reading alone; it ends at `AccessToken.expires`, mostly after an hour, and does not renew
itself. `resolve` is called anew for the next one: by `GcsSource` when the store refuses the old one, by the
engine (through `sources.registry.credentials`) also before the old one ends. Reads the environment and files
of secrets, and sends requests to the token server; writes nothing.

| the first that is there | token |
|---|---|
| `anon` | none |
| `credentials_file`: a service account's JSON, or the line `token=` with the path of one | by a signed JWT |
| `instance_metadata` | the metadata server's (GCE_METADATA_HOST of the environment, or METADATA) |
| `GOOGLE_APPLICATION_CREDENTIALS` of the environment: as `credentials_file` | by a signed JWT |
| none of these | none |

https://developers.google.com/identity/protocols/oauth2/service-account#httprest says what the JWT holds.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from penstock.core.errors import PreflightError
from penstock.sources.http.endpoint import Endpoint, endpoint, split
from penstock.sources.objects.access_token import TIMEOUT, AccessToken, jwt_grant, requested
from penstock.sources.secret_file import pairs, read_secret

if TYPE_CHECKING:
    from penstock.config.settings import SourceConfig

SCOPE = "https://www.googleapis.com/auth/devstorage.read_only"
METADATA = "metadata.google.internal"
HINT = (
    "give storage_options a credentials_file, `instance_metadata: true` or `anon: true`; other ways to log "
    "in are those of `reader: fsspec`"
)


def resolve(config: SourceConfig) -> AccessToken:
    """The token by the table, requested now; one without text where the table says none. A server that does
    not answer is asked up to four times, over a minute at most (`access_token.TRIES`, `TIMEOUT`).

    Raises PreflightError for files that are not kept safely or hold no account, FailedError where the server
    gives no token, TransientError where it does not answer or asks for a later try, ConfigError for a
    `token_uri` or a GCE_METADATA_HOST that makes no URL; and what `endpoint` raises of a proxy or of a bundle
    of certificate authorities."""
    options = config.storage_options
    path = str(options.get("credentials_file") or "")
    if options.get("anon"):
        return AccessToken()
    if not path and options.get("instance_metadata"):
        host = split(f"http://{os.environ.get('GCE_METADATA_HOST') or METADATA}")
        query = f"token?{urlencode({'scopes': SCOPE})}"
        line = f"GET /computeMetadata/v1/instance/service-accounts/default/{query}"
        # Never through a proxy.
        there = Endpoint(host.hostname or "", host.port or 80, tls=False, timeout=5.0)
        return requested(there, line, "Metadata-Flavor: Google\r\n", origin="the metadata server", hint=HINT)
    path = os.path.expanduser(path or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS", ""))
    if not path:
        return AccessToken()
    text = read_secret(path)
    if not text.lstrip().startswith("{"):
        path = os.path.expanduser(pairs(text).get("token", ""))
        text = read_secret(path)
    try:
        account = json.loads(text)
        server, sender, key = str(account["token_uri"]), account["client_email"], account["private_key"]
        body = jwt_grant(server, sender, SCOPE, key, account["private_key_id"])
    except (ValueError, KeyError, TypeError):
        raise PreflightError("the file is no service account's", where=path, hint=HINT) from None
    there = endpoint(server, options, timeout=TIMEOUT)
    line = f"POST {there.origin}{split(server).path or '/'}"
    return requested(there, line, body=body, origin=path, hint=HINT)
