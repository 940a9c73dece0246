"""S3's answers in XML: errors, buckets, pages of a listing."""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
import time
from bisect import bisect_left, bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
XMLNS = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_PLAIN = re.compile(r"[A-Za-z0-9_.~/-]*").fullmatch
_SPECIAL = re.compile(r"[&<>\"\x00-\x1f\x7f]")
LAST = "\U0010ffff"

MESSAGES = {
    "AccessDenied": (403, "Access Denied"),
    "AuthorizationHeaderMalformed": (400, "The authorization header is malformed"),
    "InvalidAccessKeyId": (403, "The AWS Access Key Id you provided does not exist in our records."),
    "InvalidArgument": (400, "Invalid Argument"),
    "InvalidRange": (416, "The requested range is not satisfiable"),
    "MethodNotAllowed": (405, "This server is read-only"),
    "NoSuchBucket": (404, "The specified bucket does not exist"),
    "NoSuchKey": (404, "The specified key does not exist."),
    "NotImplemented": (501, "A header or query you provided is not implemented here"),
    "PreconditionFailed": (412, "At least one of the pre-conditions you specified did not hold"),
    "SignatureDoesNotMatch": (
        403,
        "The request signature we calculated does not match the signature you provided.",
    ),
}


class BadArgumentError(Exception):
    """A query that cannot be answered: InvalidArgument."""


def escape(text: str) -> str:
    return _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", text)


def error(code: str, resource: str) -> bytes:
    message = MESSAGES[code][1]
    return (
        f"{HEAD}<Error><Code>{code}</Code><Message>{message}</Message>"
        f"<Resource>{escape(resource)}</Resource></Error>"
    ).encode()


def buckets(name: str, created: float) -> bytes:
    return (
        f"{HEAD}<ListAllMyBucketsResult{XMLNS}><Owner><ID>penstock</ID></Owner><Buckets><Bucket>"
        f"<Name>{escape(name)}</Name><CreationDate>{iso_time(int(created))}.000Z</CreationDate>"
        "</Bucket></Buckets></ListAllMyBucketsResult>"
    ).encode()


@lru_cache(maxsize=4096)
def iso_time(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def url_key(key: str) -> str:
    return key if _PLAIN(key) else quote(key, safe="/-_.~")


def page(
    bucket: str,
    root: int,
    keys: Sequence[str],
    query: Mapping[str, str],
    etag: Callable[[str, os.stat_result], str],
) -> bytes:
    """One answer to ListObjects, version 1 or 2. `root` is the folder's descriptor.

    A file that vanished since the keys were gathered is left out. Raises BadArgumentError.
    """
    version2 = query.get("list-type") == "2"
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    try:
        most = min(int(query.get("max-keys", "1000")), 1000)
        token = query.get("continuation-token", "")
        after = base64.urlsafe_b64decode(token).decode() if token else query.get("start-after", "")
    except (ValueError, binascii.Error) as error:
        raise BadArgumentError from error
    if not version2:
        after = query.get("marker", "")
    if most < 0:
        raise BadArgumentError
    coded = query.get("encoding-type") == "url"
    code = url_key if coded else escape
    at = max(bisect_left(keys, prefix), bisect_right(keys, after) if after else 0)
    if after and delimiter and after.endswith(delimiter):
        at = max(at, bisect_left(keys, after + LAST))
    parts: list[str] = []
    count, last = 0, ""
    while at < len(keys) and count < most:
        key = keys[at]
        if not key.startswith(prefix):
            at = len(keys)
            break
        cut = key.find(delimiter, len(prefix)) if delimiter else -1
        if cut >= 0:
            last = key[: cut + len(delimiter)]
            parts.append(f"<CommonPrefixes><Prefix>{code(last)}</Prefix></CommonPrefixes>")
            at = bisect_left(keys, last + LAST, at)
            count += 1
            continue
        at += 1
        try:
            seen = os.stat(key, dir_fd=root, follow_symlinks=False)
        except OSError:
            continue
        if not stat.S_ISREG(seen.st_mode):
            continue
        last = key
        count += 1
        seconds, nanoseconds = divmod(seen.st_mtime_ns, 1_000_000_000)
        parts.append(
            f"<Contents><Key>{code(key)}</Key><LastModified>{iso_time(seconds)}."
            f"{nanoseconds // 1_000_000:03d}Z</LastModified><ETag>&quot;{etag(key, seen)}&quot;</ETag>"
            f"<Size>{seen.st_size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        )
    more = most > 0 and at < len(keys) and keys[at].startswith(prefix)
    fields = [f"<Name>{escape(bucket)}</Name><Prefix>{code(prefix)}</Prefix><MaxKeys>{most}</MaxKeys>"]
    fields.append(f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>")
    if coded:
        fields.append("<EncodingType>url</EncodingType>")
    if delimiter:
        fields.append(f"<Delimiter>{code(delimiter)}</Delimiter>")
    if version2:
        fields.append(f"<KeyCount>{count}</KeyCount>")
        if token:
            fields.append(f"<ContinuationToken>{escape(token)}</ContinuationToken>")
        if more:
            following = base64.urlsafe_b64encode(last.encode()).decode()
            fields.append(f"<NextContinuationToken>{following}</NextContinuationToken>")
    else:
        fields.append(f"<Marker>{code(after)}</Marker>")
        if more:
            fields.append(f"<NextMarker>{code(last)}</NextMarker>")
    return f"{HEAD}<ListBucketResult{XMLNS}>{''.join(fields)}{''.join(parts)}</ListBucketResult>".encode()
