"""The signer against AWS's published vectors, and against botocore's own."""

from __future__ import annotations

import calendar
import datetime as dt

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sources.http_values import query_string, quoted
from penstock.sources.s3_credentials import EMPTY_SHA256, Keys, Signer

SUITE = Keys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
SUITE_TIME = calendar.timegm((2015, 8, 30, 12, 36, 0))
S3_KEYS = Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
S3_TIME = calendar.timegm((2013, 5, 24, 0, 0, 0))


def authorization(
    signer: Signer,
    method: str,
    path: str,
    query: str,
    headers: list[tuple[str, str]],
    payload: str = EMPTY_SHA256,
) -> str:
    """The Authorization header, as a client of a bucket makes it of what `prepare` and `sign` give."""
    rest, start = signer.prepare(headers, payload)
    return start + signer.sign(f"{method}\n{path}\n{query}\n{rest}")


# AWS Signature Version 4 test suite (aws-sig-v4-test-suite).
@pytest.mark.parametrize(
    ("path", "query", "signature"),
    [
        ("/", [], "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        (
            "/",
            [("Param2", "value2"), ("Param1", "value1")],
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        ("/", [("ሴ", "bar")], "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"),
        ("/ሴ", [], "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"),
        (
            "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
            [],
            "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
        ),
    ],
)
def test_the_suites_vectors(path: str, query: list[tuple[str, str]], signature: str) -> None:
    signer = Signer(SUITE, "us-east-1", "service")
    headers = [("host", "example.amazonaws.com"), ("x-amz-date", signer.stamp(SUITE_TIME))]
    found = authorization(signer, "GET", quoted(path), query_string(query), headers)
    assert found == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders=host;x-amz-date, Signature={signature}"
    )


# Amazon S3 API reference, "Examples: signature calculations".
@pytest.mark.parametrize(
    ("path", "query", "more", "signature"),
    [
        (
            "/test.txt",
            [],
            [("range", "bytes=0-9")],
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        ("/", [("lifecycle", "")], [], "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        (
            "/",
            [("max-keys", "2"), ("prefix", "J")],
            [],
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
)
def test_s3s_vectors(
    path: str, query: list[tuple[str, str]], more: list[tuple[str, str]], signature: str
) -> None:
    signer = Signer(S3_KEYS, "us-east-1")
    headers = [
        ("host", "examplebucket.s3.amazonaws.com"),
        *more,
        ("x-amz-content-sha256", EMPTY_SHA256),
        ("x-amz-date", signer.stamp(S3_TIME)),
    ]
    found = authorization(signer, "GET", path, query_string(query), headers)
    assert found.endswith(f"Signature={signature}")


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
_WORD = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=12)
_VALUE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)


@settings(deadline=None, max_examples=200)
@given(
    method=st.sampled_from(["GET", "HEAD"]),
    bucket=_WORD,
    key=_TEXT,
    query=st.dictionaries(_TEXT.filter(bool), _TEXT, max_size=4),
    headers=st.dictionaries(_WORD.map("x-amz-".__add__), _VALUE, max_size=3),
    secret=_VALUE,
    session=st.sampled_from(["", "session/token+=="]),
    region=_WORD,
    now=st.integers(0, 2**32),
)
def test_agrees_with_botocore(
    method: str,
    bucket: str,
    key: str,
    query: dict[str, str],
    headers: dict[str, str],
    secret: str,
    session: str,
    region: str,
    now: int,
) -> None:
    path, pairs = quoted(f"/{bucket}/{key}"), query_string(list(query.items()))
    request = AWSRequest(method, f"https://s3.example.com{path}" + f"?{pairs}" * bool(pairs), headers=headers)
    moment = dt.datetime.fromtimestamp(now, dt.UTC)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.auth, "get_current_datetime", lambda **_: moment.replace(tzinfo=None))
        botocore.auth.S3SigV4Auth(Credentials("AKIA", secret, session or None), "s3", region).add_auth(
            request
        )
    signer = Signer(Keys("AKIA", secret, session), region)
    payload = request.headers["X-Amz-Content-SHA256"]
    sent = {**headers, "host": "s3.example.com", "x-amz-content-sha256": payload}
    sent["x-amz-date"] = signer.stamp(now)
    if session:
        sent["x-amz-security-token"] = session
    found = authorization(signer, method, path, pairs, sorted(sent.items()), payload)
    assert found == request.headers["Authorization"]


def test_the_days_key_changes_with_the_day() -> None:
    signer = Signer(S3_KEYS, "us-east-1")
    first = signer.stamp(S3_TIME)
    one = authorization(signer, "GET", "/", "", [("host", "h"), ("x-amz-date", first)])
    signer.stamp(S3_TIME + 86400)
    signer.stamp(S3_TIME)
    assert authorization(signer, "GET", "/", "", [("host", "h"), ("x-amz-date", first)]) == one


def test_keys_show_nothing() -> None:
    assert "hidden" not in repr(Keys("AKIA", "hidden", "hidden"))
