from __future__ import annotations

import os
import random
import subprocess
from hashlib import sha256
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import xxhash
from tests.target.conftest import need

from penstock.core.errors import FailedError
from penstock.core.model import Record
from penstock.tables import tables
from penstock.tables.manifest import ChecksumFile, Files, ManifestWriter, read_manifest, some_paths

if TYPE_CHECKING:
    from pathlib import Path

ODD = [
    "a b",
    "-dash",
    "$(x)",
    "%41",
    "'q'",
    '"',
    "\\",
    "a\\nb",
    "cr\r",
    "tab\t",
    "\udcff\udcfe",
    "é",
    "*star",
]


def record(path: str, size: int = 1) -> Record:
    return Record(
        path, size, "xxh3_128:" + "0" * 32, 7, path, "t", "v", 0, "size", "", "cold", "direct", "a", "b",
        "at", -5, 1 << 62, b"\x00\xff", "sha256:ab",
    )  # fmt: skip


def test_records_come_back_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "GROUP", 10)
    records = [record(f"p{i:03d}") for i in range(57)] + [record("odd\n\udcff", 1 << 60)]
    with ManifestWriter(tmp_path / "m") as writer:
        for at in range(0, len(records), 7):
            writer.add(Files.of(records[at : at + 7]))
        assert not (tmp_path / "m").exists()
        digest = writer.finish()
    assert [r for batch in read_manifest(tmp_path / "m", rows=5) for r in batch] == records
    assert digest == f"sha256:{sha256((tmp_path / 'm').read_bytes()).hexdigest()}"
    assert os.listdir(tmp_path) == ["m"]


@pytest.mark.parametrize(("count", "places"), [(1, [0]), (4, [0, 14, 28, 42]), (100, range(57))])
def test_a_sample_of_the_paths_is_from_all_over_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, places: list[int]
) -> None:
    monkeypatch.setattr(tables, "GROUP", 10)
    with ManifestWriter(tmp_path / "m") as writer:
        writer.add(Files.of([record(f"p{i:03d}\udcff") for i in range(57)]))
        writer.finish()
    assert list(some_paths(tmp_path / "m", count)) == [f"p{i:03d}\udcff" for i in places]
    os.truncate(tmp_path / "m", 100)
    with pytest.raises(FailedError):
        list(some_paths(tmp_path / "m", count))


def test_a_manifest_takes_less_than_33_bytes_a_file(tmp_path: Path) -> None:
    """Of small objects that were uploaded one a second: digest and checksum alone are 24 bytes."""
    rows, drawn, second = 20_000, random.Random(0), 10**9
    records = [
        record(f"d{at // 1000:03d}/f{at:09d}.bin", 4096 + at % 7)._replace(
            digest=f"xxh3_128:{drawn.getrandbits(128):032x}",
            source_proof=f"crc64nvme:full:{drawn.getrandbits(64):016x}",
            modified_ns=(1_700_000_000 + at) * second,
            mtime_ns=(1_700_000_000 + at) * second,
            ctime_ns=1_795_000_000 * second + at // 100 * 4_000_000,
            inode=12_000_000 + at,
            parts=b"",
            digests="",
            read_at=1_795_000_000 + at // 1000,
        )
        for at in range(rows)
    ]
    with ManifestWriter(tmp_path / "m") as writer:
        writer.add(Files.of(records))
        writer.finish()
    assert (tmp_path / "m").stat().st_size < 33 * rows
    assert [one for batch in read_manifest(tmp_path / "m") for one in batch] == records


def test_rows_cut_from_large_batches_keep_nothing_else_alive(tmp_path: Path) -> None:
    before = pa.total_allocated_bytes()
    with ManifestWriter(tmp_path / "m") as writer:
        for number in range(100):
            large = Files.of([record("a")] * 8192)
            batch = pa.record_batch(list(map(large.stored, Record._fields)), names=Record._fields)
            writer.add(Files(batch.slice(number, 1)))
        assert pa.total_allocated_bytes() - before < 30 << 20
        writer.finish()
    assert sum(map(len, read_manifest(tmp_path / "m"))) == 100


def test_text_that_nobody_could_read_is_refused(tmp_path: Path) -> None:
    with (
        ManifestWriter(tmp_path / "m") as writer,
        pytest.raises(FailedError, match=r"not text.*written_host"),
    ):
        writer.add(Files.of([record("a")._replace(written_host="n\udcff")]))


def test_nothing_is_left_of_one_that_was_not_closed(tmp_path: Path) -> None:
    with ManifestWriter(tmp_path / "m") as writer:
        writer.add(Files.of([record("a")]))
    with ChecksumFile(tmp_path / "s", algorithm="sha256") as sums:
        sums.add([("00", "a")])
    assert os.listdir(tmp_path) == []


def test_what_is_no_manifest_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"PAR1 and nothing")
    with pytest.raises(FailedError, match="cannot be read"):
        list(read_manifest(tmp_path / "m"))


def made(tmp_path: Path, names: list[str], algorithm: str) -> tuple[Path, ChecksumFile]:
    data = tmp_path / "data"
    data.mkdir()
    path = tmp_path / f"manifest.{algorithm}"
    digests = []
    for name in names:
        content = os.fsencode(name)
        (data / name).write_bytes(content)
        hexadecimal = xxhash.xxh3_128_hexdigest(content) if algorithm == "xxh3_128" else ""
        digests.append(hexadecimal or sha256(content).hexdigest())
    with ChecksumFile(path, algorithm=algorithm) as sums:
        # Together, and one by one.
        pairs = list(zip(digests, names, strict=True))
        half = len(pairs) // 2
        sums.add(pairs[:half])
        for pair in pairs[half:]:
            sums.add([pair])
        sums.close()
    return path, sums


def judged(tool: str, path: Path) -> tuple[int, bytes]:
    done = subprocess.run([need(tool), "-c", path.name], cwd=path.parent, capture_output=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_xxhsum_checks_every_name_but_those_with_a_line_feed(tmp_path: Path) -> None:
    path, sums = made(tmp_path, ODD, "xxh3_128")
    assert (sums.lines, sums.escaped) == (len(ODD), 0)
    code, told = judged("xxhsum", path)
    assert code == 0, told
    assert told.count(b": OK") == len(ODD)
    (tmp_path / "data" / "é").write_bytes(b"changed")
    assert judged("xxhsum", path)[0] != 0


def test_a_line_feed_is_escaped_and_counted(tmp_path: Path) -> None:
    path, sums = made(tmp_path, ["a", "b\\\nc"], "xxh3_128")
    assert (sums.lines, sums.escaped) == (2, 1)
    assert path.read_bytes().splitlines()[1].startswith(b"\\")
    assert path.read_bytes().endswith(b"  data/b\\\\\\nc\n")


def test_sha256sum_checks_every_name(tmp_path: Path) -> None:
    path, sums = made(tmp_path, [*ODD, "line\nfeed", "\\\n\r"], "sha256")
    code, told = judged("sha256sum", path)
    assert code == 0, told
    assert sums.lines == len(ODD) + 2
    assert sums.escaped == 5
