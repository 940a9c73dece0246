"""S3 through s3fs. Requests go through s3fs's signed `call_s3`, with If-Match for the listed etag and with
the checksums that S3 states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.core.model import Listed
from penstock.errors import FailedError, PenstockError, TransientError
from penstock.sources.checksum_headers import s3_claims
from penstock.sources.decimals import decimal
from penstock.sources.generic import object_library
from penstock.sources.generic.info import nanoseconds
from penstock.sources.generic.object_library import Answer
from penstock.sources.objects.pages import Objects
from penstock.sources.s3.client import failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.core.model import Entry


class S3fsObjects:
    """See `ObjectLibrary`."""

    in_order = True
    least = 1

    def defaults(self) -> Mapping[str, object]:
        # s3fs tries again by itself; botocore below it would multiply that.
        return {"config_kwargs": {"retries": {"max_attempts": 0}}}

    def page(self, fs: Any, bucket: str, prefix: str, token: str, limit: int) -> Objects:
        more: dict[str, object] = {"ContinuationToken": token} if token else {}
        more |= {"MaxKeys": min(limit, 1000), "timeout": object_library.LONGEST}
        found = fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, **more)
        objects = [
            Listed(one["Key"], one["Size"], one.get("ETag", "").strip('"'), nanoseconds(one["LastModified"]))
            for one in found.get("Contents", ())
        ]
        following = found.get("NextContinuationToken", "") if found.get("IsTruncated") else ""
        if "IsTruncated" not in found or (found["IsTruncated"] and not following):
            # Else the answer of another server would be an empty listing, or half of one a whole.
            why = "it does not say whether and how it goes on"
            raise FailedError("the answer is no listing", where=f"s3://{bucket}/{prefix}", why=why)
        return Objects(objects, following)

    def fetch(self, fs: Any, bucket: str, name: str, entry: Entry, offset: int, length: int) -> Answer:
        from fsspec.asyn import sync

        how = {"Bucket": bucket, "Key": name, "ChecksumMode": "ENABLED"}
        if entry.token and not entry.token.startswith("W/"):
            how["IfMatch"] = f'"{entry.token}"'
        whole = length in (0, entry.size)
        if not whole:
            how["Range"] = f"bytes={offset}-{offset + length - 1}"
        limit = object_library.LONGEST
        answer = fs.call_s3("get_object" if length else "head_object", **how, timeout=limit)
        told = answer["ResponseMetadata"]
        headers = {name.encode(): value.encode() for name, value in told["HTTPHeaders"].items()}
        stated, data = decimal(headers.get(b"content-length", b"").decode()), b""
        if length:
            try:
                # botocore compares the bytes of a whole answer with the first checksum that it states.
                data = bytes(sync(fs.loop, answer["Body"].read, timeout=limit))
            finally:
                answer["Body"].close()
            stated = len(data)
        version = answer["ETag"].strip('"') if "ETag" in answer else None
        claims = s3_claims(headers, whole=whole)
        return Answer(
            data, told["HTTPStatusCode"], -1 if stated is None else stated, headers, version, claims
        )

    def failure(self, error: BaseException, where: str) -> PenstockError | None:
        from aiohttp import ClientError
        from botocore import exceptions as of_botocore

        stated = error if hasattr(error, "response") else error.__cause__
        answer = getattr(stated, "response", None)
        if isinstance(answer, dict):
            told, given = answer.get("Error", {}), answer.get("ResponseMetadata", {})
            headers = {k.encode(): str(v).encode() for k, v in given.get("HTTPHeaders", {}).items()}
            status = int(given.get("HTTPStatusCode", 0))
            return failure(status, str(told.get("Code", "")), str(told.get("Message", "")), headers, where)
        why = str(error)[:300] or type(error).__name__
        lacking = (
            of_botocore.NoCredentialsError,
            of_botocore.CredentialRetrievalError,
            of_botocore.PartialCredentialsError,
            of_botocore.ProfileNotFound,
        )
        if isinstance(error, lacking):
            return FailedError("there are no credentials for the source", where=where, why=why)
        if isinstance(error, (of_botocore.BotoCoreError, ClientError, OSError)):
            return TransientError("the exchange with the server failed", where=where, why=why)
        return None
