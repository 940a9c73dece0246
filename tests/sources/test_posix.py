"""Folders: policies for links, files that change under the reader, odd trees."""

from __future__ import annotations

import gc
import mmap
import os
import random
import re
import shutil
import socket
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contracts.source_contract import drain, entry_of, listing, read
from tests.filesystems.bed import Bed
from tests.support.whole_way import go, staging

from penstock.core.errors import ObjectError, PenstockError, PreflightError, SourceChangedError
from penstock.sources import posix
from penstock.sources.port import SHOWN, RefusedFiles, Remedy
from penstock.sources.posix import HardLinks, PosixSource
from penstock.sources.posix_reader import FOLDERS_KEPT, PosixReader, changed_error

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.model import Listed


def tree(root: Path) -> None:
    (root / "plain").write_bytes(b"plain")
    (root / "folder").mkdir()
    (root / "folder" / "inner").write_bytes(b"inner")


def saw(links: HardLinks, path: Path) -> None:
    seen = path.stat()
    links.saw(path.name, (seen.st_dev, seen.st_ino), seen.st_nlink, seen.st_size)


def list_all(source: PosixSource) -> dict[str, Listed]:
    return listing(source)


def test_links_are_refused_all_at_once(tmp_path: Path) -> None:
    tree(tmp_path)
    for number in range(SHOWN + 5):
        (tmp_path / f"link{number:03d}").symlink_to("plain")
    os.mkfifo(tmp_path / "a fifo")
    source = PosixSource(str(tmp_path))
    batches = iter(source.list())
    seen = [item.key for item in next(batches)]
    with pytest.raises(PreflightError) as caught:
        next(batches)
    assert seen == ["folder/inner", "plain"]
    text = str(caught.value)
    assert f"{SHOWN + 6} items" in text
    assert '"a fifo"' in text
    assert "and 6 more" in text
    assert len(text.splitlines()) < SHOWN + 6


@pytest.mark.parametrize(
    ("name", "links", "remedies"),
    [
        ("link", "refuse", {Remedy.LINK}),
        ("out", "follow", {Remedy.ASTRAY}),
        ("fifo", "refuse", {Remedy.SPECIAL}),
        ("fifo", "skip", {Remedy.SPECIAL}),
        ("", "refuse", {Remedy.LINK, Remedy.SPECIAL}),
    ],
)
def test_each_refusal_has_its_own_advice(
    tmp_path: Path, name: str, links: str, remedies: set[Remedy]
) -> None:
    (tmp_path / "link").symlink_to("plain")
    (tmp_path / "out").symlink_to("/nowhere")
    os.mkfifo(tmp_path / "fifo")
    source = PosixSource(str(tmp_path), links=links, keep=lambda key: key.startswith(name))
    with pytest.raises(PreflightError) as caught:
        list_all(source)
    assert {remedy for remedy in Remedy if remedy.value in caught.value.hint} == remedies
    assert caught.value.hint.endswith("; or leave them out by `exclude` patterns")


def test_what_this_account_may_not_read_is_not_advised_as_links_are() -> None:
    refused = RefusedFiles()
    refused.add("d/", "folder cannot be opened: Permission denied", Remedy.UNREAD)
    error = refused.error("file:///data")
    assert error.what == "1 item of the source cannot be staged"
    assert "chmod" in error.hint
    assert "links" not in error.hint


def test_what_the_patterns_leave_out_is_no_reason_to_refuse(tmp_path: Path) -> None:
    tree(tmp_path)
    for name in ("out.link", "folder/out.link", "in.link"):
        (tmp_path / name).symlink_to("plain")
    os.mkfifo(tmp_path / "out.fifo")
    asked: list[str] = []

    def keep(key: str) -> bool:
        asked.append(key)
        return "out." not in key

    source = PosixSource(str(tmp_path), keep=keep)
    with pytest.raises(PreflightError, match=r'1 item .*\n.*"in.link": symbolic link'):
        list_all(source)
    (tmp_path / "in.link").unlink()
    assert list(list_all(source)) == ["folder/inner", "plain"]
    assert source.ignored == {"links": 0, "filtered": 3}
    assert set(asked) == {"out.link", "folder/out.link", "in.link", "out.fifo"}
    following = PosixSource(str(tmp_path), links="follow", keep=keep)
    (tmp_path / "out.away").symlink_to("/etc/hostname")
    assert "out.link" in list_all(following)
    assert following.ignored == {"links": 0, "filtered": 3}


def test_links_may_be_skipped_and_are_counted(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "link").symlink_to("folder")
    source = PosixSource(str(tmp_path), links="skip")
    assert list(list_all(source)) == ["folder/inner", "plain"]
    assert source.ignored == {"links": 1}


def test_fifos_and_sockets_are_refused_by_name(tmp_path: Path) -> None:
    tree(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        folder = os.open(tmp_path, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{folder}/socket")
        os.close(folder)
        with pytest.raises(PreflightError, match=r"2 items") as caught:
            list_all(PosixSource(str(tmp_path), links="skip"))
    assert '"fifo": neither a file nor a folder' in str(caught.value)
    assert '"socket": neither a file nor a folder' in str(caught.value)


def test_hard_links_within_the_dataset_are_counted(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    tree(root)
    (tmp_path / "outside").write_bytes(b"outside")
    os.link(tmp_path / "outside", root / "alone")
    for name in ("a", "folder/b", "z"):
        os.link(root / "plain", root / name)
    os.link(root / "folder/inner", root / "inner")
    source = PosixSource(str(root), keep=lambda key: key != "z")
    assert source.hard_links == {}
    for _ in range(2):
        assert len(list_all(source)) == 7
        assert source.hard_links == {"files": 3, "of": 2, "bytes": 15}
    assert PosixSource(str(root)).hard_links == {}


def test_what_is_remembered_of_hard_links_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"1")
    (tmp_path / "two").write_bytes(b"22")
    for name in ("one", "two"):
        os.link(tmp_path / name, tmp_path / f"{name}.more")
    links = HardLinks(most=1)
    for name in ("one", "two", "one.more", "two.more"):
        saw(links, tmp_path / name)
    assert links.counts == {"files": 1, "of": 1, "bytes": 1}
    for name in ("two", "two.more"):
        saw(links, tmp_path / name)
    assert links.counts == {"files": 2, "of": 2, "bytes": 3}


def test_followed_links_stay_below_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    tree(root)
    (tmp_path / "secret").write_bytes(b"secret")
    (root / "folder" / "up").symlink_to("../plain")
    (root / "absolute").symlink_to(root / "folder" / "inner")
    source = PosixSource(str(root), links="follow")
    found = list_all(source)
    assert list(found) == ["absolute", "folder/inner", "folder/up", "plain"]
    reader = source.reader()
    assert read(reader, entry_of(found["absolute"])) == b"inner"
    assert read(reader, entry_of(found["folder/up"])) == b"plain"
    # Turned outwards after it was listed: refused, not read.
    (root / "absolute").unlink()
    (root / "absolute").symlink_to(tmp_path / "secret")
    with pytest.raises(SourceChangedError):
        read(reader, entry_of(found["absolute"]))
    reader.close()
    for name, target in (
        ("out", "../secret"),
        ("dangling", "nowhere"),
        ("folderlink", "folder"),
        ("loop", "loop"),
    ):
        (root / name).symlink_to(target)
    with pytest.raises(PreflightError) as caught:
        list_all(source)
    for name in ('"absolute"', '"out"', '"dangling"', '"folderlink"', '"loop"'):
        assert name in str(caught.value)


def test_a_fifo_in_a_files_place_does_not_hang(tmp_path: Path) -> None:
    tree(tmp_path)
    source = PosixSource(str(tmp_path))
    entry = entry_of(list_all(source)["plain"])
    (tmp_path / "plain").unlink()
    os.mkfifo(tmp_path / "plain")
    reader = source.reader()
    with pytest.raises(SourceChangedError):
        reader.open(entry, 0, entry.size)
    reader.close()


def test_a_link_in_a_folders_place_is_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    tree(root)
    source = PosixSource(str(root))
    entry = entry_of(list_all(source)["folder/inner"])
    shutil.copytree(root / "folder", tmp_path / "elsewhere")
    shutil.rmtree(root / "folder")
    (root / "folder").symlink_to(tmp_path / "elsewhere")
    reader = source.reader()
    with pytest.raises(SourceChangedError):
        reader.open(entry, 0, entry.size)
    reader.close()


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a" * 100_000)
    os.utime(path, ns=(1, 1))
    source = PosixSource(str(tmp_path))
    entry = entry_of(list_all(source)["x"])
    reader = source.reader()
    buffer = memoryview(bytearray(1000))
    body = reader.open(entry, 0, entry.size)
    body.readinto(buffer)
    with path.open("r+b") as file:
        file.write(b"b")
    while body.readinto(buffer):
        pass
    with pytest.raises(SourceChangedError, match="changed"):
        body.close()
    shrunk = entry_of(list_all(source)["x"])
    body = reader.open(shrunk, 0, shrunk.size)
    body.readinto(buffer)
    os.truncate(path, 500)
    with pytest.raises(SourceChangedError, match="shorter"):
        drain(body)
    body.abandon()
    reader.close()


def test_a_touched_file_is_another_version(tmp_path: Path) -> None:
    tree(tmp_path)
    source = PosixSource(str(tmp_path))
    before = list_all(source)["plain"].token
    os.utime(tmp_path / "plain", ns=(5, 5))
    os.utime(tmp_path / "plain", ns=(-5_000_000_000, -5_000_000_000))
    after = list_all(source)["plain"]
    assert after.token != before
    reader = source.reader()
    assert read(reader, entry_of(after)) == b"plain"
    reader.close()


def test_many_folders_few_descriptors(tmp_path: Path) -> None:
    for number in range(FOLDERS_KEPT * 2 + 9):
        folder = tmp_path / f"{number % 3}" / f"{number}"
        folder.mkdir(parents=True)
        (folder / "x").write_bytes(str(number).encode())
    source = PosixSource(str(tmp_path))
    found = list_all(source)
    reader = source.reader()
    assert isinstance(reader, PosixReader)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        for key, item in found.items():
            assert read(reader, entry_of(item)) == key.split("/")[1].encode()
    assert len(os.listdir("/proc/self/fd")) <= before + FOLDERS_KEPT + 1
    reader.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_very_deep_file(tmp_path: Path) -> None:
    """Deeper than one path may be long, and than the reader keeps folders."""
    depth = FOLDERS_KEPT + 60
    here = os.open(tmp_path, os.O_RDONLY)
    name = "d" * 40
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    with open(os.open("x", os.O_CREAT | os.O_WRONLY, dir_fd=here), "wb") as file:
        file.write(b"deep")
    os.close(here)
    source = PosixSource(str(tmp_path))
    found = list_all(source)
    assert list(found) == [f"{name}/" * depth + "x"]
    reader = source.reader()
    assert read(reader, entry_of(next(iter(found.values())))) == b"deep"
    reader.close()


@pytest.mark.parametrize("kind", ["missing", "fifo"])
def test_a_root_that_is_no_folder_and_no_file(tmp_path: Path, kind: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    source = PosixSource(str(tmp_path / kind))
    with pytest.raises(PreflightError):
        source.check()
    with pytest.raises(PreflightError):
        list_all(source)


@pytest.mark.parametrize(("links", "keys"), [("follow", ["link"]), ("skip", []), ("refuse", None)])
def test_s1_a_root_that_is_a_link_to_a_file_is_treated_as_every_link(
    tmp_path: Path, links: str, keys: list[str] | None
) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    source = PosixSource(str(tmp_path / "link"), links=links)
    source.check()
    if keys is None:
        with pytest.raises(PreflightError, match="symbolic link"):
            list_all(source)
        return
    found = list_all(source)
    assert list(found) == keys
    reader = source.reader()
    assert [read(reader, entry_of(listed)) for listed in found.values()] == [b"content"] * len(keys)
    reader.close()


def test_a_root_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    tree(tmp_path / "real")
    (tmp_path / "root").symlink_to("real")
    source = PosixSource(str(tmp_path / "root"))
    source.check()
    assert read(source.reader(), entry_of(list_all(source)["plain"])) == b"plain"


def test_what_may_not_be_read_is_told(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        # Root passes every check of modes: a name that is too long is refused to all.
        source = PosixSource(str(tmp_path))
        (tmp_path / "x").write_bytes(b"1")
        entry = entry_of(list_all(source)["x"])._replace(key="y" * 256)
        with pytest.raises(ObjectError):
            source.reader().open(entry, 0, 1)
        return
    tree(tmp_path)
    source = PosixSource(str(tmp_path))
    entry = entry_of(list_all(source)["plain"])
    (tmp_path / "plain").chmod(0)
    with pytest.raises((ObjectError, SourceChangedError)):
        source.reader().open(entry, 0, 1)
    (tmp_path / "folder").chmod(0)
    with pytest.raises(PreflightError, match="folder"):
        list_all(source)
    (tmp_path / "folder").chmod(0o700)


NAME = st.binary(min_size=1, max_size=6).filter(lambda b: not set(b) & {0, 47} and b not in (b".", b".."))


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=st.sets(st.lists(NAME, min_size=1, max_size=3).map(b"/".join), max_size=12))
def test_any_names_in_byte_order(tmp_path: Path, keys: set[bytes]) -> None:
    root = os.fsencode(tmp_path / "root")
    shutil.rmtree(root, ignore_errors=True)
    os.mkdir(root)
    made = set()
    for key in sorted(keys):
        path = root + b"/" + key
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "xb"):
                made.add(key)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue
    found = [os.fsencode(key) for key in list_all(PosixSource(os.fsdecode(root)))]
    assert found == sorted(made)


@pytest.mark.parametrize(("waits", "large"), [(-1.0, 10**6), (1e-4, 0), (-1.0, 0)])
def test_threads_and_scouts_give_the_same_answer(
    tmp_path: Path, waits: float, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.b", "a", "a-b", "a/b", "a/b/c", *(f"many/{n:03d}" for n in range(80))):
        (tmp_path / name).mkdir(parents=True)
        for number in range(3):
            (tmp_path / name / f"{number}").write_bytes(b"x" * number)
    for number in range(700):
        (tmp_path / "a" / f"file{number}").write_bytes(b"y")
    (tmp_path / "a" / "link").symlink_to("file1")
    os.link(tmp_path / "many/001/2", tmp_path / "many/070/twin")
    source = PosixSource(str(tmp_path), links="follow")
    alone = [listed for batch in source.list() for listed in batch]
    told = source.hard_links, source.ignored
    gc.collect()  # descriptors that tests before this one have left to be closed
    open_before = len(os.listdir("/proc/self/fd"))
    # With -1 every call counts as one that waits, with 0 each tree as a large one.
    monkeypatch.setattr("penstock.fs.tree.WAITS", waits)
    monkeypatch.setattr("penstock.fs.tree.LARGE", large)
    monkeypatch.setattr("penstock.fs.readahead.spare_cpus", lambda: 2)
    many = [listed for batch in source.list() for listed in batch]
    assert many == alone
    assert len(many) == 85 * 3 + 700 + 2
    assert (source.hard_links, source.ignored) == told
    assert told == ({"files": 1, "of": 1, "bytes": 2}, {"links": 0})
    assert [one.key for one in many] == sorted((one.key for one in many), key=os.fsencode)
    # One that is left in the middle closes what it had opened ahead.
    monkeypatch.setattr(posix, "BATCH", 10)
    begun = source.list()
    next(iter(begun))
    begun.close()  # type: ignore[attr-defined]
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_empty_folders_are_counted(tmp_path: Path) -> None:
    """Those that hold nothing at all, wherever the walk meets them; not those that patterns leave out."""
    for name in ("a", "b/c/d", "b/e", "full/x", "z", "left-out/y"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "full" / "file").write_bytes(b"1")
    (tmp_path / "full" / "x" / "file").write_bytes(b"1")
    (tmp_path / "zz").write_bytes(b"1")
    source = PosixSource(str(tmp_path), keep=lambda key: not key.startswith("left-out"))
    assert list(list_all(source)) == ["full/file", "full/x/file", "zz"]
    assert source.ignored["empty folders"] == 4
    (tmp_path / "a" / "file").write_bytes(b"1")
    list_all(source)
    assert source.ignored["empty folders"] == 3


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ("3000003-1704070928000000000-9-7", "3,000,000 bytes then, 3,000,003 now"),
        ("3000000-1704070988000000000-9-7", "written 202.* then, 202.* now"),
        ("3000000-1704070928000000001-9-7", "written again within a second"),
        ("3000000-1704070928000000000-10-7", "its size and time are the same, and it was replaced or .*"),
        ("another form", ""),
    ],
)
def test_a_change_is_said_in_words(found: str, why: str) -> None:
    error = changed_error("f", "3000000-1704070928000000000-9-7", found)
    assert re.fullmatch(why, error.why)


def test_a_file_that_another_reads_directly_is_read_in_whole_blocks() -> None:
    """BeeGFS refuses reads that are not aligned while a process of the node has the file open by O_DIRECT."""
    content = random.Random(1).randbytes(10_001)
    with Bed(shared_handles=True) as bed:
        path = bed.nodes[0] / "file"
        path.write_bytes(content)
        source = PosixSource(str(bed.nodes[0]))
        entry = entry_of(list_all(source)["file"])
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            with mmap.mmap(-1, 12_288) as page:
                os.preadv(fd, [page], 0)
            with pytest.raises(OSError, match="Remote I/O error"):
                path.read_bytes()
            reader = source.reader()
            assert isinstance(reader, PosixReader)
            for offset, length in ((0, 10_001), (1, 10_000), (4097, 3), (10_000, 1)):
                body = reader.open(entry, offset, length)
                assert drain(body) == content[offset : offset + length]
            buffer = memoryview(bytearray(20_001))
            whole = reader.whole(entry, buffer)
            assert whole is not None
            assert bytes(whole[0]) == content
            reader.close()
        finally:
            os.close(fd)


@pytest.mark.parametrize("stated", [0, 4096])
def test_a_file_that_is_longer_than_its_mount_states_is_refused_by_name(tmp_path: Path, stated: int) -> None:
    with Bed(stated_most=stated) as bed:
        root = bed.nodes[0]
        for name, size in (("large", 3 << 20), ("right", stated), ("small", stated + 1)):
            (root / name).write_bytes(b"x" * size)
        source = PosixSource(str(root))
        listed = list_all(source)
        reader = source.reader()
        assert read(reader, entry_of(listed["right"])) == b"x" * stated
        for name in ("large", "small"):
            entry = entry_of(listed[name])
            assert reader.whole(entry, memoryview(bytearray(1 << 20))) is None
            with pytest.raises(ObjectError, match=f"longer than .* after {stated:,} bytes"):
                read(reader, entry)
            if stated:
                assert read(reader, entry, 0, stated - 1) == b"x" * (stated - 1)
                with pytest.raises(ObjectError, match="longer than its source states"):
                    read(reader, entry, stated - 1, 1)
        reader.close()
        with staging(tmp_path, root) as context:
            with pytest.raises(PenstockError, match='"small": the object is longer'):
                go(context)
            assert not context.layout("data").current.exists()
