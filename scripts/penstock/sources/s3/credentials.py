"""Resolves keys, region and endpoint of an S3 source in the parent process: once, and again when the store
refuses the keys.

The first of these that is present counts: `anon`; `credentials_file`; the keys that AWS's own tools would use
(`profile`, the environment, shared files, SSO, a container's role). To find AWS's keys, `session_keys` may
start botocore in a process that may send requests. An instance's metadata service is queried only with
`instance_metadata: true`.
"""

from __future__ import annotations

import configparser
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.core.errors import PreflightError
from penstock.core.human import in_quotes
from penstock.sources.credentials import ENVIRONMENT, read_secret
from penstock.sources.s3 import session_keys
from penstock.sources.s3.sigv4 import Keys

if TYPE_CHECKING:
    from penstock.config.settings import SourceConfig

_NAMES = {
    "aws_access_key_id": "access",
    "access_key_id": "access",
    "access_key": "access",
    "key": "access",
    "aws_secret_access_key": "secret",
    "secret_access_key": "secret",
    "secret_key": "secret",
    "secret": "secret",
    "aws_session_token": "session",
    "session_token": "session",
    "token": "session",
}
_ASKS_BOTOCORE = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CREDENTIAL_EXPIRATION", "BOTO_CONFIG")


@dataclass(frozen=True)
class S3Credentials:
    """The resolved values that a worker needs beside the configuration. Picklable."""

    keys: Keys | None  # None if requests are not signed
    region: str = "us-east-1"
    endpoint: str = ""  # the store's URL; "" for AWS's own endpoint of the region
    origin: str = ""  # see `sources.credentials`
    ca_bundle: str = ""  # the profile's file of certificate authorities, or ""

    @property
    def expires(self) -> float | None:
        """When the keys expire, in seconds since the epoch; None if never, or unknown."""
        return self.keys.expires if self.keys else None


def resolve(config: SourceConfig) -> S3Credentials:
    """Resolve the credentials now. Raises PreflightError if they are missing or not kept safely."""
    options = config.storage_options
    e = os.environ
    region = options.get("region") or e.get("AWS_REGION") or e.get("AWS_DEFAULT_REGION")
    endpoint = options.get("endpoint_url") or e.get("AWS_ENDPOINT_URL_S3") or e.get("AWS_ENDPOINT_URL")
    keys: Keys | None
    origin = bundle = ""
    if options.get("anon"):
        keys = None
    elif options.get("credentials_file"):
        origin = os.path.expanduser(str(options["credentials_file"]))
        keys = read_file(origin, str(options.get("profile") or ""))
    else:
        trusted = options.get("ca_bundle") or e.get("AWS_CA_BUNDLE") or str(endpoint).startswith("http:")
        decided = bool(region and endpoint and trusted)
        keys, origin = _of_environment(options, decided=decided), ENVIRONMENT
        if keys is None:
            profile, metadata = str(options.get("profile") or ""), bool(options.get("instance_metadata"))
            keys, resolved = session_keys.of_profile(profile, config.url, instance_metadata=metadata)
            region, endpoint = region or resolved["region"], endpoint or resolved["endpoint"]
            bundle, named = resolved["ca_bundle"], f"the profile {in_quotes(resolved['profile'])}"
            origin = ENVIRONMENT if resolved["method"] == "env" else named
    return S3Credentials(keys, str(region or "us-east-1"), str(endpoint or ""), origin, bundle)


def _of_environment(options: Any, *, decided: bool) -> Keys | None:
    """Find the keys that botocore would find first, without loading botocore (0.2 s of CPU in each step that
    reaches the store). None means that botocore has to be used.

    `decided` means that AWS's shared files do not affect region, endpoint and certificate authorities.

    | keys in the environment | a profile is named, or they expire  | decided, or no shared files | result  |
    |-------------------------|-------------------------------------|-----------------------------|---------|
    | no                      |                                     |                             | None    |
    | yes                     | yes                                 |                             | None    |
    | yes                     | no                                  | no                          | None    |
    | yes                     | no                                  | yes                         | the keys|
    """
    e = os.environ
    access, secret = e.get("AWS_ACCESS_KEY_ID"), e.get("AWS_SECRET_ACCESS_KEY")
    if not access or not secret or options.get("profile") or any(e.get(name) for name in _ASKS_BOTOCORE):
        return None
    if not decided:
        files = (
            e.get("AWS_CONFIG_FILE") or "~/.aws/config",
            e.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials",
            "~/.boto",
            "/etc/boto.cfg",
        )
        if any(name != os.devnull and os.path.lexists(os.path.expanduser(name)) for name in files):
            return None
    return Keys(access, secret, e.get("AWS_SECURITY_TOKEN") or e.get("AWS_SESSION_TOKEN") or "")


def read_file(path: str, profile: str = "") -> Keys:
    """Read keys from a file that is this user's, with mode 0600. It contains KEY=VALUE lines, or INI with
    sections. Raises PreflightError if it has no access key."""
    text = read_secret(path)
    values = parse(text, profile)
    if values is None or not values.get("access") or not values.get("secret"):
        section = f" for profile {in_quotes(profile)}" if profile else ""
        raise PreflightError(
            f"the credentials file has no access key{section}",
            where=path,
            hint="it wants aws_access_key_id=... and aws_secret_access_key=...",
        )
    return Keys(values["access"], values["secret"], values.get("session", ""))


def parse(text: str, profile: str = "") -> dict[str, str] | None:
    """Parse a section of an INI, or plain lines. Return those of the fields `access`, `secret` and `session`
    that it has. Return None if the section is missing, or the text is no INI."""
    lines = [line.strip().removeprefix("export ") for line in text.splitlines()]
    if not any(line.startswith("[") for line in lines):
        lines.insert(0, f"[{profile or 'default'}]")
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",), inline_comment_prefixes=None)
    try:
        parser.read_string("\n".join(lines))
    except configparser.Error:
        return None
    wanted = profile or "default"
    for section in (wanted, f"profile {wanted}"):
        if parser.has_section(section):
            pairs = parser.items(section)
            return {_NAMES[k.lower()]: v.strip().strip("\"'") for k, v in pairs if k.lower() in _NAMES}
    return None
