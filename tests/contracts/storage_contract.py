"""What `penstock.target` promises: run on each file system that the machine can give.

Checked behind the storage's back, by `os` alone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from typing import TYPE_CHECKING

import pytest
from tests.support.forked import nobody

from penstock.config.settings import PermissionsConfig
from penstock.core.errors import FailedError, IntegrityError, ObjectError, PenstockError
from penstock.core.layout import MANIFEST, SEAL, DatasetLayout
from penstock.fs import small_files
from penstock.fs.capabilities import facts
from penstock.fs.cold_read import ColdReader
from penstock.fs.path_walk import walk
from penstock.fs.probe_judgement import links_work
from penstock.target import dataset_folders, modes, reveal, tree_removal
from penstock.target.file_replacement import Mender
from penstock.target.staging_folder import Barrier
from penstock.target.staging_writer import StagingWriter

if TYPE_CHECKING:
    from pathlib import Path


NAMES = (
    "a", "a b/c", "a!b", "a-b/x", "a.b", "dir/deep/er/file", "-dash", "$(touch PWNED)", "quote'\"",
    "new\nline", "tab\t", "%41", "x" * 255, os.fsdecode(b"\xff\xfe/\xe9"), "ünï", "\x1b[31m", "`id`", "*?[",
)  # fmt: skip
TIME = 1_234_567_890_123_456_789


def make_writer(data: Path, **over: object) -> StagingWriter:
    options = {
        "file_mode": 0o440, "dir_mode": 0o2550, "gid": None, "durability": "syncfs", "attempt": "1",
        "keep_mtime": True,
    }  # fmt: skip
    return StagingWriter(data, **{**options, **over})  # type: ignore[arg-type]


def put(writer: StagingWriter, path: str, content: bytes, mtime_ns: int = TIME) -> None:
    pending = writer.begin(path, len(content))
    pending.write_all(memoryview(content))
    writer.finish(pending, mtime_ns)


def links(place: Path) -> bool:
    """Whether a file may have names in two folders here."""
    folder = place / "probe"
    folder.mkdir()
    (folder / "a").touch()
    try:
        os.link(folder / "a", place / "probe-link")
        return (place / "probe-link").lstat().st_nlink == 2
    except OSError:
        return False
    finally:
        (place / "probe-link").unlink(missing_ok=True)
        shutil.rmtree(folder)


def grain(place: Path) -> int:
    """Nanoseconds to which times are kept here."""
    probe = place / "probe"
    probe.touch()
    os.utime(probe, ns=(TIME, TIME))
    lost = TIME - probe.stat().st_mtime_ns
    probe.unlink()
    return 10 ** len(str(lost)) if lost else 1


class StorageContract:
    """Subclasses give `place`: an empty folder on the file system under test."""

    @pytest.mark.parametrize("durability", ["fsync", "syncfs"])
    def test_stored_as_given(self, place: Path, durability: str) -> None:
        unit = grain(place)
        with Barrier(place) as barrier, make_writer(place, durability=durability) as writer:
            for number, name in enumerate(NAMES):
                put(writer, name, name.encode("utf-8", "surrogateescape") * (number * 3000), TIME + number)
            writer.settle()
            barrier.wait()
        for number, name in enumerate(NAMES):
            content = name.encode("utf-8", "surrogateescape") * (number * 3000)
            seen = os.lstat(place / name)
            assert (place / name).read_bytes() == content
            assert stat.S_IMODE(seen.st_mode) == 0o440
            assert seen.st_mtime_ns == (TIME + number) // unit * unit
        found = [f.path for f in walk(place) if f.kind == "file"]
        assert found == sorted(NAMES, key=os.fsencode)

    def test_no_name_before_the_end(self, place: Path) -> None:
        with make_writer(place) as writer:
            put(writer, "d/x", b"old")
            pending = writer.begin("d/x", 3)
            pending.write_all(memoryview(b"new"))
            assert (place / "d/x").read_bytes() == b"old"
            writer.discard(pending)
            assert os.listdir(place / "d") == ["x"]
            put(writer, "d/x", b"new")
            assert (place / "d/x").read_bytes() == b"new"

    def test_parts_of_a_giant_in_any_order(self, place: Path) -> None:
        content, unit = os.urandom(5 * 65536 + 17), grain(place)
        with make_writer(place) as one, make_writer(place, attempt="2") as two:
            for number, writer in ((3, one), (0, two), (5, two), (1, one), (4, one), (2, two)):
                piece = content[number * 65536 : (number + 1) * 65536]
                pending = writer.begin_part("g/iant", len(content), number * 65536, len(piece))
                writer.alive(pending)
                pending.write_all(memoryview(piece)[:1000])
                pending.write_all(memoryview(piece)[1000:])
                writer.finish_part(pending, TIME)
        assert (place / "g/iant").read_bytes() == content
        assert os.stat(place / "g/iant").st_mtime_ns == TIME // unit * unit

    def test_holes_stay_holes(self, place: Path) -> None:
        """Also at the end, and in a file large enough to have its blocks reserved."""
        data, gap, unit = os.urandom(1 << 16), 3 << 20, grain(place)
        with Barrier(place) as barrier, make_writer(place) as writer:
            pending = writer.begin("d/f", len(data) + 2 * gap, holes=True)
            pending.skip(gap)
            pending.write_all(memoryview(data))
            pending.skip(gap)
            writer.finish(pending, TIME)
            barrier.wait()
        content = bytes(gap) + data + bytes(gap)
        seen = os.stat(place / "d/f")
        assert (place / "d/f").read_bytes() == content
        assert seen.st_mtime_ns == TIME // unit * unit
        assert seen.st_blocks * 512 < 4 * len(data)
        with ColdReader(place, facts(place)) as reader:
            got = hashlib.sha256()
            reader.read("d/f", 0, len(content), got.update)
            assert got.digest() == hashlib.sha256(content).digest()

    def test_a_hole_in_a_giant_is_zeros_whatever_lay_there(self, place: Path) -> None:
        (place / "g").write_bytes(b"x" * (5 << 20))
        with make_writer(place) as writer:
            for start in (1 << 20, 3 << 20):
                pending = writer.begin_part("g", 5 << 20, start, 1 << 20)
                pending.skip((1 << 20) - 5)
                pending.write_all(memoryview(b"12345"))
                writer.finish_part(pending, TIME)
        one = bytes((1 << 20) - 5) + b"12345"
        x = b"x" * (1 << 20)
        assert (place / "g").read_bytes() == x + one + x + one + x

    @pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 70_001, (1 << 20) + 5])
    def test_read_back_truthfully(self, place: Path, size: int) -> None:
        content = os.urandom(size)
        with Barrier(place) as barrier, make_writer(place) as writer:
            put(writer, "d/f", content)
            barrier.wait()
        known = facts(place)
        with ColdReader(place, known) as reader:
            for offset in sorted({0, size // 2, max(0, size - 1)}):
                got = hashlib.sha256()
                seen = reader.read("d/f", offset, size - offset, got.update)
                assert got.digest() == hashlib.sha256(content[offset:]).digest()
                assert seen.stat.st_size == size
                assert seen.method == "cached" if known.kind == "tmpfs" else seen.method in (
                    "direct", "disk", "dropped", "cached",
                )  # fmt: skip
            with pytest.raises(IntegrityError, match=f"it has {size} bytes"):
                reader.read("d/f", 0, size + 1, got.update)
            with pytest.raises(IntegrityError, match="not there"):
                reader.read("d/none", 0, 1, got.update)

    def test_whole_way_to_a_reader(self, place: Path) -> None:
        layout = DatasetLayout(place, "set")
        dataset_folders.prepare(layout)
        assert dataset_folders.releases(layout) == []
        assert dataset_folders.current(layout) is None
        for release in ("r1", "r2"):
            data = dataset_folders.open_staging(layout, release, 0o2550, os.getegid())
            with make_writer(data, gid=os.getegid()) as writer:
                put(writer, "a/b", release.encode())
                writer.discard(writer.begin("c", 1))
                part = writer.begin_part("g", 4, 0, 4)
                part.write_all(memoryview(b"good"))
                writer.finish_part(part, TIME)
                left = writer.begin("a/left", 1)
                os.close(left.fd)
            assert tree_removal.sweep_temporaries(data) == 1
            counts = modes.set_permissions(layout.staging(release), PermissionsConfig(), os.getegid())
            assert counts["changed_files"] == 1
            assert counts["changed_folders"] == 2
            again = modes.set_permissions(layout.staging(release), PermissionsConfig(), os.getegid())
            assert (again["changed_files"], again["changed_folders"]) == (0, 0)
            for name in (SEAL, MANIFEST):
                (layout.staging(release) / name).write_text("{}")
            assert stat.S_IMODE(layout.staging(release).stat().st_mode) == 0o700
            reveal.reveal(layout, release, nobody)
            reveal.point(layout, release, nobody)
            assert os.readlink(layout.current) == f"releases/{release}"
            assert (layout.current / "data/a/b").read_text() == release
            published = {
                str(p.relative_to(layout.current)): stat.S_IMODE(p.lstat().st_mode)
                for p in sorted((layout.current / ".").rglob("*"))
            }
            assert published == {
                "data": 0o2550, "data/a": 0o2550, "data/a/b": 0o440, "data/g": 0o440,
                MANIFEST: 0o440, SEAL: 0o440,
            }  # fmt: skip
        assert dataset_folders.releases(layout) == ["r1", "r2"]
        tree_removal.remove_tree(layout.release("r1"))
        assert dataset_folders.releases(layout) == ["r2"]

    def test_an_unchanged_file_is_linked(self, place: Path) -> None:
        linked, unit = links(place), grain(place)
        base, data = place / "base", place / "data"
        base.mkdir()
        data.mkdir()
        with make_writer(base) as writer:
            put(writer, "d/same", b"same")
        with make_writer(data) as writer:
            for _ in range(2):
                assert writer.link(base, "d/same", 4, TIME) == linked
                assert os.listdir(data / "d") == ["same"] * linked
            put(writer, "d/other", b"xxxx")
            assert not writer.link(base, "d/same", 5, TIME)
            assert not writer.link(base, "d/same", 4, TIME - unit)
            assert not writer.link(base, "d/none", 4, TIME)
            assert not writer.link(base, "none/none", 4, TIME)
        if linked:
            assert (data / "d/same").samefile(base / "d/same")
        with make_writer(data, file_mode=0o444) as writer:
            assert not writer.link(base, "d/same", 4, TIME)

    def test_a_time_is_compared_as_far_as_the_target_keeps_it(self, place: Path) -> None:
        linked, unit = links(place), grain(place)
        base, data = place / "base", place / "data"
        base.mkdir()
        data.mkdir()
        wanted = 1_700_000_000_123_456_789
        with make_writer(base) as writer:
            put(writer, "same", b"same")
        with make_writer(data) as writer:
            for step in (1, 100, 10**3, 10**6, 10**9):
                os.utime(base / "same", ns=(0, wanted - wanted % step))
                assert writer.link(base, "same", 4, wanted) == linked, step
            os.utime(base / "same", ns=(0, wanted - wanted % 10**9 - 10**9))
            assert not writer.link(base, "same", 4, wanted)
            os.utime(base / "same", ns=(0, wanted + unit))
            assert not writer.link(base, "same", 4, wanted)

    def test_a_late_attempt_stops(self, place: Path) -> None:
        data = place / "s" / "data"
        data.mkdir(parents=True)
        with make_writer(data) as writer:
            part = writer.begin_part("g", 8, 0, 4)
            os.chmod(data / "g", 0o440)
            with pytest.raises(FailedError, match="sealed"):
                writer.alive(part)
            writer.discard(part)
            with pytest.raises(FailedError, match=r"overtaken|sealed"):
                writer.begin_part("g", 8, 4, 4)
            os.chmod(data / "g", 0o640)
            os.rename(place / "s", place / "released")
            with pytest.raises(FailedError, match="overtaken"):
                writer.begin_part("g", 8, 4, 4)

    def test_a_dataset_is_prepared_once_and_again(self, place: Path) -> None:
        linked = links(place)
        layout = DatasetLayout(place / "root", "set")
        dataset_folders.check_root(layout.root)
        assert not layout.root.exists()
        for _ in range(2):
            dataset_folders.prepare(layout)
            dataset_folders.check_owner(layout)
            assert dataset_folders.owns(layout)
            assert stat.S_IMODE(layout.releases.stat().st_mode) == 0o755
            assert stat.S_IMODE(layout.state.stat().st_mode) == 0o700
        assert (
            dataset_folders.releases(layout),
            dataset_folders.current(layout),
            dataset_folders.leads(layout),
        ) == ([], None, False)
        report = dataset_folders.probe(layout)
        assert report["rename_over_file"].answer == "yes"
        assert links_work(report) == linked
        assert sorted(os.listdir(layout.folder)) == [".penstock", "releases"]

    def test_a_closed_staging_is_opened_again(self, place: Path) -> None:
        layout = DatasetLayout(place, "set")
        dataset_folders.prepare(layout)
        policy = PermissionsConfig()
        data = dataset_folders.open_staging(layout, "r", modes.dir_mode(policy), modes.group_id(policy))
        with make_writer(data) as writer:
            put(writer, "a/b", b"x")
        modes.set_permissions(layout.staging("r"), policy, None)
        assert stat.S_IMODE((data / "a").stat().st_mode) & 0o200 == 0
        assert stat.S_IMODE((data / "a/b").stat().st_mode) == modes.file_mode(policy)
        tree_removal.open_folders(data)
        modes.unseal(data, ["a/b", "a/none"])
        assert stat.S_IMODE((data / "a").stat().st_mode) & 0o700 == 0o700
        assert stat.S_IMODE((data / "a/b").stat().st_mode) & 0o200
        layout.staging("r").chmod(0o755)
        dataset_folders.close_staging(layout, "r")
        assert stat.S_IMODE(layout.staging("r").stat().st_mode) == 0o700

    def test_a_damaged_file_is_replaced_whole(self, place: Path) -> None:
        data, unit = place / "data", grain(place)
        data.mkdir()
        with make_writer(data) as writer:
            put(writer, "a/b", b"bad!")
        os.chmod(data / "a", 0o550)
        with Mender(data, file_mode=0o440, dir_mode=0o550, gid=None) as mender:
            mender.check("a/b")
            with pytest.raises(ObjectError, match="a folder stands"):
                mender.check("a")
            with pytest.raises(PenstockError):
                mender.replace("a/b", TIME, place / "none")
            assert (data / "a/b").read_bytes() == b"bad!"
            (place / "new").write_bytes(b"good")
            mender.replace("a/b", TIME, place / "new")
            assert not (place / "new").exists()
        seen = (data / "a/b").stat()
        assert ((data / "a/b").read_bytes(), seen.st_mtime_ns) == (b"good", TIME // unit * unit)
        assert stat.S_IMODE((data / "a").stat().st_mode) == 0o550
        assert os.listdir(data / "a") == ["b"]

    def test_small_files_are_whole(self, place: Path) -> None:
        folder = place / "deep/er"
        small_files.make_dirs(folder)
        small_files.write_json(folder / "f", {"a": 1})
        small_files.write_json(folder / "f", {"a": 2}, mode=0o640)
        assert small_files.read_json(folder / "f") == {"a": 2}
        assert stat.S_IMODE((folder / "f").stat().st_mode) == 0o640
        small_files.append_line(folder / "lines", {"n": 1})
        with (folder / "lines").open("a") as torn:
            torn.write('{"n"')
        small_files.append_line(folder / "lines", {"n": 2})
        assert (folder / "lines").read_text() == '{"n": 1}\n{"n"\n{"n": 2}\n'
        small_files.rename(folder / "f", folder / "g")
        assert sorted(os.listdir(folder)) == ["g", "lines"]
