"""A listing that is broken off goes on where it was: nothing is listed twice, and the digest is the same."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.hostile import Hostile
from tests.support.s3server import CHECKOUT, S3Server
from tests.support.staging_runs import context_for, events_of

from penstock.config.settings import ListConfig, SourceConfig
from penstock.core import run_documents
from penstock.core.errors import FailedError, NewerFormatError, PreflightError, TransientError
from penstock.core.model import Listed
from penstock.listing import resumption
from penstock.listing.collection import gather, open_sources, ordered
from penstock.listing.resumption import Resumption
from penstock.run import list_step
from penstock.sources.listing_order import between, order
from penstock.sources.s3 import S3Source
from penstock.tables.run_tables import ListingWriter, read_listing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.dataset.context import Context

OBJECTS = 12_000
KILLED_AT = 7_000


def context_of(folder: Path, url: str, endpoint: str, list_from: str = "") -> Context:
    """A dataset from a bucket without signatures to `folder/target`."""
    folder.mkdir(exist_ok=True)
    config = SourceConfig(
        url, storage_options={"endpoint_url": endpoint, "anon": True}, list_from=list_from or None
    )
    context = context_for(folder, url)
    dataset = replace(context.dataset("data"), sources=(config,))
    return replace(context, config=replace(context.config, datasets={"data": dataset}))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    root = tmp_path_factory.mktemp("bucket")
    for number in range(OBJECTS):
        if not number % 100:
            (root / f"d{number // 100:03d}").mkdir()
        (root / f"d{number // 100:03d}" / f"f{number:05d}").touch()
    with S3Server(root) as running:
        yield running


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, server: S3Server) -> Mapping[str, Any]:
    """The receipt of a listing that nobody disturbed."""
    return list_step.run(context_of(tmp_path_factory.mktemp("plain"), server.url(), server.endpoint), "data")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, server: S3Server) -> Path:
    """What `broken_off` leaves of a listing of the bucket."""
    folder = tmp_path_factory.mktemp("killed")
    broken_off(folder, server)
    return folder


@pytest.fixture
def segments(tmp_path: Path, killed: Path) -> list[Path]:
    """The documents of a listing that was broken off, below `tmp_path`."""
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    return documents(tmp_path)


def broken_off(tmp_path: Path, server: S3Server, list_from: str = "") -> list[Path]:
    """A listing that was ended by kill -9; the documents of its segments."""
    command = [sys.executable, "-m", "tests.listing.listing_child", str(tmp_path), server.url()]
    command += [server.endpoint, str(KILLED_AT), list_from]
    done = subprocess.run(command, cwd=CHECKOUT, check=False, capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    segments = documents(tmp_path)
    assert len(segments) >= KILLED_AT // 2000 - 1
    return segments


def documents(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "target/data/.penstock/listing").glob("*/*.json"))


def ended(segments: list[Path]) -> bytes:
    """The last key that the segments hold."""
    return max(run_documents.LISTING_SEGMENT.from_json(path.read_bytes(), path).end for path in segments)


def begun_at(queries: Sequence[str]) -> list[str]:
    """The keys at which pages of a listing were asked for; "" for the first of all."""
    found = []
    for query in queries:
        values = parse_qs(query)
        if values.get("list-type") == ["2"] and values.get("max-keys") != ["1"]:
            if "continuation-token" in values:
                continue
            found.append(values.get("start-after", [""])[0])
    return found


def test_a_listing_that_is_killed_goes_on_and_lists_nothing_twice(
    tmp_path: Path, server: S3Server, plain: Mapping[str, Any], segments: list[Path]
) -> None:
    last = ended(segments).decode()
    before = len(server.requests())
    context = context_of(tmp_path, server.url(), server.endpoint)
    receipt = list_step.run(context, "data")
    asked = begun_at([one.query for one in server.requests()[before:]])
    assert min(asked) == last
    assert (receipt["listing_digest"], receipt["files"]) == (plain["listing_digest"], OBJECTS)
    assert receipt["run"] == plain["run"]
    (told,) = [one.data["text"] for one in events_of(context) if one.kind == "note"]
    assert told.startswith("the listing goes on: ")
    assert not (tmp_path / "target/data/.penstock/listing").exists()


def test_what_is_archived_is_kept_where_the_listing_goes_on(
    tmp_path: Path, server: S3Server, plain: Mapping[str, Any], segments: list[Path]
) -> None:
    table = segments[0].with_suffix(".parquet")
    rows = [entry.listed() for batch in read_listing(table) for entry in batch]
    with ListingWriter(table) as writer:
        writer.add([row._replace(archived="GLACIER") for row in rows])
        writer.close()
    context = context_of(tmp_path, server.url(), server.endpoint)
    receipt = list_step.run(context, "data")
    assert receipt["run"] == plain["run"]
    listing = context.layout("data").run(receipt["run"]).listing
    assert sum(entry.archived == "GLACIER" for batch in read_listing(listing) for entry in batch) == len(rows)


def test_what_is_older_than_the_limit_is_listed_anew(
    tmp_path: Path, server: S3Server, segments: list[Path]
) -> None:
    first = json.loads(segments[0].read_text())
    segments[0].write_text(json.dumps(first | {"listed": time.time() - 7200}))
    last = ended(segments).decode()
    before = len(server.requests())
    receipt = list_step.run(context_of(tmp_path, server.url(), server.endpoint), "data")
    asked = sorted(begun_at([one.query for one in server.requests()[before:]]))
    assert receipt["files"] == OBJECTS
    # From the beginning to the end of the first segment, and from the end of the last one.
    gone = bytes.fromhex(first["upto"]).decode()
    assert asked[0] == ""
    assert all(key < gone or key >= last for key in asked)


@pytest.mark.parametrize("damage", ["cut", "no document", "garbage"])
def test_a_segment_that_is_not_whole_is_listed_anew(
    tmp_path: Path, server: S3Server, plain: Mapping[str, Any], segments: list[Path], damage: str
) -> None:
    if damage == "cut":
        rows = segments[1].with_suffix(".parquet")
        rows.write_bytes(rows.read_bytes()[:-200])
    elif damage == "garbage":
        segments[1].write_text('{"after": "zz"}')
    else:
        segments[1].unlink()
    receipt = list_step.run(context_of(tmp_path, server.url(), server.endpoint), "data")
    assert receipt["listing_digest"] == plain["listing_digest"]


def test_segments_of_a_newer_penstock_are_refused_by_name(
    tmp_path: Path, server: S3Server, segments: list[Path]
) -> None:
    segments[0].write_text('{"format": 2}')
    with pytest.raises(NewerFormatError, match="a segment of a listing"):
        list_step.run(context_of(tmp_path, server.url(), server.endpoint), "data")


@pytest.mark.usefixtures("segments")
def test_with_a_limit_of_nothing_each_listing_begins_anew(tmp_path: Path, server: S3Server) -> None:
    context = context_of(tmp_path, server.url(), server.endpoint)
    context.config = replace(context.config, list=ListConfig(resume_within=0))
    before = len(server.requests())
    assert list_step.run(context, "data")["files"] == OBJECTS
    assert "" in begun_at([one.query for one in server.requests()[before:]])


@pytest.mark.usefixtures("segments")
def test_another_source_does_not_go_on_with_the_listing_of_this_one(tmp_path: Path, server: S3Server) -> None:
    receipt = list_step.run(context_of(tmp_path, server.url("d000/"), server.endpoint), "data")
    assert receipt["files"] == 100
    assert not (tmp_path / "target/data/.penstock/listing").exists()


def test_of_a_list_of_keys_nothing_is_asked_twice(tmp_path: Path, server: S3Server) -> None:
    listed = tmp_path / "keys"
    listed.write_text("".join(f"d{n // 100:03d}/f{n:05d}\n" for n in reversed(range(OBJECTS))))
    last = ended(broken_off(tmp_path, server, str(listed))).decode()
    before = len(server.requests())
    receipt = list_step.run(context_of(tmp_path, server.url(), server.endpoint, str(listed)), "data")
    asked = [one.key for one in server.requests()[before:] if one.method == "HEAD"]
    assert receipt["files"] == OBJECTS
    assert len(asked) == len(set(asked)) + (asked.count("d119/f11999") - 1)  # the list's first key, once more
    assert min(asked) > last


def test_after_a_refusal_nothing_stays_on_the_target(tmp_path: Path) -> None:
    root = tmp_path / "bucket"
    root.mkdir()
    for number in range(30):
        (root / f"f{number:03d}").touch()
    (root / ("x" * 200 + "\\")).touch()
    listed = tmp_path / "keys"
    listed.write_text("".join(f"f{number:03d}\n" for number in range(31)))
    with S3Server(root) as running, pytest.MonkeyPatch.context() as patch:
        patch.setattr(resumption, "ROWS", 5)
        patch.setattr(resumption, "WORTH", 2)
        with pytest.raises(PreflightError, match="is not at the source"):
            list_step.run(context_of(tmp_path, running.url(), running.endpoint, str(listed)), "data")
    assert not (tmp_path / "target").exists()


def test_a_comparison_with_the_source_keeps_nothing_with_the_datasets_state(
    tmp_path: Path, server: S3Server
) -> None:
    context = context_of(tmp_path, server.url(), server.endpoint)
    dataset = context.dataset("data")
    (source,) = sources = open_sources(dataset)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resumption, "ROWS", 2000)
        patch.setattr(resumption, "WORTH", 500)
        gathered = gather(context, dataset, ordered(dataset, sources), tmp_path / "here/listing.parquet")
    assert (gathered.files, source.url) == (OBJECTS, server.url())
    assert not (tmp_path / "target").exists()


class Keys:
    """A source of keys that breaks off once it listed so many."""

    def __init__(self, keys: Sequence[str], breaks: int, *, knows_start: bool, batch: int) -> None:
        self._rows = [Listed(key, len(key), f"t{key}", 5) for key in keys]
        self.breaks, self._knows_start, self._batch = breaks, knows_start, batch
        self.listed = 0

    def list_between(self, after: bytes, upto: bytes | None) -> Iterator[Sequence[Listed]]:
        return between(self._pages(after), after, upto)

    def _pages(self, after: bytes) -> Iterator[Sequence[Listed]]:
        rows = [one for one in self._rows if not self._knows_start or order(one) > after]
        for at in range(0, len(rows), self._batch):
            if self.listed >= self.breaks:
                raise TransientError("broken off")
            self.listed += len(rows[at : at + self._batch])
            yield rows[at : at + self._batch]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.sets(st.text("abc\x00é", min_size=1, max_size=6), min_size=1, max_size=80),
    breaks=st.lists(st.integers(1, 60), max_size=6),
    batch=st.integers(1, 9),
    rows=st.integers(1, 12),
    drops=st.lists(st.integers(0, 30), max_size=6),
    knows_start=st.booleans(),
)
def test_however_often_a_listing_is_broken_off_it_lists_each_key_once(
    tmp_path_factory: pytest.TempPathFactory,
    keys: set[str],
    breaks: list[int],
    batch: int,
    rows: int,
    drops: list[int],
    knows_start: bool,
) -> None:
    folder = tmp_path_factory.mktemp("segments")
    ordered = sorted(keys, key=str.encode)
    context = context_for(folder, "s3://bucket/")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resumption, "ROWS", rows)
        patch.setattr(resumption, "WORTH", max(1, rows // 2))
        for count, drop in zip([*breaks, 10**6], [*drops, *[0] * 9], strict=False):
            source = Keys(ordered, count, knows_start=knows_start, batch=batch)
            found = []
            try:
                for some in Resumption(context, "data", folder / "here", source).batches():
                    found += some
            except TransientError:
                # One of the segments may be lost, too.
                names = sorted((folder / "here").glob("*.json")) if (folder / "here").exists() else []
                if drop < len(names):
                    names[drop].unlink()
                assert [one.key for one in found] == ordered[: len(found)]
                continue
            assert [one.key for one in found] == ordered
            assert found == [Listed(key, len(key), f"t{key}", 5) for key in ordered]
            break


KEYS = [f"k{number:02d}" for number in range(20)]


@pytest.fixture
def of_five(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[str]]:
    """Lists KEYS, in segments of five, from a source that breaks off after so many; the keys that come."""
    monkeypatch.setattr(resumption, "ROWS", 5)
    monkeypatch.setattr(resumption, "WORTH", 1)

    def listed(breaks: int) -> list[str]:
        source = Keys(KEYS, breaks, knows_start=True, batch=5)
        context = context_for(tmp_path, "s3://bucket/")
        batches = Resumption(context, "data", tmp_path / "here", source).batches()
        return [one.key for batch in batches for one in batch]

    return listed


def test_what_lies_between_two_segments_is_listed(
    tmp_path: Path, of_five: Callable[[int], list[str]]
) -> None:
    with pytest.raises(TransientError):
        of_five(15)
    _, second, _ = sorted((tmp_path / "here").glob("*.json"))
    second.unlink()
    assert of_five(99) == KEYS


@pytest.mark.parametrize(
    "keys",
    [
        ["k00", "k01", "k02", "k03", "k04"],
        ["k05", "k06", "k07", "k08", "k10"],
        ["k05", "k06", "k07", "k08", "k08"],
        ["k04", "k06", "k07", "k08", "k09"],
    ],
    ids=["another's", "beyond its end", "short of its end", "before its begin"],
)
def test_a_segment_whose_rows_are_not_its_own_is_refused(
    tmp_path: Path, of_five: Callable[[int], list[str]], keys: list[str]
) -> None:
    with pytest.raises(TransientError):
        of_five(15)
    _, second, _ = sorted((tmp_path / "here").glob("*.parquet"))
    second.unlink()
    rows = ListingWriter(second)
    rows.add([Listed(key, 1, "t", 5) for key in keys])
    rows.close()
    with pytest.raises(FailedError, match="a segment of a listing is damaged"):
        of_five(99)


@pytest.mark.parametrize("killed", [False, True])
def test_s3_a_store_whose_disorder_shows_late_leaves_no_segment_that_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """Segments of what came in order so far are made, and hold nothing once the disorder shows."""
    monkeypatch.setattr(resumption, "ROWS", 20)
    monkeypatch.setattr(resumption, "WORTH", 10)
    objects = {f"p/{number:03d}": b"1" for number in range(100)}
    with Hostile(objects, listing="late", page=7) as server:
        context = context_of(tmp_path, "s3://bucket/p/", server.endpoint)
        segments = context.layout("data").unfinished_listing
        if killed:
            source = open_sources(context.dataset("data"))[0]
            assert isinstance(source, S3Source)
            folder = resumption.place(segments, source.url, source.origin, "refuse", "")
            going = Resumption(context, "data", folder, source).batches()
            for _ in range(8):
                next(going)
            going.close()  # type: ignore[attr-defined]
            assert list(folder.glob("*.json")), "it was broken off while all was in order"
        receipt = list_step.run(context, "data")
    with Hostile(objects) as server:
        (tmp_path / "plain").mkdir()
        plain = list_step.run(context_of(tmp_path / "plain", "s3://bucket/p/", server.endpoint), "data")
    assert receipt["files"] == 100
    assert receipt["listing_digest"] == plain["listing_digest"]
    assert not segments.exists()
