"""Several streams of one listing: what they give is what one gives."""

from __future__ import annotations

import threading
from bisect import bisect_right
from os import fsdecode, fsencode
from typing import TYPE_CHECKING
from urllib.parse import quote
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.hostile import Hostile

from penstock.config.settings import SourceConfig
from penstock.core.errors import FailedError, TransientError
from penstock.sources import s3_listing
from penstock.sources.s3 import S3Source, listed, pages
from penstock.sources.s3_client import Bucket
from penstock.sources.s3_listing import (
    Letters,
    PageText,
    Ranges,
    understand,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

KEY = st.one_of(
    st.text(st.characters(codec="utf-8", min_codepoint=32), min_size=1, max_size=8),
    st.text("0/ab", min_size=1, max_size=6),
    st.integers(0, 400).map("{:04d}/file.bin".format),
    st.sampled_from(["😀", "￮", "\ud7ff", "é/", "é", "%41", "a+b", "&", "~", "\uffffx"]),
)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams are added whenever the reader would wait at all."""
    monkeypatch.setattr(s3_listing, "SPLIT_AFTER", 0.001)
    monkeypatch.setattr(s3_listing, "RATE", 1e9)


class Store:
    """A bucket in memory. `size`: keys a page."""

    def __init__(self, keys: Iterable[str], size: int, *, prefix: str = "", knows_after: bool = True) -> None:
        self.keys = sorted({prefix + key for key in keys}, key=fsencode)
        self.order = [fsencode(key) for key in self.keys]
        self.size, self.prefix, self.knows_after = size, prefix, knows_after
        self.cut_off = ""
        """Behind this key a stream ends, and says that it was the last one."""
        self.asked: list[tuple[str, str]] = []
        self.at_once = self.most = 0
        self.lock = threading.Lock()
        self.fail: dict[int, Exception] = {}
        self.ranges = Ranges(self.fetch, self.confirm, prefix, "w")

    def fetch(self, token: str, after: str) -> PageText:
        with self.lock:
            self.asked.append((token, after))
            error = self.fail.get(len(self.asked))
        if error is not None:
            raise error
        start = fsencode(token or (after if self.knows_after else ""))
        place = bisect_right(self.order, start) if start else 0
        keys = self.keys[place : place + self.size]
        more = place + self.size < len(self.keys)
        if self.cut_off in keys and more:
            keys, more = keys[: keys.index(self.cut_off) + 1], False
        contents = "".join(
            f"<Contents><Key>{escape(quote(key, safe='/'))}</Key><LastModified>2024-02-29T23:59:58Z"
            "</LastModified><ETag>&quot;e&quot;</ETag><Size>1</Size></Contents>"
            for key in keys
        )
        following = (
            f"<NextContinuationToken>{quote(keys[-1], safe='')}</NextContinuationToken>" if more else ""
        )
        page = understand(
            f"<ListBucketResult><IsTruncated>{'true' if more else 'false'}</IsTruncated>{following}"
            f"<EncodingType>url</EncodingType>{contents}</ListBucketResult>",
            "w",
        )
        return page._replace(following=keys[-1]) if more else page

    def confirm(self, last: str, count: int) -> None:
        if bisect_right(self.order, fsencode(last)) < len(self.order) and self.cut_off:
            raise FailedError(f"cut off after {count}")

    def listed(self) -> list[str]:
        bucket = Bucket("b", self.prefix, "http://h", "r", path_style=True, options={})
        batches = list(listed(bucket, iter(self.ranges)))
        return [self.prefix + item.key for batch in batches for item in batch]


@settings(deadline=None, max_examples=150)
@given(
    keys=st.sets(KEY, min_size=1, max_size=120), size=st.integers(1, 12), prefix=st.sampled_from(["", "p/"])
)
def test_each_key_comes_once_and_in_order(keys: set[str], size: int, prefix: str) -> None:
    store = Store(keys, size, prefix=prefix)
    assert store.listed() == store.keys


@settings(deadline=None, max_examples=30)
@given(keys=st.sets(KEY, min_size=1, max_size=60), size=st.integers(1, 8))
def test_a_store_that_does_not_know_start_after_is_listed_by_one_stream(keys: set[str], size: int) -> None:
    store = Store(keys, size, knows_after=False)
    assert store.listed() == store.keys


@pytest.mark.parametrize(
    "keys",
    [
        [f"{n:07d}.bin" for n in range(3000)],
        [f"train/n{n % 50:08d}/{n:06d}.jpg" for n in range(3000)],
        [f"{n * 2654435761 % 2**32:08x}" for n in range(3000)],
        [f"日本/{chr(0x4E00 + n)}" for n in range(3000)],
        ["x" * n for n in range(1, 900)],
    ],
    ids=["flat", "folders", "hashes", "no ASCII", "nested"],
)
def test_many_keys(keys: list[str]) -> None:
    store = Store(keys, 10)
    assert store.listed() == store.keys
    pages = -(-len(store.keys) // 10)
    assert len(store.asked) <= 2.5 * pages + 4 * s3_listing.GUESSES
    # A split begins in the middle of the keyspace, not behind a token.
    starts = [after for token, after in store.asked if not token and after]
    assert all(fsencode(after) == after.encode() for after in starts)


def test_few_keys_are_one_request() -> None:
    store = Store(["a", "b"], 10)
    assert store.listed() == ["a", "b"]
    assert store.asked == [("", "")]


def test_a_stream_that_ends_too_early_is_refused() -> None:
    keys = [f"{n:05d}" for n in range(1000)]
    store = Store(keys, 10)
    store.cut_off = "00012"

    def in_step(token: str, after: str) -> PageText:
        """The first stream goes on when another one has seen that there is more."""
        if token:
            with store.ranges._changed:
                store.ranges._changed.wait_for(lambda: len(store.ranges._ranges) > 1, 60)
        return store.fetch(token, after)

    store.ranges = Ranges(in_step, store.confirm, "", "w")
    with pytest.raises(FailedError, match="cut off"):
        store.listed()


@pytest.mark.parametrize("number", [1, 3, 20])
def test_the_first_error_ends_the_listing(number: int) -> None:
    store = Store([f"{n:05d}" for n in range(1000)], 5)
    store.fail[number] = TransientError("gone")
    with pytest.raises(TransientError, match="gone"):
        store.listed()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("listing")]


def test_a_reader_that_leaves_ends_the_streams() -> None:
    store = Store([f"{n:05d}" for n in range(5000)], 5)
    pages = iter(store.ranges)
    next(pages)
    pages.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("listing")]
    assert len(store.asked) < 200


def test_pages_that_wait_are_bounded() -> None:
    store = Store([f"{n:06d}" for n in range(20_000)], 10)
    most = 0
    for _ in store.ranges:
        most = max(most, store.ranges._waiting)
    assert most <= (s3_listing.AHEAD + 1) * s3_listing.STREAMS


def test_a_store_that_asks_for_patience_gets_fewer_streams() -> None:
    store = Store([f"{n:05d}" for n in range(3000)], 5)
    for _ in range(8):
        store.ranges.slower()
    assert store.listed() == store.keys
    assert all(token or not after for token, after in store.asked)


@settings(deadline=None, max_examples=300)
@given(keys=st.lists(KEY, min_size=1, max_size=8), low=KEY, high=KEY, prefix=st.sampled_from(["", "p/"]))
def test_a_middle_lies_between(keys: list[str], low: str, high: str, prefix: str) -> None:
    letters = Letters()
    for key in keys:
        letters.see(fsencode(key))
    one, two = sorted((fsencode(prefix + low), fsencode(prefix + high)))
    for end in (two, None):
        middle = letters.between(one, end, fsencode(prefix))
        if middle is not None:
            assert one < middle
            assert end is None or middle < end
            assert fsdecode(middle).startswith(prefix)
            middle.decode()


def test_over_http_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {
        f"p/{n:03d}/{name}" for n in range(60) for name in ("a b", "%41", "+", "é", "\U0001f600", "\uffee")
    }
    with Hostile(dict.fromkeys(keys, b"1"), page=7) as server:
        source = S3Source(SourceConfig("s3://bucket/p/", "", {"endpoint_url": server.endpoint, "anon": True}))
        found = [item.key for batch in source.list() for item in batch]
        assert found == [key[2:] for key in sorted(keys, key=fsencode)]
        many = len(server.asked)
        monkeypatch.setattr(s3_listing, "STREAMS", 1)
        fetched = pages(source.bucket, source.requests())
        assert [item.key for batch in listed(source.bucket, fetched) for item in batch] == found
        assert len(server.asked) - many == -(-len(keys) // 7)
