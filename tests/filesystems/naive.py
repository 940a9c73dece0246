"""Programs that are right on a disk's file system, and wrong under one temper: what each temper is for.

Each returns whether it came out right (an OSError is wrong, too). `tempered` says whether what no option
switches on is to happen: a power cut, a stub, a server that is away.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import json
import mmap
import os
import shutil
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.filesystems.bed import Bed

    Program = Callable[[Bed, bool], bool]


class Naive(NamedTuple):
    """A program, the file system on which it is right, and what makes it wrong."""

    program: Program
    tempers: dict[str, object]
    always: dict[str, object]
    nodes: int
    power: bool


NAIVE: list[Naive] = []


def caught_by(
    *, nodes: int = 1, power: bool = False, always: dict[str, object] | None = None, **tempers: object
) -> Callable[[Program], Program]:
    """Put a program into the table. `always` are tempers that it has on both sides."""

    def add(program: Program) -> Program:
        NAIVE.append(Naive(program, tempers, always or {}, nodes, power))
        return program

    return add


# Names -----------------------------------------------------------------------------------------


@caught_by(folder_over_nothing=True)
def publishes_over_an_empty_folder(bed: Bed, tempered: bool) -> bool:
    root = bed.nodes[0]
    (root / "release").mkdir()
    (root / "staging").mkdir()
    (root / "staging/file").write_text("new")
    os.rename(root / "staging", root / "release")
    return (root / "release/file").read_text() == "new"


@caught_by(quota_trees=["scratch"])
def publishes_by_a_move_that_it_takes_for_one_step(bed: Bed, tempered: bool) -> bool:
    root = bed.nodes[0]
    (root / "scratch").mkdir()
    (root / "scratch/new").write_text("bytes")
    made = os.stat(root / "scratch/new").st_ino
    shutil.move(root / "scratch/new", root / "release")
    return os.stat(root / "release").st_ino == made


@caught_by(quota_trees=["scratch"])
def shares_files_between_quota_trees(bed: Bed, tempered: bool) -> bool:
    root = bed.nodes[0]
    (root / "scratch").mkdir()
    (root / "scratch/old").write_text("bytes")
    os.link(root / "scratch/old", root / "new")
    return os.stat(root / "new").st_nlink == 2


@caught_by(busy_rename="EBUSY")
def moves_a_file_that_it_still_writes(bed: Bed, tempered: bool) -> bool:
    root = bed.nodes[0]
    (root / "incoming").mkdir()
    with open(root / "incoming/file", "w") as stream:
        stream.write("bytes")
        stream.flush()
        os.rename(root / "incoming/file", root / "file")
    return (root / "file").read_text() == "bytes"


@caught_by(nodes=2, two_step_rename=0.5)
def counts_jobs_that_are_renamed_from_folder_to_folder(bed: Bed, tempered: bool) -> bool:
    here, there = bed.nodes
    for folder in ("todo", "done"):
        (here / folder).mkdir()
    (here / "todo/job").touch()
    mover = threading.Thread(target=os.rename, args=(here / "todo/job", here / "done/job"))
    mover.start()
    counts = []
    while mover.is_alive():
        # Done first: a job that moves in between is counted in neither, never in both.
        counts.append(len(os.listdir(there / "done")) + len(os.listdir(there / "todo")))
    mover.join()
    return all(count <= 1 for count in counts)


@caught_by(links="folder")
def links_between_releases(bed: Bed, tempered: bool) -> bool:
    root = bed.nodes[0]
    for folder in ("old", "new"):
        (root / folder).mkdir()
    (root / "old/file").write_text("bytes")
    os.link(root / "old/file", root / "new/file")
    return (root / "new/file").read_text() == "bytes"


@caught_by(links="none")
def creates_a_lock_by_a_link(bed: Bed, tempered: bool) -> bool:
    root = bed.nodes[0]
    (root / ".mine").write_text("me")
    os.link(root / ".mine", root / "lock")
    return (root / "lock").read_text() == "me"


@caught_by(links="symlink")
def keeps_a_file_by_a_second_name(bed: Bed, tempered: bool) -> bool:
    root = bed.nodes[0]
    (root / "one").write_text("bytes")
    os.link(root / "one", root / "two")
    os.unlink(root / "one")
    return (root / "two").read_text() == "bytes"


@caught_by(no_rename_flags=True)
def swaps_by_renameat2(bed: Bed, tempered: bool) -> bool:
    root = bed.nodes[0]
    for name in ("current", "next"):
        (root / name).write_text(name)
    old, new = os.fsencode(root / "next"), os.fsencode(root / "current")
    exchange, here = 2, -100
    ctypes.CDLL(None).renameat2(here, old, here, new, exchange)
    return (root / "current").read_text() == "next"


@caught_by(silly_rename=True)
def removes_a_folder_with_an_open_file(bed: Bed, tempered: bool) -> bool:
    root = bed.nodes[0]
    (root / "d").mkdir()
    with open(root / "d/file", "w"):
        os.unlink(root / "d/file")
        os.rmdir(root / "d")
    return not (root / "d").exists()


@caught_by(high_inodes=True)
def knows_a_file_again_by_a_number_with_a_sign(bed: Bed, tempered: bool) -> bool:
    path = bed.nodes[0] / "file"
    path.touch()
    known = ctypes.c_int64(path.stat().st_ino).value
    return path.stat().st_ino == known


# What other nodes see --------------------------------------------------------------------------


@caught_by(nodes=2, local_locks=True)
def excludes_others_by_flock(bed: Bed, tempered: bool) -> bool:
    (bed.nodes[0] / "lock").touch()
    with open(bed.nodes[0] / "lock") as mine, open(bed.nodes[1] / "lock") as theirs:
        fcntl.flock(mine, fcntl.LOCK_EX)
        try:
            fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@caught_by(nodes=2, cache="close-to-open")
def follows_progress_in_a_file_that_is_open(bed: Bed, tempered: bool) -> bool:
    with open(bed.nodes[0] / "progress", "w") as stream:
        stream.write("half\n")
        stream.flush()
        return (bed.nodes[1] / "progress").read_text() == "half\n"


@caught_by(nodes=2, cache="close-to-open", attr_seconds=60.0)
def reads_again_by_a_descriptor_that_it_keeps(bed: Bed, tempered: bool) -> bool:
    (bed.nodes[0] / "state").write_bytes(b"old!")
    with open(bed.nodes[1] / "state", "rb", buffering=0) as stream:
        assert stream.read() == b"old!"
        (bed.nodes[0] / "state").write_bytes(b"new!")
        stream.seek(0)
        return stream.read() == b"new!"


@caught_by(nodes=2, entry_seconds=1.0)
def believes_a_pointer_right_after_it_was_moved(bed: Bed, tempered: bool) -> bool:
    here, there = bed.nodes
    os.symlink("r1", here / "current")
    assert os.readlink(there / "current") == "r1"
    os.symlink("r2", here / ".next")
    os.rename(here / ".next", here / "current")
    return os.readlink(there / "current") == "r2"


@caught_by(nodes=2, absent_seconds=1.0)
def waits_for_a_mark_and_gives_up_at_once(bed: Bed, tempered: bool) -> bool:
    here, there = bed.nodes
    assert not (there / "done").exists()
    (here / "done").touch()
    return (there / "done").exists()


@caught_by(nodes=2, list_seconds=1.0)
def counts_the_files_of_a_folder_that_it_has_just_listed(bed: Bed, tempered: bool) -> bool:
    here, there = bed.nodes
    (here / "one").touch()
    assert os.listdir(there) == ["one"]
    (here / "two").touch()
    return len(os.listdir(there)) == 2


@caught_by(nodes=2, stale_handles=True)
def keeps_reading_what_another_node_removed(bed: Bed, tempered: bool) -> bool:
    (bed.nodes[0] / "file").write_text("bytes")
    with open(bed.nodes[1] / "file", "rb", buffering=0) as stream:
        os.unlink(bed.nodes[0] / "file")
        return os.fstat(stream.fileno()).st_nlink == 0


@caught_by()
def takes_a_server_for_dead_that_does_not_answer_in_time(bed: Bed, tempered: bool) -> bool:
    look = threading.Thread(target=os.stat, args=(bed.nodes[0],))
    if tempered:
        bed.order("away")
    look.start()
    look.join(0.5)
    in_time = not look.is_alive()
    bed.order("back")
    look.join()
    return in_time


# What is durable, and what an error says -------------------------------------------------------


@caught_by(power=True)
def renames_what_it_never_synced(bed: Bed, tempered: bool) -> bool:
    root = bed.nodes[0]
    (root / ".new").write_text("bytes")
    os.rename(root / ".new", root / "file")
    bed.again()
    return (root / "file").read_text() == "bytes"


@caught_by(power=True)
def overwrites_in_place(bed: Bed, tempered: bool) -> bool:
    path = bed.nodes[0] / "file"
    with path.open("wb", buffering=0) as stream:
        stream.write(b"old")
        os.fsync(stream.fileno())
    path.write_bytes(b"newer")
    bed.again()
    return path.read_bytes() == b"newer"


def _sync_folder(path: object) -> None:
    fd = os.open(str(path), os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)


@caught_by(power=True, folder_fsync_nothing=True)
def syncs_the_folder_alone(bed: Bed, tempered: bool) -> bool:
    (bed.nodes[0] / "file").write_text("bytes")
    _sync_folder(bed.nodes[0])
    bed.again()
    return (bed.nodes[0] / "file").read_text() == "bytes"


@caught_by(power=True, names_by_fsync=True)
def syncs_the_file_alone(bed: Bed, tempered: bool) -> bool:
    root = bed.nodes[0]
    with open(root / ".new", "w") as stream:
        stream.write("bytes")
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(root / ".new", root / "file")
    bed.again()
    return (root / "file").read_text() == "bytes"


@caught_by(always={"quota_bytes": 10_000}, cache="close-to-open", late_errors="fsync")
def believes_a_close_under_a_quota(bed: Bed, tempered: bool) -> bool:
    path, noticed = bed.nodes[0] / "file", False
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    for call in (lambda: os.write(fd, bytes(20_000)), lambda: os.close(fd)):
        try:
            call()
        except OSError:
            noticed = True
    return noticed or path.stat().st_size == 20_000


@caught_by(always={"quota_trees": ["own"], "quota_bytes": 1 << 20}, quota_shown=True)
def takes_another_size_for_another_file_system(bed: Bed, tempered: bool) -> bool:
    root = bed.nodes[0]
    (root / "own").mkdir()
    same = os.statvfs(root).f_blocks == os.statvfs(root / "own").f_blocks
    return same == (os.stat(root).st_dev == os.stat(root / "own").st_dev)


@caught_by(cache="close-to-open")
def ignores_the_error_of_a_close(bed: Bed, tempered: bool) -> bool:
    bed.order("fail", bytes=0, errno="EIO")
    fd = os.open(bed.nodes[0] / "file", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.write(fd, b"bytes")
    except OSError:
        return True
    finally:
        with contextlib.suppress(OSError):
            os.close(fd)
    return (bed.nodes[0] / "file").stat().st_size == 5


@caught_by(cache="close-to-open", late_errors="fsync")
def repeats_the_call_that_failed(bed: Bed, tempered: bool) -> bool:
    bed.order("fail", bytes=0, errno="EIO")
    with open(bed.nodes[0] / "file", "wb", buffering=0) as stream:
        for call in (lambda: stream.write(b"bytes"), lambda: os.fsync(stream.fileno())):
            try:
                call()
            except OSError:
                bed.order("fail", bytes=1 << 40, errno="EIO")  # the servers are well again
                call()
    return (bed.nodes[0] / "file").stat().st_size == 5


# Space, modes, times, attributes ---------------------------------------------------------------


@caught_by(statvfs_zero=True)
def refuses_where_no_inode_is_free(bed: Bed, tempered: bool) -> bool:
    return os.statvfs(bed.nodes[0]).f_favail >= 10


@caught_by(xattr_bytes=1024)
def keeps_its_record_in_an_attribute(bed: Bed, tempered: bool) -> bool:
    path = bed.nodes[0] / "file"
    path.touch()
    record = json.dumps({f"key{number}": "x" * 20 for number in range(60)}).encode()
    os.setxattr(path, "user.record", record)
    return os.getxattr(path, "user.record") == record


@caught_by(xattr_bytes=-1)
def keeps_its_digest_in_an_attribute(bed: Bed, tempered: bool) -> bool:
    path = bed.nodes[0] / "file"
    path.write_text("bytes")
    digest = hashlib.sha256(path.read_bytes()).digest()
    os.setxattr(path, "user.digest", digest)
    return os.getxattr(path, "user.digest") == digest


@caught_by(file_mask={"and": 0o700, "or": 0}, folder_mask={"and": 0o700, "or": 0})
def gives_its_group_a_file_by_the_mode_of_open(bed: Bed, tempered: bool) -> bool:
    os.mkdir(bed.nodes[0] / "d", 0o750)
    os.close(os.open(bed.nodes[0] / "d/file", os.O_WRONLY | os.O_CREAT, 0o640))
    modes = [os.stat(bed.nodes[0] / name).st_mode & 0o777 for name in ("d", "d/file")]
    return modes == [0o750, 0o640]


@caught_by(always={"group_quota": {4242: 1 << 30}}, group_quota={4242: 10})
def changes_the_group_after_the_copy(bed: Bed, tempered: bool) -> bool:
    path = bed.nodes[0] / "file"
    path.write_bytes(bytes(100))
    os.chown(path, -1, 4242)
    return path.stat().st_gid == 4242


@caught_by(round_seconds=0.1)
def sets_the_time_of_each_file_within_a_second(bed: Bed, tempered: bool) -> bool:
    began = time.monotonic()
    for number in range(12):
        path = bed.nodes[0] / str(number)
        path.touch()
        os.utime(path, ns=(0, number))
    return time.monotonic() - began < 1.0


@caught_by(no_fallocate=True)
def reserves_by_posix_fallocate(bed: Bed, tempered: bool) -> bool:
    with open(bed.nodes[0] / "file", "wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, 1 << 20)
    return not bed.asked("write")  # the C library writes into every block where the file system cannot


@caught_by(time_grain=10**9)
def copies_again_what_has_another_time(bed: Bed, tempered: bool) -> bool:
    wanted = 1_700_000_000_123_456_789
    path = bed.nodes[0] / "file"
    path.touch()
    os.utime(path, ns=(wanted, wanted))
    return path.stat().st_mtime_ns == wanted


@caught_by(stated_most=4096)
def reads_as_many_bytes_as_are_stated(bed: Bed, tempered: bool) -> bool:
    path = bed.nodes[0] / "file"
    path.write_bytes(b"x" * 7400)
    with open(path, "rb") as stream:
        return stream.read(path.stat().st_size) == b"x" * 7400


# Direct reads ----------------------------------------------------------------------------------


@caught_by(shared_handles=True)
def aligns_direct_reads_to_what_memory_takes(bed: Bed, tempered: bool) -> bool:
    path = bed.nodes[0] / "file"
    path.write_bytes(b"bytes" * 1000)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        return os.pread(fd, 1000, 3) == (b"bytes" * 1000)[3:1003]
    finally:
        os.close(fd)


@caught_by(shared_handles=True)
def reads_a_file_beside_a_scrubber(bed: Bed, tempered: bool) -> bool:
    path = bed.nodes[0] / "file"
    path.write_bytes(b"bytes" * 1000)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, 8192) as buffer:
            os.preadv(fd, [buffer], 0)
        return path.read_bytes() == b"bytes" * 1000
    finally:
        os.close(fd)


# Data that is not there ------------------------------------------------------------------------


def _audit(bed: Bed) -> bool:
    found = hashlib.sha256((bed.nodes[0] / "file").read_bytes()).hexdigest()
    return found == hashlib.sha256(b"bytes").hexdigest() and not bed.asked("restore")


@caught_by(stubs="restore")
def audits_by_reading_everything(bed: Bed, tempered: bool) -> bool:
    (bed.nodes[0] / "file").write_bytes(b"bytes")
    if tempered:
        bed.order("stub", path="file")
    return _audit(bed)


@caught_by(stubs="refuse")
def takes_every_file_for_readable(bed: Bed, tempered: bool) -> bool:
    (bed.nodes[0] / "file").write_bytes(b"bytes")
    if tempered:
        bed.order("stub", path="file")
    return _audit(bed)


def direct(path: object, size: int) -> bytes:
    """The bytes of a file, past the caches of its node."""
    with mmap.mmap(-1, -(-size // 4096) * 4096) as buffer:
        fd = os.open(str(path), os.O_RDONLY | os.O_DIRECT)
        try:
            return buffer[: os.preadv(fd, [buffer], 0)]
        finally:
            os.close(fd)
