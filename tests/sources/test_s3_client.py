"""Redirects, regions and what answers mean."""

from __future__ import annotations

import email.utils
import time

import pytest
from tests.sources.test_http1 import Canned

from penstock.core import errors
from penstock.sources.backoff import retry_after
from penstock.sources.s3_client import Bucket, S3Client, same_store
from penstock.sources.s3_credentials import Keys, S3Credentials

EMPTY = b"Content-Length: 0\r\n\r\n"
OK = [b"HTTP/1.1 200 OK\r\n" + EMPTY]


def client(server: Canned) -> S3Client:
    bucket = Bucket("b", "", f"http://127.0.0.1:{server.port}", "us-east-1", path_style=True, options={})
    return S3Client(bucket, S3Credentials(Keys("AKIA", "secret", "session"), "us-east-1", bucket.endpoint))


@pytest.mark.parametrize("status", ["301 Moved", "400 Bad Request", "307 Temporary Redirect"])
def test_a_bucket_is_followed_to_its_region(status: str) -> None:
    moved = [f"HTTP/1.1 {status}\r\nx-amz-bucket-region: eu-7\r\nContent-Length: 5\r\n\r\nhello".encode()]
    with Canned(moved, OK, OK) as server:
        ours = client(server)
        for _ in range(2):
            connection = ours.request("GET", "x")
            assert connection.status == 200
            connection.finish()
        assert [b"/us-east-1/s3/" in asked for asked in server.requests] == [True, False, False]
        assert [b"/eu-7/s3/" in asked for asked in server.requests] == [False, True, True]
        ours.close()


def refusal(region: str) -> list[bytes]:
    body = f"<Error><Code>AuthorizationHeaderMalformed</Code><Message>no</Message>{region}</Error>".encode()
    return [b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)]


def test_a_region_that_only_the_error_names_is_used() -> None:
    with Canned(refusal("<Region>eu-7</Region>"), OK) as server:
        ours = client(server)
        assert ours.request("GET", "x").status == 200
        assert b"/eu-7/s3/" in server.requests[1]
        ours.close()


@pytest.mark.parametrize("region", ["", "<Region>us-east-1</Region>", "<Region>a&#10;b</Region>"])
def test_a_region_that_cannot_be_used_is_told(region: str) -> None:
    with Canned(refusal(region)) as server:
        ours = client(server)
        ours.request("GET", "x")
        error = ours.failure()
        assert isinstance(error, errors.FailedError)
        assert "another region" in str(error)
        assert "AuthorizationHeaderMalformed" in str(error)
        ours.close()


def test_an_error_to_a_head_has_no_body() -> None:
    with Canned([b"HTTP/1.1 404 Not Found\r\nContent-Length: 300\r\n\r\n"], OK) as server:
        ours = client(server)
        ours.request("HEAD", "x")
        assert isinstance(ours.failure(), errors.SourceChangedError)
        assert ours.request("HEAD", "x").status == 200
        ours.close()


def test_what_a_request_carries() -> None:
    with Canned(OK) as server:
        ours = client(server)
        ours.request("GET", "a/b%20c", "versionId=1", 'If-Match: "e"\r\n').finish()
        ours.close()
        lines = server.requests[0].decode().split("\r\n")
    assert lines[0] == "GET /b/a/b%20c?versionId=1 HTTP/1.1"
    fields = {line.partition(": ")[0]: line.partition(": ")[2] for line in lines[1:]}
    assert fields["Host"] == f"127.0.0.1:{server.port}"
    assert fields["Accept-Encoding"] == "identity"
    assert fields["x-amz-checksum-mode"] == "ENABLED"
    assert fields["x-amz-security-token"] == "session"
    assert fields["If-Match"] == '"e"'
    assert (
        "SignedHeaders=host;x-amz-checksum-mode;x-amz-content-sha256;x-amz-date;x-amz-security-token,"
        in (fields["Authorization"])
    )
    assert "secret" not in server.requests[0].decode()


@pytest.mark.parametrize(
    "location", ["http://evil.example/x", "//evil.example/x", "", "http://b.127.0.0.1.evil.example/"]
)
def test_nothing_is_sent_to_other_hosts(location: str) -> None:
    moved = [f"HTTP/1.1 307 X\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()]
    with Canned(moved) as server, pytest.raises(errors.FailedError, match="not followed"):
        client(server).request("GET", "x")


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("s3.amazonaws.com", "b.s3.eu-1.amazonaws.com", True),
        ("h", "h", True),
        ("H", "b.h", True),
        ("b.h", "h", False),
        ("h", "evilh", False),
        ("s3.amazonaws.com", "s3.amazonaws.com.evil.example", False),
        ("minio.site", "s3.amazonaws.com", False),
    ],
)
def test_same_store(old: str, new: str, same: bool) -> None:
    assert same_store(old, new) is same


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (412, "PreconditionFailed", errors.SourceChangedError),
        (404, "NoSuchKey", errors.SourceChangedError),
        (404, "", errors.SourceChangedError),
        (416, "InvalidRange", errors.SourceChangedError),
        (404, "NoSuchBucket", errors.FailedError),
        (403, "ExpiredToken", errors.ExpiredCredentialsError),
        (400, "ExpiredToken", errors.ExpiredCredentialsError),
        (403, "RequestTimeTooSkewed", errors.FailedError),
        (403, "SignatureDoesNotMatch", errors.FailedError),
        (400, "TokenRefreshRequired", errors.ExpiredCredentialsError),
        (403, "InvalidAccessKeyId", errors.ExpiredCredentialsError),
        (403, "InvalidToken", errors.ExpiredCredentialsError),
        (403, "InvalidTokenId", errors.ExpiredCredentialsError),
        (401, "", errors.ExpiredCredentialsError),
        (403, "RequestExpired", errors.FailedError),
        (407, "", errors.FailedError),
        (408, "", errors.OverloadedError),
        (429, "", errors.OverloadedError),
        (400, "RequestTimeout", errors.OverloadedError),
        (500, "InternalError", errors.OverloadedError),
        (503, "SlowDown", errors.OverloadedError),
        (403, "InvalidObjectState", errors.ObjectError),
        (403, "AccessDenied", errors.ObjectError),
        (200, "", errors.ObjectError),
    ],
)
def test_what_answers_mean(status: int, code: str, kind: type) -> None:
    bucket = Bucket("b", "", "http://h", "r", path_style=True, options={})
    body = f"<Error><Code>{code}</Code><Message>message</Message></Error>".encode()
    client = S3Client(bucket, S3Credentials(None))
    error = client.refusal(status, {b"retry-after": b"7"}, body, "k")
    assert type(error) is kind
    assert error.where == "s3://b/k"
    if isinstance(error, errors.TransientError) and kind is not errors.ExpiredCredentialsError:
        assert error.after == 7.0


def test_retry_after() -> None:
    assert retry_after({}) is None
    assert retry_after({b"retry-after": b"soon"}) is None
    assert retry_after({b"retry-after": b"999999"}) == 999999.0
    later = retry_after({b"retry-after": email.utils.formatdate(time.time() + 100, usegmt=True).encode()})
    assert later is not None
    assert 0 < later <= 100
    for odd in ("\xb2", "Fri, 31 Dec 99999 23:59:59 GMT", "9" * 5000, "-1", "1_0"):
        assert retry_after({b"retry-after": odd.encode("latin-1")}) is None
    assert retry_after({b"retry-after": b"Mon, 01 Jan 2001 00:00:00 GMT"}) == 0.0


def test_renewed_keys_sign_the_next_request() -> None:
    with Canned(OK, OK) as server:
        ours = client(server)
        ours.request("GET", "x").finish()
        ours.renew(S3Credentials(Keys("NEWKEY", "other")))
        ours.request("GET", "x").finish()
        ours.close()
        assert b"Credential=AKIA/" in server.requests[0]
        assert b"Credential=NEWKEY/" in server.requests[1]
        assert b"security-token" not in server.requests[1]


@pytest.mark.parametrize(
    "location",
    ["http://[bad", "ftp://127.0.0.1/", "http://127.0.0.1:99999/", "gopher:x", "http://127.0.0.1:1/b/x"],
)
def test_redirects_that_lead_nowhere_are_refused(location: str) -> None:
    answer = f"HTTP/1.1 307 R\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()
    with Canned([answer]) as server:
        ours = client(server)
        with pytest.raises(errors.FailedError, match="somewhere else"):
            ours.request("GET", "x")
        ours.close()
