"""What a source states is checked on the way, whatever speaks: the flipped byte is found, or the release
says that nothing would have told."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import fsspec
import pytest
from awscrt import checksums
from fsspec.spec import AbstractFileSystem
from tests.support.hostile import Hostile
from tests.support.published import STEPS, content, data_of, flip, publish
from tests.support.staging_runs import context_for, events_of, tree

from penstock.config.settings import DatasetConfig, EngineConfig, PlanConfig, SourceConfig, VerifyConfig
from penstock.core.errors import FailedError, IntegrityError
from penstock.core.model import Entry
from penstock.engine.checksums import Sums
from penstock.keep import audit_step, repair_step
from penstock.sources.port import open_source
from penstock.tables.manifest import read_manifest
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.core.model import Record
    from penstock.dataset.context import Context

GOOD = content(3, 60_000)
REQUIRE = VerifyConfig(source_checksum="require")


@contextmanager
def run(tmp_path: Path, url: str, verify: VerifyConfig | None = None, **changes: Any) -> Iterator[Context]:
    source = SourceConfig(url, "", changes.pop("options", {}))
    made = context_for(tmp_path, url, sources=(source,), **changes)
    verify = verify or VerifyConfig()
    made.config = replace(made.config, verify=verify, engine=EngineConfig(workers=1, attempts=2))
    try:
        yield made
    finally:
        made.cluster.close()


def records(context: Context) -> dict[str, Record]:
    manifest = data_of(context).parent / "manifest.parquet"
    return {record.path: record for batch in read_manifest(manifest) for record in batch}


def test_a_byte_flipped_on_the_wire_is_found_or_honestly_graded(tmp_path: Path) -> None:
    modes = {"once": "flipcrc*1", "silent": "flip*1"}
    with Hostile({"once": GOOD, "silent": GOOD}, modes=modes) as server:
        options = {"endpoint_url": server.endpoint, "anon": True}
        with run(tmp_path, f"s3://{server.bucket}/", options=options) as context:
            publish(context)
            data, told = data_of(context), records(context)
            assert ((data / "once").read_bytes(), told["once"].source_grade) == (GOOD, "full")
            assert server.count("once") == 2
            # Nothing stated what these bytes should be: nothing is claimed of the wire.
            assert ((data / "silent").read_bytes() == GOOD, told["silent"].source_grade) == (False, "size")

            # A repair knows what was published: a flip on its way is read again, and then refused.
            flip(data / "once", 5)
            assert audit_step.run(context, "data")["counts"] == {"changed": 1}
            broken = (data / "once").read_bytes()
            server.modes["once"] = "flip"
            done = repair_step.run(context, "data")
            assert [path for path, _ in done["unrepairable"]] == ["once"]
            assert (data / "once").read_bytes() == broken
            server.modes["once"] = "flip*1"
            server.modes.pop("silent")
            assert repair_step.run(context, "data")["status"] == "REPAIRED"
            assert (data / "once").read_bytes() == GOOD


def test_a_byte_that_stays_flipped_publishes_nothing(tmp_path: Path) -> None:
    with Hostile({"bad": GOOD}, modes={"bad": "flipcrc"}) as server:
        options = {"endpoint_url": server.endpoint, "anon": True}
        with run(tmp_path, f"s3://{server.bucket}/", options=options) as context:
            with pytest.raises(FailedError, match="contradict the source's own crc32"):
                publish(context)
            assert dataset_folders.releases(context.layout("data")) == []


def test_a_giant_that_was_replaced_after_it_was_copied_is_published_with_less_proof(tmp_path: Path) -> None:
    plan = PlanConfig(giant_bytes=50_000, part_bytes=20_000)
    with Hostile({"giant": GOOD}, modes={"giant": "crc"}) as server:
        options = {"endpoint_url": server.endpoint, "anon": True}
        with run(tmp_path, f"s3://{server.bucket}/", options=options, plan=plan) as context:
            for step in STEPS[:-1]:
                step(context, "data")
            server.objects["giant"] = b"other"
            STEPS[-1](context, "data")
            told = records(context)["giant"]
            assert ((data_of(context) / "giant").read_bytes(), told.source_grade) == (GOOD, "size")
            said = [str(event.data.get("text")) for event in events_of(context) if event.kind == "warning"]
            assert any("nothing can prove its parts together any more" in text for text in said)


class Stating(http.server.BaseHTTPRequestHandler):
    """A file with the digests that web servers state: of the file, of the answer."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        sha = base64.b64encode(hashlib.sha256(GOOD).digest()).decode()
        first, _, last = self.headers.get("Range", "").removeprefix("bytes=").partition("-")
        body = GOOD[int(first) : int(last) + 1] if last else GOOD
        self.send_response(206 if last else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"one"')
        if last:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(GOOD)}")
        if self.path.endswith("repr"):
            self.send_header("Repr-Digest", f"sha-256=:{sha}:")
        elif not last:
            self.send_header("Content-MD5", base64.b64encode(hashlib.md5(GOOD).digest()).decode())
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 (the base class names it so)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def web() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stating) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("name", "proof"), [("repr", "sha256:full:"), ("content", "md5:full:")])
def test_a_web_server_states_a_digest(tmp_path: Path, web: str, name: str, proof: str) -> None:
    with run(tmp_path, f"{web}{name}", REQUIRE) as context:
        publish(context)
        (record,) = records(context).values()
        assert record.source_grade == "full"
        assert record.source_proof.startswith(proof)


@pytest.mark.parametrize("stated", ["by the server", "beside the data"])
def test_a_giant_with_a_hash_of_its_whole_is_proven_by_one_reading(
    tmp_path: Path, web: str, stated: str
) -> None:
    verify = VerifyConfig(source_checksum="require", digests=("xxh3_128", "sha256"))
    url, more = f"{web}repr", {}
    if stated == "beside the data":
        line = f"{hashlib.sha256(GOOD).hexdigest()}\n".encode()
        url = str(tree(tmp_path / "source", {"giant": GOOD, "giant.sha256": line}))
        more = {"checksums": ("*.sha256",), "exclude": ("*.sha256",)}
    plan = PlanConfig(giant_bytes=50_000, part_bytes=20_000)
    with run(tmp_path, url, verify, plan=plan, **more) as context:
        publish(context)
        (record,) = records(context).values()
        assert len(record.parts) == 3 * 16
        assert (record.source_grade, record.source_proof) == (
            "full",
            f"sha256:full:{hashlib.sha256(GOOD).hexdigest()}",
        )


class StandIn(AbstractFileSystem):  # type: ignore[misc]
    """Tells of its one file what a bucket of Google's does; there is no such server here."""

    protocol = "standin"
    served = GOOD

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        if path.strip("/") == "bucket":
            return {"name": path, "size": 0, "type": "directory"}
        stated = base64.b64encode(checksums.crc32c(GOOD).to_bytes(4, "big")).decode()
        told = {"generation": "7", "crc32c": stated}
        return {"name": "bucket/file", "size": len(GOOD), "type": "file", **told}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        return [self.info("bucket/file")]

    def _open(self, path: str, *_: Any, **__: Any) -> io.BytesIO:
        return io.BytesIO(self.served)


def test_what_a_bucket_of_googles_states_is_checked_whole_and_by_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fsspec.register_implementation("standin", StandIn, clobber=True)
    config = SourceConfig("standin://bucket")
    source: Any = open_source(config, DatasetConfig("d", (config,)))
    (listed,) = (one for batch in source.list() for one in batch)
    assert listed.token == "7"
    entry = Entry("file", "file", listed.size, listed.token, 0, length=listed.size)

    def judged(entry: Entry) -> tuple[str, str]:
        body = source.reader().open(entry, entry.offset, entry.length)
        sums = Sums(entry, body.checksums, lambda: source.checksum(entry))
        buffer = memoryview(bytearray(9000))
        while count := body.readinto(buffer):
            sums.update(buffer[:count])
        body.close()
        return sums.judge()

    assert judged(entry) == ("full", f"crc32c:full:{checksums.crc32c(GOOD):08x}")
    part = entry._replace(part=1, offset=20_000, length=20_000)
    assert judged(part) == ("size", f"crc32c:part:{checksums.crc32c(GOOD[20_000:40_000]):08x}")
    monkeypatch.setattr(StandIn, "served", GOOD[:-1] + b"x")
    with pytest.raises(IntegrityError, match="crc32c"):
        judged(entry)
