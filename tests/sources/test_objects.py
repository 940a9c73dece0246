"""What all object stores share: answers judged, refusals understood, tries made again. A test a row."""

from __future__ import annotations

import contextlib
import threading
from typing import ClassVar

import pytest
from tests.support.hostile import Hostile

from penstock.core.errors import (
    ConfigError,
    ExpiredCredentialsError,
    FailedError,
    ObjectError,
    OverloadedError,
    PenstockError,
    SourceChangedError,
    TransientError,
)
from penstock.core.model import Entry, Listed
from penstock.sources.backoff import retrying, row_may_retry
from penstock.sources.http_endpoint import Endpoint
from penstock.sources.http_values import HeaderNames, learn
from penstock.sources.listing_order import Objects, ascending, one_by_one
from penstock.sources.object_answers import (
    Meaning,
    head_misfit,
    misfit,
    refusal,
)
from penstock.sources.object_client import ObjectClient, ObjectReader, Request

ENTRY = Entry("k", "k", 1000, "t1", 0)
BARE = ENTRY._replace(token="")
RANGE = {b"content-range": b"bytes 100-299/1000"}
GZIP = {b"content-encoding": b"gzip"}


@pytest.mark.parametrize(
    ("status", "length", "headers", "version", "entry", "kind"),
    [
        (200, 1000, {}, "t1", ENTRY, None),
        (200, -1, {}, "t1", ENTRY, None),
        (206, 200, RANGE, "t1", ENTRY, None),
        (206, -1, RANGE, "", BARE, None),
        (200, 1000, GZIP, "t1", ENTRY, None),
        (200, 1000, {b"content-encoding": b"identity"}, "t1", ENTRY, None),
        (200, 700, GZIP, "t1", ENTRY, ObjectError),
        (200, -1, GZIP, "t1", ENTRY, ObjectError),
        (200, 700, GZIP, "t2", ENTRY, SourceChangedError),
        (200, 1000, {}, None, ENTRY, ObjectError),
        (200, 1000, {}, None, BARE, None),
        (200, 1000, {}, "t2", ENTRY, SourceChangedError),
        (200, 700, {}, "t2", ENTRY, SourceChangedError),
        (200, 1000, {}, "", ENTRY, SourceChangedError),
        (206, 200, {b"content-range": b"bytes 100-299/1001"}, "t1", ENTRY, SourceChangedError),
        (206, 50, {b"content-range": b"bytes 100-149/150"}, "", BARE, SourceChangedError),
        (200, 700, {}, "", BARE, SourceChangedError),
        (206, 200, {b"content-range": b"bytes 101-300/1000"}, "t1", ENTRY, ObjectError),
        (206, 200, {b"content-range": b"bytes 101-300/*"}, "t1", ENTRY, ObjectError),
        (206, 200, {}, "t1", ENTRY, ObjectError),
        (200, 700, {}, "t1", ENTRY, TransientError),
        (206, 100, RANGE, "t1", ENTRY, TransientError),
    ],
)
def test_answers_are_judged(
    status: int,
    length: int,
    headers: dict[bytes, bytes],
    version: str | None,
    entry: Entry,
    kind: type[PenstockError] | None,
) -> None:
    span = (100, 200) if status == 206 else (0, entry.size)
    error = misfit(status, length, headers, version, entry, span, "s3://b/k")
    assert (type(error) if error else None) is kind


@pytest.mark.parametrize(
    ("length", "version", "entry", "kind"),
    [
        (1000, "t1", ENTRY, None),
        (-1, "t1", ENTRY, None),
        (1000, "t2", ENTRY, SourceChangedError),
        (1000, None, ENTRY, ObjectError),
        (999, "t1", ENTRY, SourceChangedError),
        (999, "", BARE, SourceChangedError),
    ],
)
def test_answers_to_head_are_judged(
    length: int, version: str | None, entry: Entry, kind: type[PenstockError] | None
) -> None:
    error = head_misfit(length, {}, version, entry, "s3://b/k")
    assert (type(error) if error else None) is kind


@pytest.mark.parametrize(
    ("status", "code", "headers", "kind", "after"),
    [
        (403, "Own", {}, FailedError, None),
        (503, "Own", {}, FailedError, None),
        (429, "", {}, OverloadedError, None),
        (503, "", {b"retry-after": b"7"}, OverloadedError, 7.0),
        (503, "", {b"retry-after": b"3600"}, OverloadedError, 3600.0),
        (500, "", {}, TransientError, None),
        (500, "SlowDown", {}, OverloadedError, None),
        (400, "OperationTimedOut", {}, TransientError, None),
        (408, "", {}, TransientError, None),
        (412, "", {}, SourceChangedError, None),
        (404, "", {}, SourceChangedError, None),
        (410, "", {}, SourceChangedError, None),
        (416, "", {}, SourceChangedError, None),
        (403, "Denied", {}, ObjectError, None),
        (302, "", {}, ObjectError, None),
    ],
)
def test_refusals_are_understood(
    status: int, code: str, headers: dict[bytes, bytes], kind: type[PenstockError], after: float | None
) -> None:
    codes = {"Own": Meaning(FailedError, "its own")}
    error = refusal(status, headers, "s3://b/k", code=code, codes=codes)
    assert type(error) is kind
    assert getattr(error, "after", None) == after


class Script:
    """Raises these one after another, then gives "done"; keeps the pauses that were made."""

    def __init__(self, *errors: PenstockError) -> None:
        self.errors, self.calls = list(errors), 0
        self.pauses: list[float] = []

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    def wait(self, seconds: float) -> None:
        self.pauses.append(seconds)


def test_what_may_pass_is_tried_again_after_growing_pauses() -> None:
    script = Script(*(TransientError("reset") for _ in range(3)))
    told: list[PenstockError] = []
    assert retrying(script, 4, script.wait, failed=told.append) == "done"
    assert (script.calls, len(told), len(script.pauses)) == (4, 3, 3)
    assert script.pauses[0] < 0.2 <= script.pauses[2]
    script = Script(*(TransientError("reset") for _ in range(3)))
    with pytest.raises(TransientError):
        retrying(script, 3, script.wait)
    assert (script.calls, len(script.pauses)) == (3, 2)


@pytest.mark.parametrize("error", [ObjectError("no"), SourceChangedError("no"), ConfigError("no")])
def test_what_does_not_pass_is_raised_at_once(error: PenstockError) -> None:
    script = Script(error)
    with pytest.raises(type(error)):
        retrying(script, 5, script.wait)
    assert (script.calls, script.pauses) == (1, [])
    script = Script(error)
    assert retrying(script, 5, script.wait, may=lambda *_: True) == "done"


def test_a_wish_to_wait_is_honoured_up_to_ten_minutes() -> None:
    script = Script(TransientError("busy", after=5.0), TransientError("busy", after=600.0))
    assert retrying(script, 3, script.wait) == "done"
    assert script.pauses == [5.0, 600.0]


def test_a_server_that_asks_for_more_is_waited_for_by_rows_alone() -> None:
    script = Script(TransientError("busy", after=3600.0))
    assert retrying(script, 2, script.wait, may=row_may_retry) == "done"
    assert script.pauses == [600.0]
    script = Script(TransientError("busy", after=3600.0))
    with pytest.raises(TransientError):
        retrying(script, 2, script.wait)
    assert script.pauses == []


def test_whoever_stops_makes_no_further_try() -> None:
    script = Script(TransientError("reset"))
    with pytest.raises(TransientError):
        retrying(script, 5, lambda _: True)
    assert script.calls == 1


def test_credentials_that_ran_out_are_renewed_at_once_and_then_with_pauses() -> None:
    renewed: list[bool] = []
    script = Script(*(ExpiredCredentialsError("out") for _ in range(3)))
    assert retrying(script, 4, script.wait, renew=lambda _, last: renewed.append(last)) == "done"
    assert (script.calls, renewed, len(script.pauses)) == (4, [False] * 3, 2)
    script, renewed[:] = Script(*(ExpiredCredentialsError("out") for _ in range(2))), []
    with pytest.raises(ExpiredCredentialsError):
        retrying(script, 2, script.wait, renew=lambda _, last: renewed.append(last))
    assert renewed == [False, True]


def objects(*keys: str, following: str = "") -> Objects:
    return Objects([Listed(key, 1, "t", 0) for key in keys], following)


def test_pages_come_in_order_and_one_is_on_its_way() -> None:
    pages = {"": objects("a", following="1"), "1": objects("b", following="2"), "2": objects("c")}
    asked: list[str] = []
    second = threading.Event()

    def fetch(token: str) -> Objects:
        asked.append(token)
        if token == "1":
            second.set()
        return pages[token]

    found = one_by_one(fetch, "s3://b/", lambda: None)
    with contextlib.closing(found):
        assert next(found) is pages[""]
        assert second.wait(20)
        assert list(found) == [pages["1"], pages["2"]]
    assert asked == ["", "1", "2"]


def test_a_listing_in_a_circle_is_refused() -> None:
    pages = {"": objects("a", following="1"), "1": objects("b", following="2"), "2": objects(following="1")}
    with pytest.raises(FailedError, match="circle"):
        list(one_by_one(pages.__getitem__, "s3://b/", lambda: None))


@pytest.mark.parametrize("keys", [("b", "a"), ("a.b", "a-b")])
def test_keys_out_of_order_are_refused(keys: tuple[str, ...]) -> None:
    with pytest.raises(FailedError, match="do this"):
        list(ascending(iter([objects(*keys).rows]), "s3://b/", "do this"))
    assert list(ascending(iter([objects(*sorted(keys)[:1]).rows, []]), "s3://b/")) == [
        objects(*sorted(keys)[:1]).rows
    ]


OTHER = HeaderNames(
    values=(b"x-goog-hash", b"x-goog-generation", b"last-modified"), fixed=(b"x-goog-stored-",)
)
HEAD = b"""HTTP/1.1 200 OK
ETag: "1"
Content-Length: 3
Last-Modified: Wed, 06 May 2026 07:08:09 GMT
X-Goog-Hash: crc32c=AAAA==
X-Goog-Hash: md5=BBBB==
X-Goog-Stored-Content-Length: 3
X-Goog-Generation: 17
Server: any""".replace(b"\n", b"\r\n")


def test_a_dialect_names_the_headers_that_are_kept() -> None:
    shape = learn(HEAD, OTHER)
    assert shape is not None
    other = HEAD.replace(b"AAAA", b"CCCC").replace(b"07:08", b"08:09").replace(b"any", b"another one")
    found = shape.fit(memoryview(other + b"\r\n\r\nabc"))
    assert found is not None
    start, headers = found
    assert start == len(other) + 4
    assert headers == {
        b"etag": b'"1"',
        b"content-length": b"3",
        b"last-modified": b"Wed, 06 May 2026 08:09:09 GMT",
        b"x-goog-hash": b"crc32c=CCCC==, md5=BBBB==",
        b"x-goog-generation": b"17",
        b"x-goog-stored-content-length": b"3",
    }
    changed = other.replace(b"Stored-Content-Length: 3", b"Stored-Content-Length: 4")
    assert shape.fit(memoryview(changed + b"\r\n\r\nabc")) is None
    assert (
        learn(HEAD.replace(b"X-Goog-Hash: md5", b"X-Goog-Generation: 18\r\nX-Goog-Hash: md5"), OTHER) is None
    )


class Scripted(ObjectClient):
    """Sends nothing; `renew` raises while `refuses`."""

    refuses = True
    made: ClassVar[list[Scripted]] = []

    def __init__(self) -> None:
        super().__init__("s3://b/")
        self.go_to(Endpoint("127.0.0.1", 1, tls=False), "")
        self.closed = False
        self.made.append(self)

    def renew(self, credentials: object) -> None:
        if self.refuses:
            raise FailedError("no token to be had")

    def close(self) -> None:
        super().close()
        self.closed = True


def test_an_answer_that_nobody_took_is_not_taken_for_the_next_object() -> None:
    """The request for `a` is on its way when the credentials cannot be had; then `b` is requested."""
    with Hostile({"a": b"A" * 1000, "b": b"B" * 1000}) as server:

        class Client(Scripted):
            refuses = False

            def __init__(self) -> None:
                super().__init__()
                self.go_to(Endpoint("127.0.0.1", server.port, tls=False), f"/{server.bucket}/")

            def head(self, method: str, path: str, query: str, lines: str) -> bytes:
                return f"{method} {self.root}{path} HTTP/1.1\r\nHost: a\r\n\r\n".encode()

            def get(self, entry: Entry) -> Request:
                return entry.key, "", ""

        reader = ObjectReader(Client, lambda: None)
        room = memoryview(bytearray(2000))
        a, b = (BARE._replace(key=key) for key in "ab")
        reader.ahead(a)
        Client.refuses = True
        with pytest.raises(FailedError):
            reader.whole(a, room)
        Client.refuses = False
        reader.ahead(b)
        assert bytes(reader.whole(b, room)[0]) == b"B" * 1000
        reader.close()
        assert all(client.closed for client in Scripted.made)


def test_what_cannot_be_prefetched_leaves_no_connection_behind() -> None:
    Scripted.made.clear()
    reader = ObjectReader(Scripted, lambda: None)
    for _ in range(3):
        reader.ahead(ENTRY)
    assert len(Scripted.made) == 2  # the reader's own, and one for what is prefetched
    with pytest.raises(FailedError):
        reader.whole(ENTRY, memoryview(bytearray(2000)))
    reader.close()
    assert all(client.closed for client in Scripted.made)
