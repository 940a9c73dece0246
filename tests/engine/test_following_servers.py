"""Objects of servers that change while a shard is copied, with `changed: follow`; what is stated of them."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from tests.support.engine_runs import ShardRun, content, following, read_tree, rewrite, shard_run
from tests.support.hostile import Hostile
from tests.support.records import rows_of, write_shard

from penstock.config.settings import DatasetConfig, SourceConfig
from penstock.core.model import Entry, Listed
from penstock.engine import journal
from penstock.tables.run_tables import ListingWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Restless(BaseHTTPRequestHandler):
    """One file whose version is another one each time it was looked at."""

    protocol_version = "HTTP/1.1"
    versions: list[int]

    def do_HEAD(self) -> None:
        seen = self.versions[0]
        self.versions[0] += 1  # before the answer: the client's next request may be quicker than this thread
        self._head(200, 7, seen)

    def do_GET(self) -> None:
        version = self.versions[0]
        data = b"%07d" % version
        asked = self.headers.get("If-Match", "").strip('"')
        if asked != f"v{version}":
            self._head(412, 0, version)
            return
        self._head(200, len(data), version)
        self.wfile.write(data)

    def _head(self, status: int, length: int, version: int) -> None:
        self.send_response(status)
        self.send_header("ETag", f'"v{version}"')
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextlib.contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server that answers so."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def restless() -> Iterator[str]:
    handler = type("Handler", (Restless,), {"versions": [0]})
    with served(handler) as url:
        yield f"{url}x"


def test_what_changes_at_every_attempt_is_named(tmp_path: Path, restless: str) -> None:
    run = following(shard_run(tmp_path / "run", restless))
    outcome = run.copy(engine={"attempts": 3}, may_change=(1, 0))
    (failed,) = outcome.failures
    assert (failed.path, failed.exit_code, failed.retry) == ("x", 5, False)
    assert "3 times" in failed.why
    assert "exclude" in failed.why
    assert read_tree(run.data) == {}


# Checksum files beside the data --------------------------------------------------------------------


class Late(BaseHTTPRequestHandler):
    """A folder in which `x` is new, and `SHA256SUMS` states it only from its second reading on."""

    protocol_version = "HTTP/1.1"
    readings: list[str]
    sums: tuple[bytes, bytes]

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        name = self.path.rpartition("/")[2]
        if body:
            self.readings.append(name)
        data = b"new" if name == "x" else self.sums[self.readings.count(name) > 1]
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextlib.contextmanager
def late(tmp_path: Path, sums: tuple[bytes, bytes]) -> Iterator[tuple[ShardRun, Path]]:
    """A shard that planned the old `x` of such a folder, and the checksum files that its listing met."""
    folder = tmp_path / "run"
    (folder / "data").mkdir(parents=True)
    old = Entry("x", "x", 3, "old", 5, length=3, checksum=f"sha256:full:{hashlib.sha256(b'old').hexdigest()}")
    with ListingWriter(folder / "stated.parquet") as writer:
        writer.add([Listed("SHA256SUMS", len(sums[0]), "t", 5)])
        writer.close()
    with served(type("Handler", (Late,), {"readings": [], "sums": sums})) as url:
        dataset = DatasetConfig("set", (SourceConfig(url),), changed="follow", checksums=("SHA256SUMS",))
        shard = write_shard(folder / "shard.parquet", 0, [old])
        yield ShardRun(folder, dataset, shard, [old]), folder / "stated.parquet"


def stating(data: bytes) -> bytes:
    return f"{hashlib.sha256(data).hexdigest()}  x\n".encode()


def test_a_checksum_file_may_come_after_its_data(tmp_path: Path) -> None:
    with late(tmp_path, (stating(b"old"), stating(b"new"))) as (run, stated):
        outcome = run.copy(may_change=(1, 0), stated=stated)
    assert (outcome.failures, outcome.amended) == ([], 1)
    assert (run.data / "x").read_bytes() == b"new"
    pin = journal.replay(run.journals, run.shard.digest)[0].pin
    assert pin is not None
    assert pin.checksum == f"sha256:full:{hashlib.sha256(b'new').hexdigest()}"


def test_a_checksum_file_that_is_none_any_more_fails_what_it_stated(tmp_path: Path) -> None:
    with late(tmp_path, (b"what is this", b"what is this")) as (run, stated):
        outcome = run.copy(may_change=(1, 0), stated=stated)
    (failed,) = outcome.failures
    assert (failed.path, failed.exit_code) == ("x", 1)
    assert "SHA256SUMS" in failed.why
    assert read_tree(run.data) == {}


@pytest.mark.parametrize(
    ("mode", "why", "tries"), [("denied", "denied", 1), ("honest", "contradict", 2), ("crc", "contradict", 2)]
)
def test_a_failure_that_is_no_change_is_not_followed(tmp_path: Path, mode: str, why: str, tries: int) -> None:
    """Nor does it count against `FollowLimit`: the object is as it was planned, and so is what is stated."""
    sums = stating(b"other")
    with Hostile(
        {"x": b"bytes", "SHA256SUMS": sums}, modes={"x": mode} if mode != "honest" else {}
    ) as server:
        run = shard_run(tmp_path / "run", f"s3://{server.bucket}/", endpoint_url=server.endpoint, anon=True)
        run.dataset = replace(run.dataset, changed="follow", checksums=("SHA256SUMS",))
        (entry,) = (one for one in run.entries if one.key == "x")
        rewrite(run, [entry._replace(checksum=f"sha256:full:{hashlib.sha256(b'other').hexdigest()}")])
        with ListingWriter(tmp_path / "stated.parquet") as writer:
            writer.add([Listed("SHA256SUMS", len(sums), "t", 5)])
            writer.close()
        outcome = run.copy(may_change=(0, 0), stated=tmp_path / "stated.parquet")
        assert server.count("x") == tries
    (failed,) = outcome.failures
    assert (failed.path, failed.exit_code) == ("x", 1)
    assert why in failed.why.lower()
    assert outcome.amended == 0
    assert not read_tree(run.data)


def test_a_checksum_file_that_came_after_a_large_object_is_read_once_verify_contradicts(
    tmp_path: Path,
) -> None:
    """Parts say nothing of a hash of the whole: one stream does, and what is stated is read anew."""
    data = content(3, 9 << 19)
    large = {"large_bytes": 4 << 20, "part_bytes": 1 << 20}
    with Hostile({"x": data, "SHA256SUMS": stating(data)}) as server:
        run = shard_run(tmp_path / "run", f"s3://{server.bucket}/", endpoint_url=server.endpoint, anon=True)
        run.dataset = replace(run.dataset, changed="follow", checksums=("SHA256SUMS",))
        (entry,) = (one for one in run.entries if one.key == "x")
        rewrite(run, [entry._replace(checksum=f"sha256:full:{hashlib.sha256(b'old').hexdigest()}")])
        with ListingWriter(tmp_path / "stated.parquet") as writer:
            writer.add([Listed("SHA256SUMS", 68, "t", 5)])
            writer.close()
        follow = large | {"may_change": (1, 0), "stated": tmp_path / "stated.parquet"}
        assert run.copy(**follow).failures == []
        (failed,) = run.reread(follow=True).failures
        assert "contradict the source's own sha256" in failed.why
        outcome = run.copy(**follow)
        assert (outcome.failures, outcome.amended) == ([], 1)
    assert run.reread(follow=True).failures == []
    proofs = {one.record.path: one.record.source_proof for one in rows_of(run.folder / "records.parquet")}
    assert proofs["x"] == f"sha256:full:{hashlib.sha256(data).hexdigest()}"
