"""Folder pages of web servers: many files asked for at a time, in order, with patience."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.contracts.source_contract import listing
from tests.sources.test_others import Quiet, QuietServer, web

from penstock.core.errors import ObjectError, SourceChangedError, TransientError
from penstock.sources import backoff, web_listing
from penstock.sources.backoff import TRIES
from penstock.sources.web_listing import CALM, RequestLimit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Moody(Quiet):
    """Answers HEADs by `moods`: a status for the first so many times."""

    moods: dict[str, tuple[int, int]]
    asked: Counter[str]
    after: str
    together: threading.Barrier | None
    crowd: Crowd | None

    def do_HEAD(self) -> None:  # noqa: N802 (as the base class calls it)
        self.asked[self.path] += 1
        status, times = self.moods.get(self.path, (200, 0))
        if self.together is not None:
            self.together.wait(20)
        if self.asked[self.path] <= times:
            self.refuse(status, self.after)
        elif self.crowd is None:
            super().do_HEAD()
        elif self.crowd.enter():
            super().do_HEAD()
            self.crowd.leave()
        else:
            self.refuse(503)

    def do_GET(self) -> None:  # noqa: N802
        """What HEAD does not find, GET does not either."""
        status, _ = self.moods.get(self.path, (200, 0))
        if status in (400, 404):
            self.refuse(status)
        else:
            super().do_GET()

    def refuse(self, status: int, after: str = "") -> None:
        self.send_response(status)
        if after:
            self.send_header("Retry-After", after)
        self.send_header("Content-Length", "0")
        self.end_headers()


class Crowd:
    """Lets in so many at once; who is let in waits a moment for others."""

    def __init__(self, most: int) -> None:
        self.most, self.inside, self.refused = most, 0, 0
        self.change = threading.Condition()

    def enter(self) -> bool:
        with self.change:
            if self.inside == self.most:
                self.refused += 1
                return False
            self.inside += 1
            self.change.notify_all()
            self.change.wait_for(lambda: self.inside == self.most, 0.02)
            return True

    def leave(self) -> None:
        with self.change:
            self.inside -= 1


class Site:
    def __init__(self, root: Path) -> None:
        self.root, self.asked = root, Counter[str]()
        self.moods: dict[str, tuple[int, int]] = {}
        members: dict[str, Any] = {"moods": self.moods, "asked": self.asked}
        members |= {"after": "0", "together": None, "crowd": None}
        self.handler: Any = type("Handler", (Moody,), members)
        made = functools.partial(self.handler, directory=str(root))
        self.server = QuietServer(("127.0.0.1", 0), made)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"


@pytest.fixture
def moody(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    with site.server:
        thread = threading.Thread(target=site.server.serve_forever)
        thread.start()
        yield site
        site.server.shutdown()
        thread.join()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_PAUSE", 0.001)


def fill(root: Path, names: list[str]) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())


def test_in_order_over_folders_and_batches(
    moody: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_listing, "BATCH", 7)
    names = [f"{folder}{n:02d}" for folder in ("", "a-", "a/", "a/b/", "b/") for n in range(17)]
    fill(tmp_path, names)
    found = listing(web(moody.url))
    assert list(found) == sorted(names)
    assert {key: item.size for key, item in found.items()} == {name: len(name) for name in names}
    assert moody.asked == Counter({f"/{name}": 1 for name in names})


def test_many_are_asked_for_at_a_time(moody: Site, tmp_path: Path) -> None:
    """None is answered before so many are there."""
    fill(tmp_path, [f"{n:03d}" for n in range(3 * web_listing.LOOKS)])
    moody.handler.together = threading.Barrier(web_listing.LOOKS)
    assert len(listing(web(moody.url))) == 3 * web_listing.LOOKS


@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.usefixtures("hurried")
def test_what_may_pass_is_asked_for_again(moody: Site, tmp_path: Path, status: int) -> None:
    fill(tmp_path, ["one", "two", "three"])
    moody.moods["/two"] = (status, TRIES - 1)
    assert list(listing(web(moody.url))) == ["one", "three", "two"]
    assert moody.asked == Counter({"/one": 1, "/two": TRIES, "/three": 1})


@pytest.mark.parametrize(
    ("status", "error", "asked"),
    [(503, TransientError, TRIES), (404, SourceChangedError, 1), (400, ObjectError, 1)],
)
@pytest.mark.usefixtures("hurried")
def test_what_does_not_pass_ends_the_listing(
    moody: Site, tmp_path: Path, status: int, error: type[Exception], asked: int
) -> None:
    fill(tmp_path, [f"{n:03d}" for n in range(100)])
    moody.moods["/050"] = (status, 100)
    with pytest.raises(error, match="/050"):
        listing(web(moody.url))
    assert moody.asked["/050"] == asked
    assert not [one for one in threading.enumerate() if one.name.startswith("looks")]


def test_a_server_that_refuses_a_crowd(moody: Site, tmp_path: Path) -> None:
    fill(tmp_path, [f"{n:03d}" for n in range(200)])
    moody.handler.crowd = crowd = Crowd(3)
    assert len(listing(web(moody.url))) == 200
    assert crowd.refused > 0


def test_room_halves_once_a_second_and_grows_again() -> None:
    limit = RequestLimit(16)

    def ask(error: type[Exception] | None = None) -> int:
        with contextlib.suppress(TransientError, ObjectError), limit:
            if error is not None:
                raise error("x")
        return limit.limit

    assert [ask(TransientError), ask(TransientError)] == [8, 8]
    assert [ask() for _ in range(CALM)][-2:] == [8, 9]
    limit._halved -= 1.0
    assert ask(ObjectError) == 9, "an answer like any other"
    assert ask(TransientError) == 4
    for _ in range(5):
        limit._halved -= 1.0
        ask(TransientError)
    assert limit.limit == 1
    assert [ask() for _ in range(20 * CALM)][-1] == 16


def test_the_end_wakes_those_who_wait(moody: Site, tmp_path: Path) -> None:
    """One is asked to wait for a minute and a half; the listing ends long before, by another one."""
    fill(tmp_path, ["one", "two"])
    moody.handler.after = "90"
    moody.moods |= {"/two": (503, 100), "/one": (404, 100)}
    began = time.monotonic()
    with pytest.raises(SourceChangedError, match="/one"):
        listing(web(moody.url))
    assert time.monotonic() - began < 60
    assert moody.asked["/two"] <= 1


def test_a_listing_that_nobody_reads_to_its_end(moody: Site, tmp_path: Path) -> None:
    fill(tmp_path, [f"d{n}/{n:03d}" for n in range(20)])
    batches = web(moody.url).list()
    next(batches)
    batches.close()
    assert sum(moody.asked.values()) < 20
    assert not [one for one in threading.enumerate() if one.name.startswith("looks")]


def test_pages_of_another_kind(moody: Site, tmp_path: Path) -> None:
    """A server that refuses HEAD tells by the first byte, or by the whole length."""
    fill(tmp_path, ["one"])
    moody.moods["/one"] = (405, 100)
    assert {key: item.size for key, item in listing(web(moody.url)).items()} == {"one": 3}


def test_one_file_is_listed_again_and_gone_where_no_page_links_to_it(moody: Site, tmp_path: Path) -> None:
    fill(tmp_path, ["a b/one", "a b/two", "three"])
    source = web(moody.url)
    found = listing(source)
    assert source.list_one("a b/one") == found["a b/one"]
    (tmp_path / "a b/one").write_bytes(b"another size")
    assert source.list_one("a b/one").size == 12
    (tmp_path / "a b/one").unlink()
    (tmp_path / "three").unlink()
    assert source.list_one("a b/one") is None
    assert source.list_one("three") is None


@pytest.mark.parametrize(("status", "error"), [(404, SourceChangedError), (400, ObjectError)])
def test_what_a_page_still_links_to_is_not_gone(
    moody: Site, tmp_path: Path, status: int, error: type[Exception]
) -> None:
    fill(tmp_path, ["a/one", "two"])
    moody.moods["/a/one"] = (status, 100)
    with pytest.raises(error):
        web(moody.url).list_one("a/one")
