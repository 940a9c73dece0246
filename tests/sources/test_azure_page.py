"""Pages of List Blobs: what is taken from them, and which are refused."""

from __future__ import annotations

import pytest

from penstock.core.errors import FailedError, TransientError
from penstock.core.model import Listed
from penstock.sources.azure import BlobPrefix, understand

PLACE = BlobPrefix("cont", "p/", "")
NS = 1_778_051_289 * 10**9


def blob(name: str, size: object = 3, more: str = "", encoded: str = "") -> str:
    return (
        f"<Blob><Name{encoded}>{name}</Name><Properties><Creation-Time>Mon, 04 May 2026 07:08:09 GMT"
        "</Creation-Time><Last-Modified>Wed, 06 May 2026 07:08:09 GMT</Last-Modified><Etag>0x8D</Etag>"
        f"<Content-Length>{size}</Content-Length><Content-MD5 /></Properties>{more}</Blob>"
    )


def page(*blobs: str, following: str = "<NextMarker />") -> str:
    return (
        '\ufeff<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName="cont">'
        f"<Prefix>p/</Prefix><Blobs>{''.join(blobs)}</Blobs>{following}</EnumerationResults>"
    )


FOLDER = "<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata>"


def test_blobs_and_the_next_marker() -> None:
    text = page(
        blob("p/a&amp;b &lt;c&gt;"),
        blob("p/odd%EF%BF%BF%25", encoded=' Encoded="true"'),
        blob("p/%41"),
        blob("p/named", more="<Metadata><Name>other</Name><Etag>0x9</Etag></Metadata>"),
        following="<NextMarker>2!8&amp;x</NextMarker>",
    )
    found = understand(text, PLACE)
    assert found.rows == [Listed(key, 3, "0x8D", NS) for key in ("a&b <c>", "odd\uffff%", "%41", "named")]
    assert (found.following, found.markers) == ("2!8&x", 0)
    assert understand(page(), PLACE) == ([], "", 0)


def test_markers_are_counted() -> None:
    found = understand(
        page(blob("p/"), blob("p/f", 0, FOLDER), blob("p/g", 1, FOLDER), blob("p/h", 0)), PLACE
    )
    assert ([row.key for row in found.rows], found.markers) == (["g", "h"], 1)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("<html>Sign in</html>", FailedError, "no listing"),
        (page(blob("p/a"))[:-30], TransientError, "middle of a page"),
        (page(blob("p/a", "many")), FailedError, "without key or size"),
        (page(blob("p/a", -1)), FailedError, "without key or size"),
        (page("<Blob><Properties></Properties></Blob>"), FailedError, "without key or size"),
        (page("<Blob><Blob></Blob>"), FailedError, "malformed"),
        (page(blob("q/a")), FailedError, "outside of the prefix"),
        (page("<BlobPrefix><Name>p/d/</Name></BlobPrefix>"), FailedError, "prefixes in place of"),
    ],
)
def test_pages_that_cannot_be_trusted(text: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        understand(text, PLACE)
