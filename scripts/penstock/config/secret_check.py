"""Refuses keys and URLs that would hold a secret, without repeating it.

The configuration is copied into logs, run folders and reports. So it holds references only: a vendor's
profile, or a file of mode 0600.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from penstock.config.source_kinds import of_url, with_slashes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.config.strict_yaml import KeyPath

HINT = (
    "secrets do not belong in this file: name a profile (`profile: staging`) or a file of mode 0600 "
    "(`credentials_file: ~/.config/penstock/credentials`)"
)

_SECRET_KEY = re.compile(
    r"(?i)^(?:key|pass|password|passwd|passphrase|secret|token|sas|pwd|authorization|auth|cookie|credential"
    r"|credentials|connection_?string|bearer)$"
    r"|(?:^|_)(?:access_?key|secret|password|passwd|token|sas|api_?key|account_?key|private_?key|shared_?key"
    r"|client_?secret|connection_?string|encryption_?key|signature)(?:_?id)?$"
    r"|(?:_key|secretkey|accesskeyid|secretaccesskey|sessiontoken|accountkey|connectionstring)$"
)
_HARMLESS_VALUES = {"anon", "google_default", "cloud", "cache"}  # values of gcsfs's `token` that are no token
# Further names in a query: how CDNs and services give access.
_SECRET_QUERY = re.compile(
    r"(?i)(?:^|_)(?:signature|sig|credential|token|jwt|auth|authkey|authorization|access|ticket|session"
    r"|sessionid|session_id|hdn(?:ea|ts)|policy|pwd|pass|code|hmac|hash|nonce|otp|assertion)$"
    r"|key_pair_id|^awsaccesskeyid$|google_?access_?id|accesssignature|access_signature"
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def offenders(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Yield (key path, why) of all that is, or may be, an inline secret."""
    if isinstance(value, dict):
        for key, child in value.items():
            below = (*path, key)
            named = path == ("datasets",)  # a dataset may be called `token`
            if not named and _is_secret_key(key, child):
                yield below, "would hold a secret"
                continue
            yield from offenders(child, below)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from offenders(child, (*path, index))
    elif isinstance(value, str):
        why = in_url(value)
        if why:
            yield path, why


def _is_secret_key(key: str, value: Any) -> bool:
    if isinstance(value, bool) or (isinstance(value, str) and value in _HARMLESS_VALUES):
        return False
    return bool(_SECRET_KEY.search(key.replace("-", "_")))


def _shown(name: str) -> str:
    return name if name.isascii() and name.isprintable() and len(name) <= 40 else "..."


def in_url(text: str) -> str:
    """Return why this URL carries a secret, or ""."""
    url = with_slashes(text) or text
    if "://" not in url:
        return ""
    try:
        components = urlsplit(url)
    except ValueError:
        return ""
    user, at_sign, _ = components.netloc.rpartition("@")
    # abfs://container@account/ has its container before the @.
    if at_sign and (":" in user or not of_url(url).user):
        return "has user info (`user:password@`) in its URL"
    for name, _ in parse_qsl(components.query, keep_blank_values=True):
        # accessToken, X-Plex-Token and access_token are one name.
        plain = _HUMP.sub("_", name.replace("-", "_").replace(".", "_"))
        if _SECRET_KEY.search(plain) or _SECRET_KEY.search(name) or _SECRET_QUERY.search(plain):
            return f"has what may be a token or a signature in its URL's query (`{_shown(name)}`)"
    return ""
