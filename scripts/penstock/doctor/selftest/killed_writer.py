"""Part of a selftest: kills a process that writes as copy does; nothing partial may have a final name."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
from typing import TYPE_CHECKING

from penstock.core import human
from penstock.core.events import CheckResult
from penstock.core.key_paths import TEMPORARY
from penstock.host import interpreter, waits
from penstock.target.staging_writer import StagingWriter, prepare_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.doctor.selftest.budget import Budget

ROUNDS = 3
MOST = 60  # most files of a writer; it is killed before
PIECE = 64 << 10
PIECES = 8
PACE = 0.02  # seconds between two operations of the writer: 50 a second
STARTS_WITHIN = 60.0


def content(number: int) -> bytes:
    """Return the bytes of file `number`: from 1 byte to PIECES pieces."""
    made = random.Random(number)  # noqa: S311 (the same bytes again, no secret)
    return made.randbytes(made.choice((1, 4096, PIECE, 3 * PIECE + 1, PIECES * PIECE)))


def write(data: Path) -> None:
    """Write numbered files by the writer that copy uses, slowly, until killed."""
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
    """Start and kill ROUNDS writers, each in its own folder."""
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
    """Run a writer until some files have their names, and kill it at a random moment; return "" or what was
    wrong."""
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
        budget.spend(int(random.uniform(20, 160)))  # noqa: S311 (a moment of chance)
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
    """Count files under final and temporary names; return also the names of those that are not whole."""
    names, wrong = _named(data), []
    for name in names:
        content_read = b""
        with contextlib.suppress(OSError):
            content_read = (data / name).read_bytes()
        if not name.isdigit() or content_read != content(int(name)):
            wrong.append(name)
    return len(names), len(os.listdir(data)) - len(names), wrong
