"""Parts of a selftest with interruptions: they kill a process that writes like the copy step, and fill the
folder's quota and free it again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import human
from penstock.core.layout import TEMPORARY
from penstock.core.run_steps import CheckResult
from penstock.host import interpreter, waits
from penstock.target.staging_writer import StagingWriter, prepare_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.doctor.selftest.measurements import Budget


# A part of a selftest that runs only with --fill-quota: it fills the folder's quota, and frees it again.
#
# It finds out which call reports the full quota. With a write-back cache, only a late call (fsync or close)
# reports it. Files that were synced before without an error must be whole.

ABOUT = "a quota that is full"
MIB = 1 << 20
FILE = 16 * MIB
# if this number of bytes can be written beyond the free space, the quota counts as not enforced
BEYOND = 32 * MIB
FREE_WITHIN = 30.0  # seconds within which space must be free after files were removed
FULL = {errno.EDQUOT: "EDQUOT", errno.ENOSPC: "ENOSPC"}


class WritesEnd(NamedTuple):
    """The first call that failed while a file was written, and its error; both "" if none failed."""

    call: str = ""
    error: str = ""


def filled(place: Path, free: int, budget: Budget) -> Iterator[CheckResult]:
    """Fill the quota of `place`, which has `free` bytes left, compare the synced files, and remove all files.
    Writes nothing if filling it takes more bytes than a selftest may write."""
    if free + BEYOND > budget.room:
        state = (
            f"not filled: {human.size(free)} are free, and a selftest writes {human.size(budget.room)} more"
        )
        yield CheckResult(ABOUT, state, "note", mend="name a folder with a smaller quota")
        return
    folder = place / "full"
    folder.mkdir()
    block = os.urandom(MIB)
    written, ended = 0, WritesEnd()
    whole: list[Path] = []
    try:
        while not ended.call and written < free + BEYOND:
            path = folder / f"{len(whole)}"
            size, ended = _write(path, block, budget)
            written += size
            if not ended.call:
                whole.append(path)
        wrong = [path.name for path in whole if not _same(path, block)]
    finally:
        for path in list(folder.iterdir()):
            budget.spend(1)
            path.unlink()
    yield _judged(written, free, ended, len(whole), wrong)
    if ended.call:
        yield _free_again(folder, block, budget)


def _write(path: Path, block: bytes, budget: Budget) -> tuple[int, WritesEnd]:
    """Write, sync and close a file with FILE bytes. Return its size, and the first failed call."""
    size, call, error = 0, "", ""
    budget.spend(4, files=1)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        call = "write"
        while size < FILE:
            budget.spend(1, size=MIB)
            size += os.write(fd, block[size % MIB :])
        call = "fsync"
        os.fsync(fd)
        call = ""
    except OSError as failed:
        error = _name(failed)
    finally:
        try:
            os.close(fd)
        except OSError as failed:
            call, error = call or "close", error or _name(failed)
    return size, WritesEnd(call, error)


def _name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, str(error.errno))


def _same(path: Path, block: bytes) -> bool:
    """Return whether a file contains exactly the FILE bytes that `_write` wrote."""
    with contextlib.suppress(OSError), path.open("rb", buffering=0) as stream:
        for _ in range(FILE // MIB):
            if _exactly(stream.fileno()) != block:
                return False
        return not stream.read(1)
    return False


def _exactly(fd: int) -> bytes:
    read = b""
    while len(read) < MIB and (more := os.read(fd, MIB - len(read))):
        read += more
    return read


def _judged(written: int, free: int, ended: WritesEnd, synced: int, wrong: list[str]) -> CheckResult:
    """Judge the quota:

    | files that were synced without an error | the first error              | verdict |
    |-----------------------------------------|------------------------------|---------|
    | not whole                               | any                          | stop    |
    | whole                                   | none, even beyond free space | warning |
    | whole                                   | EDQUOT or ENOSPC             | ok      |
    | whole                                   | any other error              | stop    |
    """
    if wrong:
        state = (
            f"{human.counted(len(wrong), 'file')} of {synced} that fsync took without an error are not whole"
        )
        return CheckResult(ABOUT, state, "stop", "whole", "no copy here can be believed: do not stage here")
    amount = f"after {human.size(written)}, where {human.size(free)} were free"
    if not ended.call:
        state, mend = f"no error {amount}", "the quota is not enforced: ask who set it"
        return CheckResult(ABOUT, state, "warning", "EDQUOT or ENOSPC", mend)
    state = f"{ended.error} by {ended.call} {amount}; what was synced before is whole"
    if ended.error in FULL.values():
        return CheckResult(ABOUT, state)
    return CheckResult(ABOUT, state, "stop", "EDQUOT or ENOSPC", "see the mount and its servers")


def _free_again(folder: Path, block: bytes, budget: Budget) -> CheckResult:
    """Measure how long it takes, after the files were removed, until a file can be written again."""
    about, began, tries = "room after what filled it was removed", time.monotonic(), 0
    while (seconds := time.monotonic() - began) < FREE_WITHIN:
        tries += 1
        budget.spend(20)
        _, ended = _write(folder / f"again-{tries}", block, budget)
        if not ended.call:
            return CheckResult(about, "at once" if tries == 1 else f"after {seconds:.1f} s")
    mend = "what was removed is freed later: plan for it"
    return CheckResult(about, f"none within {FREE_WITHIN:.0f} s", "warning", mend=mend)


ROUNDS = 3
MOST = 60  # number of files that a writer may write, at most; it is killed before it has written all
PIECE = 64 << 10
PIECES = 8
PACE = 0.02  # seconds between two operations of the writer, which gives 50 operations a second
STARTS_WITHIN = 60.0


def content(number: int) -> bytes:
    """Return the content of file `number`: 1 byte up to PIECES pieces."""
    made = random.Random(number)  # noqa: S311 (the same bytes each time, no secret)
    return made.randbytes(made.choice((1, 4096, PIECE, 3 * PIECE + 1, PIECES * PIECE)))


def write(data: Path) -> None:
    """Write numbered files slowly, with the writer that the copy step uses, until this process is killed."""
    prepare_process()
    with StagingWriter(
        data,
        file_mode=0o600,
        dir_mode=0o700,
        gid=None,
        durability="fsync",
        attempt="selftest",
        keep_mtime=True,
    ) as writer:
        for number in range(MOST):
            whole = memoryview(content(number))
            pending = writer.begin(f"{number:05d}", len(whole))
            while whole:
                pending.write_all(whole[:PIECE])
                whole = whole[PIECE:]
                waits.pause(PACE)
            writer.finish(pending, number)
            writer.settle()
            waits.pause(PACE * 4)


def kills(folder: Path, budget: Budget) -> Iterator[CheckResult]:
    """Start and kill ROUNDS writers one after another, each with its own folder."""
    whole = left = 0
    for number in range(ROUNDS):
        data = folder / f"killed-{number}"
        data.mkdir(0o700)
        problem = _killed(data, budget)
        if problem:
            yield CheckResult("a writer that is killed", problem, "stop", "files under their final names")
            return
        names, temporaries, wrong = _compared(data)
        whole, left = whole + names, left + temporaries
        if wrong:
            yield CheckResult(
                "a writer that is killed",
                f"{human.counted(len(wrong), 'file')} partial under a final name: {', '.join(wrong[:3])}",
                "stop",
                "none",
                "a rename shows a file before its bytes: do not stage here",
            )
            return
    yield CheckResult(
        f"a writer that is killed {ROUNDS} times",
        f"{human.counted(whole, 'file')} whole, none partial ({left} left under temporary names)",
    )


def _killed(data: Path, budget: Budget) -> str:
    """Run a writer until some files have their final names, and kill it at a random moment. Return "", or a
    text on the problem if the writer made no file in time or ended by itself."""
    budget.spend(0, size=MOST * PIECES * PIECE // 4, files=MOST)
    words = [*interpreter.command("penstock"), "selftest-writer", str(data)]
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        ends = time.monotonic() + min(STARTS_WITHIN, budget.left)
        while not _named(data):
            budget.spend(40)
            if process.poll() is not None or time.monotonic() > ends:
                return f"the writer made no file within {STARTS_WITHIN:.0f} s{_words(process)}"
        budget.spend(int(random.uniform(20, 160)))  # noqa: S311 (a random moment)
        budget.spend(1)
        if process.poll() is not None:
            return f"the writer ended by itself{_words(process)}"
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    return ""


def _words(process: subprocess.Popen[bytes]) -> str:
    """Return the last line that an ended process printed."""
    if process.poll() is None or process.stdout is None:
        return ""
    lines = process.stdout.read().decode("utf-8", "replace").strip().splitlines()
    return f": {lines[-1]}" if lines else ""


def _named(data: Path) -> list[str]:
    return sorted(name for name in os.listdir(data) if not TEMPORARY.fullmatch(name))


def _compared(data: Path) -> tuple[int, int, list[str]]:
    """Count files with final names and files with temporary names. Also return the final names of files that
    are not whole."""
    names, wrong = _named(data), []
    for name in names:
        content_read = b""
        with contextlib.suppress(OSError):
            content_read = (data / name).read_bytes()
        if not name.isdigit() or content_read != content(int(name)):
            wrong.append(name)
    return len(names), len(os.listdir(data)) - len(names), wrong
