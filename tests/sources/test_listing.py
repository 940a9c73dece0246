"""Pages of listings: what AWS and others write, undone."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.test_http1 import Canned

from penstock.core.errors import FailedError, TransientError
from penstock.core.model import Listed
from penstock.sources.http_values import plain
from penstock.sources.object_client import Requests
from penstock.sources.s3 import listed, pages
from penstock.sources.s3_client import Bucket, S3Client
from penstock.sources.s3_credentials import S3Credentials
from penstock.sources.s3_listing import (
    PAGE,
    PageText,
    objects,
    understand,
)

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = st.text(st.characters(codec="utf-8", min_codepoint=32), min_size=1, max_size=12)


def bucket(prefix: str = "") -> Bucket:
    return Bucket("b", prefix, "http://h", "r", path_style=True, options={})


def page(contents: str, *, encoded: bool = True, more: str = "") -> str:
    kind = "<EncodingType>url</EncodingType>" if encoded else ""
    token = f"<NextContinuationToken>{more}</NextContinuationToken>" if more else ""
    return (
        '<?xml version="1.0"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{token}{kind}"
        f"{contents}</ListBucketResult>\n"
    )


def usual(key: str, size: int, extra: str = "") -> str:
    return (
        f"<Contents><Key>{key}</Key><LastModified>2024-02-29T23:59:58.123Z</LastModified>"
        f"<ETag>&quot;abc-2&quot;</ETag>{extra}<Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
    )


def odd(key: str, size: int) -> str:
    return (
        f'<Contents>\n  <Owner><ID>1</ID></Owner>\n  <Size>{size}</Size><ETag>"abc-2"</ETag>\n'
        f"<LastModified>2024-02-29T23:59:58.123Z</LastModified><Key>{key}</Key>\n</Contents>"
    )


@settings(deadline=None, max_examples=60)
@given(
    keys=st.sets(KEY, max_size=8),
    encoded=st.booleans(),
    shape=st.sampled_from([usual, odd]),
    plus=st.booleans(),
)
def test_keys_come_back_as_they_are(keys: set[str], encoded: bool, shape: object, plus: bool) -> None:
    ordered = sorted((f"p/{key}" for key in keys), key=str.encode)

    def written(key: str) -> str:
        if not encoded:
            return escape(key)
        return quote_plus(key, safe="/") if plus else quote(key)

    text = page("".join(shape(written(key), 7) for key in ordered), encoded=encoded)  # type: ignore[operator]
    batches = listed(bucket("p/"), iter([understand(text, "w")]))
    modified = int(dt.datetime(2024, 2, 29, 23, 59, 58, tzinfo=dt.UTC).timestamp()) * 10**9 + 123_000_000
    found = [item for batch in batches for item in batch]
    assert found == [Listed(key[2:], 7, "abc-2", modified) for key in ordered]


def test_fields_between_do_not_matter() -> None:
    extra = "<ChecksumAlgorithm>CRC32</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType>"
    assert list(objects(usual("k", 5, extra), "w")) == [
        ("k", "2024-02-29T23:59:58.123Z", "&quot;abc-2&quot;", "5")
    ]


@pytest.mark.parametrize("shape", [usual, odd])
def test_a_time_has_any_form_of_iso_8601_and_what_is_none_is_refused(
    shape: Callable[[str, int], str],
) -> None:
    def times(text: str) -> list[int]:
        contents = shape("p/a", 1).replace("2024-02-29T23:59:58.123Z", text)
        batches = listed(bucket("p/"), iter([understand(page(contents), "w")]))
        return [item.modified_ns for batch in batches for item in batch]

    assert times("2024-01-01T01:02:08.000+00:00") == [1704070928 * 10**9]
    assert times("2024-01-01t02:02:08&#43;01") == [1704070928 * 10**9]
    assert times("") == [0]
    with pytest.raises(FailedError, match="a time that cannot be read") as caught:
        times("08.000 at night")
    assert "08.000 at night" in str(caught.value)


def test_the_prefixs_own_marker_is_passed_over_and_others_are_not() -> None:
    text = page(usual("p/", 0) + usual("p/a/", 0))
    assert [item.key for batch in listed(bucket("p/"), iter([understand(text, "w")])) for item in batch] == [
        "a/"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "<html></html>",
        page(usual("k", 1)).replace("<IsTruncated>false</IsTruncated>", ""),
        page(usual("k", 1)).replace(">false<", ">true<"),
    ],
)
def test_what_is_no_page(text: str) -> None:
    with pytest.raises(FailedError):
        understand(text, "w")


@pytest.mark.parametrize(
    ("contents", "why"),
    [
        ("<CommonPrefixes><Prefix>sub/</Prefix></CommonPrefixes>", "names prefixes in place of the objects"),
        ("<KeyCount>3</KeyCount>", "a page states 3 and holds 1"),
    ],
)
def test_a_page_that_lacks_objects_by_its_own_words(contents: str, why: str) -> None:
    with pytest.raises(FailedError, match=f"the listing lacks objects.*{why}"):
        understand(page(contents + usual("k", 1)), "w")


def test_a_page_that_is_cut_off_may_be_asked_for_again() -> None:
    with pytest.raises(TransientError):
        understand(page(usual("k", 1))[:-40], "w")


@pytest.mark.parametrize(
    "contents",
    [
        usual("k", 1).replace("<Size>1</Size>", ""),
        usual("k", 1).replace("<Size>1</Size>", "<Size>-1</Size>"),
        usual("k", 1) + usual("k", 2),
        usual("k", 1) + usual("j", 1),
        usual("other/k", 1),
    ],
)
def test_pages_that_are_wrong(contents: str) -> None:
    with pytest.raises(FailedError):
        list(listed(bucket("k" if "other" in contents else ""), iter([PageText(page(contents), "")])))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a&amp;b&lt;&gt;&quot;&apos;", "a&b<>\"'"),
        ("&#10;&#xD;&#x1F600;", "\n\r😀"),
        ("&#38;lt; &amp;#10;", "&lt; &#10;"),
        ("plain", "plain"),
    ],
)
def test_entities(text: str, expected: str) -> None:
    assert plain(text) == expected


def full(first: int, count: int = PAGE) -> str:
    return page("".join(usual(f"p/k%20{n:05d}", 1) for n in range(first, first + count)))


@pytest.mark.parametrize(
    ("texts", "refused"),
    [
        ([full(0), page("")], False),  # exactly one page
        ([full(0), full(0, 1)], False),  # `start-after` is not known
        ([full(0), full(PAGE, 1)], True),
        ([full(0, PAGE - 1)], False),
        ([full(0, PAGE).replace(">false<", ">true<")], True),  # more, but no token
    ],
)
def test_a_listing_that_is_cut_off_unsaid_is_refused(texts: list[str], refused: bool) -> None:
    answers = [
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text.encode()), text.encode())
        for text in texts
    ]
    with Canned(*[[answer] for answer in answers]) as server:
        place = Bucket("b", "p/", f"http://127.0.0.1:{server.port}", "r", path_style=True, options={})
        secrets = S3Credentials(None, "r", place.endpoint)
        requests = Requests(lambda: S3Client(place, secrets), lambda: secrets, lambda: None)
        found = listed(place, pages(place, requests))
        if refused:
            with pytest.raises(FailedError, match=r"cuts its listing off after 1000|cut off: no token"):
                list(found)
        else:
            assert len(next(found)) == len(list(objects(texts[0], "")))
            assert next(found, None) is None
        asked = [b"start-after=p%2Fk%2000999" in request for request in server.requests]
        assert asked == [False, True][: len(texts)]
