"""Trials of files' bytes: durability, direct reads, reservations, holes.

`trials.probe` calls each function by the name of its ability (`core.run_documents`), in its own
empty folder. An OSError counts as an answer (`trials.seen_error`).
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from typing import TYPE_CHECKING

from penstock.core.run_documents import TrialOutcome
from penstock.fs import libc
from penstock.fs.probe.place import answered, valued, write_whole

if TYPE_CHECKING:
    from penstock.fs.probe.place import TrialFolders

RESERVED = 1 << 20
DIRECT = 64 << 10
ALIGNMENTS = (1, 512, 4096, DIRECT)
SYNCFS_WITHIN = 0.2  # seconds; syncfs waits for whatever all users of the file system wrote


def fsync_file(place: TrialFolders) -> TrialOutcome:
    with place.file("file", b"x").open("rb") as stream:
        os.fsync(stream.fileno())
    return answered(True)


def fsync_folder(place: TrialFolders) -> TrialOutcome:
    """Try to sync a folder. A success may mean that nothing was done: BeeGFS's servers have the names
    already."""
    place.file("file")
    fd = os.open(place.work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    return answered(True)


def syncfs(place: TrialFolders) -> TrialOutcome:
    """Try whether the call succeeds. Whether it makes data durable cannot be tried: the table of file systems
    states that."""
    place.file("file", b"x")
    fd = os.open(place.work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    failed: list[OSError] = []

    def call() -> None:
        try:
            libc.syncfs(fd)
        except OSError as error:
            failed.append(error)
        finally:
            os.close(fd)

    caller = threading.Thread(target=call, name="syncfs", daemon=True)
    caller.start()
    caller.join(SYNCFS_WITHIN)
    if caller.is_alive():
        return TrialOutcome(why=f"it had not returned after {SYNCFS_WITHIN:g} s: others write, too")
    if failed:
        raise failed[0]
    return answered(True)


def direct_alignment(place: TrialFolders) -> TrialOutcome:
    """Return the smallest of `ALIGNMENTS` with which a direct read returns the file's bytes.

    | a read fails                         | with                                  | then              |
    |--------------------------------------|---------------------------------------|-------------------|
    | at a smaller alignment               | any errno: EINVAL of the kernel,      | the next larger   |
    |                                      | EREMOTEIO of BeeGFS' servers          | is tried          |
    | at the largest, which aligns offset, | any errno                             | it is the outcome |
    | length and memory to everything      |                                       |                   |
    """
    content = os.urandom(DIRECT)
    path = place.file("file", content)
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    buffer = mmap.mmap(-1, 2 * DIRECT)
    view = memoryview(buffer)
    try:
        for step in ALIGNMENTS:
            # Offset, length and place in memory: each a multiple of `step`, and of nothing larger.
            offset = step if step < DIRECT else 0
            target = view[step : 2 * step] if step < DIRECT else view[:step]
            try:
                count = os.preadv(fd, [target], offset)
            except OSError:
                if step == ALIGNMENTS[-1]:
                    raise
                continue
            finally:
                got = bytes(target)
                target.release()
            if got[:count] != content[offset : offset + count] or count != step:
                return answered(False, f"a read of {step} bytes brought others than were written")
            return valued(step)
        raise AssertionError("the last try returns or raises")
    finally:
        view.release()
        buffer.close()
        os.close(fd)


def fallocate(place: TrialFolders) -> TrialOutcome:
    with place.file("file").open("r+b") as stream:
        libc.fallocate(stream.fileno(), RESERVED)
        status = os.fstat(stream.fileno())
    if status.st_size != RESERVED:
        return answered(False, f"it succeeded, and the file has {status.st_size} bytes")
    taken = status.st_blocks * 512
    return answered(taken >= RESERVED, f"it succeeded, and {taken} of {RESERVED} bytes are reserved")


def reflink(place: TrialFolders) -> TrialOutcome:
    """Try a reflink between two folders, as from a release to the next."""
    old, new = place.file("file", b"x" * DIRECT), place.folder("to") / "file"
    with old.open("rb") as first, new.open("xb") as second:
        libc.reflink(second.fileno(), first.fileno())
    if old.stat().st_ino == new.stat().st_ino:
        return answered(False, "the two files are one inode")
    return answered(new.read_bytes() == b"x" * DIRECT, "the content is another one")


def tmpfile(place: TrialFolders) -> TrialOutcome:
    fd = os.open(place.work, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    named = place.work / "named"
    try:
        write_whole(fd, b"x")
        # A source relative to a folder: else Python calls link(2), which does not follow /proc's link.
        root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.link(f"{place.proc}/self/fd/{fd}", named, src_dir_fd=root, follow_symlinks=True)
        finally:
            os.close(root)
    finally:
        os.close(fd)
    return answered(named.read_bytes() == b"x", "the named file has other content")


def holes(place: TrialFolders) -> TrialOutcome:
    """Try holes in a file of 1 MiB with a block of data in its middle, on the disk."""
    fd = _holed(place)
    try:
        os.fsync(fd)
        taken = os.fstat(fd).st_blocks * 512
        if taken >= RESERVED:
            return answered(False, f"the file takes {taken} bytes")
        first = os.lseek(fd, 0, os.SEEK_DATA)
        return answered(0 < first <= RESERVED // 2, f"its data are said to begin at byte {first}")
    finally:
        os.close(fd)


def holes_before_writeback(place: TrialFolders) -> TrialOutcome:
    """Try the same before write-back. If written bytes were reported as a hole, a copy would leave them
    out."""
    fd = _holed(place)
    try:
        first = os.lseek(fd, RESERVED // 2, os.SEEK_DATA)
        return answered(first == RESERVED // 2, f"the bytes written are said to begin at {first}")
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return answered(False, "the bytes written are said to be a hole")
    finally:
        os.close(fd)


def _holed(place: TrialFolders) -> int:
    fd = os.open(place.work / "file", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, RESERVED)
        write_whole(fd, b"x" * 4096, RESERVED // 2)
    except BaseException:
        os.close(fd)
        raise
    return fd
