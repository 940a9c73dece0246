"""Checks AWS Signature Version 4 of header-signed requests against a small table of keys.

Source: AWS, "Authenticating Requests: Using the Authorization Header". Kept apart from the
client's signing on purpose: a mistake in one is seen by the other.
"""

from __future__ import annotations

import configparser
import hashlib
import hmac
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ALGORITHM = "AWS4-HMAC-SHA256"


def read_credentials(path: Path) -> dict[str, str]:
    """Access key to secret key, of every profile in an AWS credentials file."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(path.read_text())
    return {
        parser[name]["aws_access_key_id"]: parser[name]["aws_secret_access_key"]
        for name in parser.sections()
        if "aws_access_key_id" in parser[name]
    }


def refusal(method: str, path: str, query: str, headers: Mapping[str, str], keys: Mapping[str, str]) -> str:
    """ "" when the signature is right, else S3's error code."""
    authorization = headers.get("authorization", "")
    if not authorization.startswith(ALGORITHM):
        return "AccessDenied"
    try:
        fields = dict(
            item.strip().split("=", 1) for item in authorization[len(ALGORITHM) :].strip().split(",")
        )
        access_key, date, region, service, _ = fields["Credential"].split("/")
        signed = fields["SignedHeaders"].split(";")
        signature = fields["Signature"]
    except (KeyError, ValueError):
        return "AuthorizationHeaderMalformed"
    secret = keys.get(access_key)
    if secret is None:
        return "InvalidAccessKeyId"
    canonical = "\n".join(
        [
            method,
            quote(unquote(path), safe="/-_.~"),
            _canonical_query(query),
            *(f"{name}:{' '.join(headers.get(name, '').split())}" for name in signed),
            "",
            ";".join(signed),
            headers.get("x-amz-content-sha256", ""),
        ]
    )
    scope = f"{date}/{region}/{service}/aws4_request"
    stated = "\n".join(
        [ALGORITHM, headers.get("x-amz-date", ""), scope, hashlib.sha256(canonical.encode()).hexdigest()]
    )
    key = b"AWS4" + secret.encode()
    for step in (date, region, service, "aws4_request"):
        key = hmac.digest(key, step.encode(), "sha256")
    expected = hmac.digest(key, stated.encode(), "sha256").hex()
    return "" if hmac.compare_digest(expected, signature) else "SignatureDoesNotMatch"


def _canonical_query(query: str) -> str:
    # A plus sign is a plus sign here: signed clients write a blank as %20.
    pairs = parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)
    coded = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in pairs)
    return "&".join(f"{name}={value}" for name, value in coded)
