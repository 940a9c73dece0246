"""Folder pages of web servers: many files asked for at a time, in order, with patience."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.contracts.source_contract import listing
from tests.sources.test_others import Quiet, QuietServer, web

from penstock.errors import ObjectError, SourceChangedError, TransientError
from penstock.sources import web_listing
from penstock.sources.patience import TRIES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Moody(Quiet):
    """Answers HEADs by `moods`: a status for the first so many times."""

    moods: dict[str, tuple[int, int]]
    asked: Counter[str]
    together: threading.Barrier | None

    def do_HEAD(self) -> None:  # noqa: N802 (as the base class calls it)
        self.asked[self.path] += 1
        status, times = self.moods.get(self.path, (200, 0))
        if self.together is not None:
            self.together.wait(20)
        if self.asked[self.path] <= times:
            self.send_response(status)
            self.send_header("Retry-After", "0")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        super().do_HEAD()


class Site:
    def __init__(self, root: Path) -> None:
        self.root, self.asked = root, Counter[str]()
        self.moods: dict[str, tuple[int, int]] = {}
        members: dict[str, Any] = {"moods": self.moods, "asked": self.asked, "together": None}
        self.handler = type("Handler", (Moody,), members)
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
    moody.handler.together = threading.Barrier(web_listing.LOOKS)  # type: ignore[attr-defined]
    assert len(listing(web(moody.url))) == 3 * web_listing.LOOKS


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_may_pass_is_asked_for_again(moody: Site, tmp_path: Path, status: int) -> None:
    fill(tmp_path, ["one", "two", "three"])
    moody.moods["/two"] = (status, TRIES - 1)
    assert list(listing(web(moody.url))) == ["one", "three", "two"]
    assert moody.asked == Counter({"/one": 1, "/two": TRIES, "/three": 1})


@pytest.mark.parametrize(
    ("status", "error", "asked"),
    [(503, TransientError, TRIES), (404, SourceChangedError, 1), (400, ObjectError, 1)],
)
def test_what_does_not_pass_ends_the_listing(
    moody: Site, tmp_path: Path, status: int, error: type[Exception], asked: int
) -> None:
    fill(tmp_path, [f"{n:03d}" for n in range(100)])
    moody.moods["/050"] = (status, 100)
    with pytest.raises(error, match="/050"):
        listing(web(moody.url))
    assert moody.asked["/050"] == asked
    assert not [one for one in threading.enumerate() if one.name.startswith("looks")]


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
