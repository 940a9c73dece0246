"""The writer's fences, its modes under any umask, and what failed system calls become."""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.contracts.storage_contract import TIME, make_writer, put
from tests.support.forked import NOBODY, forked
from tests.target.conftest import need, need_root

from penstock.core.errors import FailedError, NoSpaceError, ObjectError, PenstockError, TransientError
from penstock.core.layout import TEMPORARY
from penstock.fs import safe_open
from penstock.fs.safe_open import printable, storage_error
from penstock.target.staging_writer import prepare_process


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
@pytest.mark.parametrize(("file_mode", "dir_mode"), [(0o440, 0o2550), (0o644, 0o755), (0o6777, 0o6777)])
def test_modes_are_the_policys_under_any_umask(
    folder: Path, mask: int, file_mode: int, dir_mode: int
) -> None:
    data = folder / "data"
    data.mkdir(mode=0o777)
    data.chmod(0o777)

    def child() -> None:
        os.umask(mask)
        prepare_process()
        gid = os.getegid()
        with make_writer(data, file_mode=file_mode, dir_mode=dir_mode, gid=gid) as writer:
            put(writer, "d/e/f", b"x")

    forked(child, uid=NOBODY)
    assert stat.S_IMODE((data / "d/e/f").stat().st_mode) == file_mode & 0o775
    assert stat.S_IMODE((data / "d/e").stat().st_mode) == (dir_mode & 0o2775) | 0o2700


def test_the_group_comes_from_the_folder_or_is_given(folder: Path) -> None:
    need_root()
    with make_writer(folder, gid=4242) as writer:  # the top folder has another group and no setgid bit
        put(writer, "top", b"x")
        put(writer, "d/below", b"x")
        part = writer.begin_part("giant", 1, 0, 1)
        writer.finish_part(part)
    assert {p.stat().st_gid for p in folder.rglob("*")} == {4242}
    assert stat.S_IMODE((folder / "top").stat().st_mode) == 0o440


@pytest.mark.parametrize("mask", [0, 0o077], ids=["kept", "changed"])
def test_each_file_has_its_final_mode_where_the_file_system_changes_modes(folder: Path, mask: int) -> None:
    """A umask stands for such a file system. Whole files, small and large, and files in parts."""

    def child() -> None:
        os.umask(mask)
        with make_writer(folder, file_mode=0o664) as writer:
            for number in range(3):
                writer.put(f"d/{number}", memoryview(b"x"), TIME)
            put(writer, "large", b"x" * (1 << 20))
            writer.begin_multipart("parts", ".p.0", 2)
            assert writer.finish_multipart("parts", ".p.0", 2, TIME)

    forked(child)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o664}
    assert len(files) == 5


@pytest.mark.parametrize(("gid", "looks"), [(None, 1), (os.getegid(), 2)])
def test_only_the_first_file_of_a_folder_is_looked_at(folder: Path, gid: int | None, looks: int) -> None:
    """Without a group, and an ACL, the first of all: whatever changes modes changes those of all."""
    strace, trace = need("strace"), folder / "trace"
    (folder / "data").mkdir()
    script = (
        "import os, sys; from pathlib import Path; from tests.contracts.storage_contract import make_writer\n"
        f"with make_writer(Path(sys.argv[1]), gid={gid}) as writer:\n"
        "    for number in range(40):\n"
        "        writer.put(f'{number // 20}/{number}', memoryview(b'x'), 1)\n"
    )
    subprocess.run(
        [strace, "-f", "-qq", "-y", "-o", str(trace), "-e", "trace=%%stat,fchmod,fchown,fsetxattr,fgetxattr",
         sys.executable, "-c", script, str(folder / "data")],
        check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    lines = [line for line in trace.read_text().splitlines() if re.search(r"data/\d/\.p\.", line)]
    assert len(lines) == looks, lines


def test_a_file_in_parts_gets_its_mode_right_after_its_name(folder: Path) -> None:
    """An attempt that dies between the two is followed by one that sets it. A late one stops."""
    with make_writer(folder, file_mode=0o440) as writer:
        for name in ("named", "whole"):
            writer.begin_multipart(name, f".p.{name}", 8)
        late = writer.begin_range("whole", ".p.whole", 8, 0)
        assert late is not None
        os.rename(folder / ".p.named", folder / "named")
        assert stat.S_IMODE((folder / "named").stat().st_mode) == 0o640
        for name in ("named", "whole"):
            assert writer.finish_multipart(name, f".p.{name}", 8, TIME)
            assert stat.S_IMODE((folder / name).stat().st_mode) == 0o440
        with pytest.raises(FailedError, match="sealed"):
            writer.alive(late)
        writer.discard(late)


def test_a_file_in_parts_that_has_its_name_is_opened_to_be_read_alone(folder: Path) -> None:
    """By an attempt of an account that may not write it any more, where no byte is left to be written."""
    folder.chmod(0o777)

    def child() -> None:
        with make_writer(folder, durability="fsync") as writer:
            writer.begin_multipart("big", ".p.0", 8)
            assert writer.finish_multipart("big", ".p.0", 8, TIME)
            assert writer.begin_range("big", ".p.0", 8, 4, named=True) is None
            pending = writer.begin_range("big", ".p.0", 8, 8, named=True)
            assert pending is not None
            writer.finish_part(pending, TIME)
            assert writer.finish_multipart("big", ".p.0", 8, TIME)

    forked(child, uid=NOBODY)
    assert stat.S_IMODE((folder / "big").stat().st_mode) == 0o440


def test_a_group_that_cannot_be_given_is_no_sign_of_another_attempt(folder: Path) -> None:
    """Neither by the temporary file, nor once it has its name."""
    folder.chmod(0o777)

    def child() -> list[str]:
        answers = []
        with make_writer(folder) as writer:
            writer.begin_multipart("big", ".p.0", 8)
        with make_writer(folder, gid=4242) as writer:
            for _ in range(2):
                try:
                    writer.finish_multipart("big", ".p.0", 8, TIME)
                except FailedError as error:
                    answers.append(error.what)
        return answers

    assert forked(child, uid=NOBODY) == ["cannot complete"] * 2


def test_links_in_staging_are_never_followed(folder: Path) -> None:
    outside, data = folder / "outside", folder / "data"
    outside.mkdir()
    data.mkdir()
    (outside / "canary").write_text("canary")
    (data / "d").symlink_to(outside)
    (data / "file").symlink_to(outside / "canary")
    with make_writer(data) as writer:
        with pytest.raises(FailedError, match="cannot create"):
            writer.begin("d/x", 1)
        with pytest.raises(FailedError, match="cannot create"):
            writer.begin("d/e/x", 1)
        with pytest.raises(FailedError):
            writer.begin_part("file", 6, 0, 6)
        for path in ("../x", "/x", "a//b", "./x"):
            with pytest.raises(PenstockError):
                writer.begin(path, 1)
        put(writer, "file", b"mine")
    assert (outside / "canary").read_text() == "canary"
    assert os.listdir(outside) == ["canary"]
    assert not (data / "file").is_symlink()


def test_a_giant_that_is_longer_than_planned_is_cut(folder: Path) -> None:
    (folder / "long").write_bytes(b"123456789")
    with make_writer(folder) as writer:
        pending = writer.begin_part("long", 8, 4, 4)
        pending.write_all(memoryview(b"abcd"))
        writer.finish_part(pending)
    assert (folder / "long").read_bytes() == b"1234abcd"


def test_a_hole_where_no_hole_can_be_made(folder: Path) -> None:
    """A file system without fallocate: what lies there is looked at, and only what is not zeros is
    written over."""
    strace = need("strace")
    (folder / "data").mkdir()
    with open(folder / "data/g", "wb") as file:
        file.write(b"x" * (3 << 20))
        file.truncate(9 << 20)
    script = (
        "import sys; from pathlib import Path; from tests.contracts.storage_contract import make_writer\n"
        "with make_writer(Path(sys.argv[1])) as writer:\n"
        "    pending = writer.begin_part('g', 9 << 20, 1, (9 << 20) - 2)\n"
        "    pending.skip((9 << 20) - 2)\n"
        "    writer.finish_part(pending)\n"
    )
    trace = folder / "trace"
    subprocess.run(
        [strace, "-f", "-qq", "-o", str(trace), "-e", "trace=fallocate,pwrite64",
         "-e", "inject=fallocate:error=EOPNOTSUPP", sys.executable, "-c", script, str(folder / "data")],
        check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert (folder / "data/g").read_bytes() == b"x" + bytes((9 << 20) - 1)
    assert trace.read_text().count("pwrite64(") == 3
    assert os.stat(folder / "data/g").st_blocks * 512 < 4 << 20


def test_a_giant_never_grows_into_another_file(folder: Path) -> None:
    (folder / "shared").write_bytes(bytes(8))
    os.link(folder / "shared", folder / "twin")
    (folder / "dir").mkdir()
    with make_writer(folder) as writer:
        for name in ("shared", "dir"):
            with pytest.raises(FailedError):
                writer.begin_part(name, 8, 0, 8)
        with pytest.raises(FailedError, match=f"remove {folder}/shared"):
            writer.begin_part("shared", 7, 0, 7)
        with pytest.raises(ValueError, match="part"):
            writer.begin_part("new", 8, 4, 5)
    assert (folder / "twin").stat().st_size == 8


def test_a_sealed_giant_fences_other_accounts_at_the_open(folder: Path) -> None:
    folder.chmod(0o777)

    def child() -> str:
        with make_writer(folder) as writer:
            writer.finish_part(writer.begin_part("g", 8, 0, 8))
            os.chmod(folder / "g", 0o440)
            try:
                writer.begin_part("g", 8, 0, 8)
            except FailedError as error:
                return str(error)
        return ""

    assert "overtaken" in forked(child, uid=NOBODY)


def test_a_removed_temporary_fences_its_writer(folder: Path) -> None:
    with make_writer(folder) as writer:
        pending = writer.begin("f", 1)
        assert TEMPORARY.fullmatch(pending.temporary)
        os.unlink(folder / pending.temporary)
        with pytest.raises(FailedError, match="its file was removed"):
            writer.alive(pending)
        with pytest.raises(FailedError, match="cannot complete"):
            writer.finish(pending, TIME)
    assert os.listdir(folder) == []


def test_more_folders_than_descriptors_are_kept(folder: Path) -> None:
    with make_writer(folder, durability="fsync") as writer:
        before = len(os.listdir("/proc/self/fd"))
        early = writer.begin("d0/early", 0)
        for number in range(300):
            put(writer, f"d{number}/f", b"")
        assert len(os.listdir("/proc/self/fd")) <= before + 257
        writer.finish(early, TIME)
        writer.settle()
    assert (folder / "d0/early").exists()


@pytest.mark.parametrize("walking", [False, True])
def test_a_path_longer_than_the_kernel_takes(
    folder: Path, walking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safe_open, "_openat2_works", not walking)
    path = "/".join(["d" * 200] * 25 + ["f"])
    with make_writer(folder) as writer:
        put(writer, path, b"deep")
        put(writer, path + "2", b"deep")
    root = os.open(folder, os.O_RDONLY)
    fd = safe_open.open_beneath(root, path, os.O_RDONLY)
    assert os.read(fd, 9) == b"deep"
    os.close(fd)
    os.close(root)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, NoSpaceError),
        (errno.EDQUOT, NoSpaceError),
        (errno.EIO, TransientError),
        (errno.ESTALE, TransientError),
        (errno.ENAMETOOLONG, ObjectError),
        (errno.EROFS, FailedError),
        (errno.EACCES, FailedError),
        (errno.ELOOP, FailedError),
    ],
)
def test_errors_by_their_table(number: int, kind: type[PenstockError]) -> None:
    error = storage_error(
        OSError(number, os.strerror(number)), "cannot write", "a\x1b[31m\n" + os.fsdecode(b"\xff")
    )
    assert type(error) is kind
    assert str(error).splitlines()[0].startswith("cannot write [a\\x1b[31m\\n\\xff]: ")
    assert printable("plain ünï") == "plain ünï"


def test_a_folder_that_another_made_is_made_durable_before_files_in_it_are_named(folder: Path) -> None:
    """Under fsync, by each attempt once: a dead one may have made the folder, and not come to sync it."""
    strace = need("strace")
    data = folder / "data"
    (data / "a/b").mkdir(parents=True)
    script = (
        "import sys; from pathlib import Path\n"
        "from tests.contracts.storage_contract import make_writer, put\n"
        "with make_writer(Path(sys.argv[1]), durability='fsync') as writer:\n"
        "    for name in ('a/b/1', 'a/b/2', 'c/3'):\n"
        "        put(writer, name, b'abc')\n"
        "        writer.settle()\n"
        "        Path(sys.argv[1], 'settled').mkdir(exist_ok=True)\n"
    )
    trace = folder / "trace"
    subprocess.run(
        [strace, "-f", "-qq", "-y", "-o", str(trace), "-e", "trace=fsync,mkdir", sys.executable, "-c", script,
         str(data)],
        check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    calls = re.findall(r"fsync\(\d+<([^>]*)>\)|mkdir\(.*?(settled)", trace.read_text())
    rounds: list[set[str]] = [set()]
    for synced, settled in calls:
        if settled:
            rounds.append(set())
        elif os.path.isdir(synced):
            rounds[-1].add(os.path.relpath(synced, data))
    assert rounds == [{".", "a", "a/b"}, {"a/b"}, {".", "c"}, set()]


_SCRIPT = """
import sys
from pathlib import Path
from penstock.core.errors import PenstockError
from penstock.target.staging_folder import Barrier
from penstock.target.staging_writer import StagingWriter
data = Path(sys.argv[1])
with Barrier(data) as barrier, StagingWriter(data, file_mode=0o440, dir_mode=0o2550, gid=None,
        durability=sys.argv[2], attempt="1", keep_mtime=True) as writer:
    for step in (1, 2):
        try:
            pending = writer.begin("f", 3)
            pending.write_all(memoryview(b"abc"))
            writer.finish(pending, 1)
            barrier.wait()
            print("good", end=" ")
        except PenstockError as error:
            print(type(error).__name__, sorted(p.name for p in data.iterdir()), end=" ")
"""


@pytest.mark.parametrize(
    ("inject", "durability", "expected"),
    [
        ("fsync:error=EIO:when=1", "fsync", "TransientError [] good"),
        ("fsync:error=EDQUOT:when=1", "fsync", "NoSpaceError [] good"),
        ("syncfs:error=EIO:when=1", "syncfs", "FailedError ['f'] good"),
        ("/^rename:error=ENOSPC:when=1", "syncfs", "NoSpaceError [] good"),
        ("utimensat:error=EIO:when=1", "syncfs", "TransientError [] good"),
    ],
)
def test_failing_system_calls(folder: Path, inject: str, durability: str, expected: str) -> None:
    strace = need("strace")
    calls = inject.partition(":")[0]
    done = subprocess.run(
        [strace, "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}", "-e", f"inject={inject}",
         sys.executable, "-c", _SCRIPT, str(folder), durability],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == expected, done.stderr


def test_a_name_that_another_attempt_gave_is_made_durable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been killed between the name and its journal's line."""
    with make_writer(folder, durability="fsync") as writer:
        writer.begin_multipart("deep/big", ".p.0", 8)
        os.rename(folder / "deep/.p.0", folder / "deep/big")
    synced: list[str] = []
    really = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        really(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    with make_writer(folder, durability="fsync") as writer:
        assert not writer.finish_multipart("deep/big", ".p.0", 9, 0)
        writer.settle()
        assert synced == []
        assert writer.finish_multipart("deep/big", ".p.0", 8, 0)
        writer.settle()
    assert {str(folder / "deep"), str(folder / "deep/big")} <= {*synced}
