"""The disk and the page cache say different things: an audit tells of the disk."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.images import BLOCK, blocks, mounted
from tests.support.published import content, data_of, flip, published
from tests.support.staging_runs import tree
from tests.target.conftest import need_cold_reads

from penstock.core.seal import Amount
from penstock.engine.reread_shard import storage_grade
from penstock.fs.capabilities import facts
from penstock.fs.cold_read import ColdReader
from penstock.keep import audit_plan, audit_step, repair_step
from penstock.look.views import text_layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.dataset.context import Context

MARK = b"a block that is found in the image by its content"
CONTENT = (MARK + bytes(4096))[:4096] * 4


def flip_on_disk(image: Path, mark: bytes) -> None:
    """Behind the mounted file system's back: its page cache does not notice."""
    with image.open("r+b") as stream:
        content = stream.read()
        places = [i for i in range(0, len(content), 4096) if content[i : i + len(mark)] == mark]
        assert places
        for place in places:
            stream.seek(place)
            stream.write(bytes([mark[0] ^ 1]))
        stream.flush()
        os.fsync(stream.fileno())


def test_damage_on_disk_is_found_behind_a_good_cache_and_the_other_way_round(tmp_path: Path) -> None:
    with mounted(tmp_path) as (image, _):
        source = tree(tmp_path / "source", {"file": CONTENT})
        with published(tmp_path, source) as context:
            path = data_of(context) / "file"
            assert path.read_bytes() == CONTENT
            flip_on_disk(image, MARK)
            # Whoever reads it now is served from memory and sees nothing wrong.
            assert path.read_bytes() == CONTENT
            result = audit_step.run(context, "data")
            assert result["counts"] == {"changed": 1}
            # Now memory has the damage (a reader loaded it), and the disk is mended.
            damaged = path.read_bytes()
            assert damaged != CONTENT
            flip_on_disk(image, bytes([MARK[0] ^ 1]) + MARK[1:])
            result = audit_step.run(context, "data")
            assert (result["status"], result["methods"]) == ("PASSED", {"direct": 1})
            # The same of the manifest: what this machine has in memory is not what is stored.
            manifest = path.parent.parent / "manifest.parquet"
            kept = manifest.read_bytes()
            with image.open("r+b") as stream:
                stream.seek(blocks(manifest)[0] * BLOCK + 100)
                stream.write(bytes([kept[100] ^ 1]))
            assert manifest.read_bytes() == kept
            result = audit_step.run(context, "data")
            assert [(f.kind, f.path) for f in result["findings"]] == [("manifest", manifest.name)]


@contextlib.contextmanager
def laid_over(kind: str, below: Path, point: Path) -> Iterator[Path]:
    """A FUSE or overlay file system over the folder `below`, at `point`."""
    point.mkdir()
    if kind == "fuse":
        command = ["bindfs", str(below), str(point)]
    else:
        layers = [below / name for name in ("lower", "upper", "work")]
        for layer in layers:
            layer.mkdir()
        lower, upper, work = layers
        layered = f"lowerdir={lower},upperdir={upper},workdir={work}"
        command = ["mount", "-t", "overlay", "-o", layered, "overlay", str(point)]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no {kind} here: {done.stderr.decode(errors='replace').strip()}")
    try:
        yield point
    finally:
        subprocess.run(["umount", "--lazy", point], check=True)


@pytest.mark.parametrize("kind", ["fuse", "overlay"])
def test_nothing_is_called_cold_where_other_caches_lie_below(tmp_path: Path, kind: str) -> None:
    """The file system below keeps the good bytes in its own cache, which nobody above can empty."""
    (tmp_path / "low").mkdir()
    with (
        mounted(tmp_path / "low") as (image, low),
        laid_over(kind, low, tmp_path / "target") as target,
        published(tmp_path, tree(tmp_path / "source", {"file": CONTENT})) as context,
    ):
        assert facts(target).kind == kind
        seal = audit_plan.read_seal(context.layout("data"), data_of(context).parent.name)[0]
        assert seal.evidence.storage == {"reread": Amount(1, len(CONTENT))}
        flip_on_disk(image, MARK)
        result = audit_step.run(context, "data")
        # It may be found or not: either way nothing is claimed of the disk.
        assert set(result["methods"]) <= {"cached"}


def in_memory(path: Path) -> int:
    """Bytes of a file in the page cache, as util-linux's fincore learns them from mincore."""
    words = ["fincore", "--bytes", "--noheadings", "--output", "RES", str(path)]
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def test_a4_nothing_of_a_file_is_in_memory_when_a_cold_read_begins(tmp_path: Path) -> None:
    """A4: before the first byte is handed over, mincore shows no page."""
    need_cold_reads(tmp_path)
    path = tmp_path / "file"
    path.write_bytes(content(1, 3 << 20))
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
    assert in_memory(path) == 3 << 20
    seen: list[int] = []
    with ColdReader(tmp_path, facts(tmp_path)) as reader:
        how = reader.read("file", 0, 3 << 20, lambda _: seen.append(in_memory(path)))
    assert (how.method, seen) == ("direct", [0, 0, 0])
    # Pages that somebody holds cannot be dropped: the same read says so.
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as held:
        assert len(bytes(held)) == 3 << 20
        with ColdReader(tmp_path, facts(tmp_path)) as reader:
            how = reader.read("file", 0, 3 << 20, lambda _: seen.append(in_memory(path)))
    assert how.method == "cached"
    assert seen[3:] == [3 << 20] * 3


def test_an_audit_and_a_repair_read_as_the_releases_probe_saw_it(staged: Context) -> None:
    """O_DIRECT, refused when the release was planned, is not tried again."""
    layout = staged.layout("data")
    (probe,) = layout.runs.glob("*/probe.json")
    known = json.loads(probe.read_bytes())
    known["abilities"]["direct_alignment"] = {"answer": "no", "error": "EINVAL"}
    probe.write_text(json.dumps(known))
    flip(data_of(staged) / "d0/f00")
    result = audit_step.run(staged, "data")
    assert result["counts"] == {"changed": 1}
    assert "direct" not in result["methods"]
    done = repair_step.run(staged, "data")
    assert [path for path, _ in done["repaired"]] == ["d0/f00"]
    assert done["repaired"][0][1] != "direct"
    # One that is damaged counts as none.
    probe.write_text("{")
    assert ("direct" in audit_step.run(staged, "data")["methods"]) is facts(layout.folder).direct


def test_a4_on_tmpfs_the_read_falls_back_and_says_so() -> None:
    """A4: there the page cache is all that there is."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        if facts(folder).kind != "tmpfs":
            pytest.skip("/dev/shm is no tmpfs here")
        (folder / "file").write_bytes(content(1, 3 << 20))
        got = bytearray()
        with ColdReader(folder, facts(folder)) as reader:
            how = reader.read("file", 0, 3 << 20, got.extend)
        assert (how.method, bytes(got)) == ("cached", content(1, 3 << 20))
        assert storage_grade(how.method, "", "h") == "reread"
    assert text_layout.METHODS["cached"] == "read, perhaps from memory"
