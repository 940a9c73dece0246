"""The built command, run as a person or Snakemake would."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 240.0
"""Seconds that anything may take on a loaded machine."""

MARK = "TEST_SESSION"
_marks: dict[int, str] = {}

SNAKEMAKE = (
    sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"),
    "--workflow-profile", str(ROOT / "profiles/default"),
)  # fmt: skip


def penstock(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return run(sys.executable, "-m", "penstock", *words, cwd=cwd)


def parsers(built: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parser, and those of its commands, by the words that lead to each; with all of their arguments."""
    from penstock.cli import argument_parser

    argument_parser.actions(built)
    found = {built.prog: built}
    for child in argument_parser.children(built).values():
        found |= parsers(child)
    return found


def snakemake(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run(*SNAKEMAKE, *words, cwd=cwd)


def run(
    *command: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it to its end, with these variables beside this process's."""
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        timeout=PATIENCE,
        check=False,
    )


@contextlib.contextmanager
def started(
    *command: str, cwd: Path, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A process in a session of its own, with these variables beside this process's; whatever is left of the
    session is killed at the end."""
    mark = secrets.token_hex(8)
    process = subprocess.Popen(
        command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="backslashreplace", start_new_session=True,
        env={**os.environ, **(env or {}), MARK: mark},
    )  # fmt: skip
    _marks[process.pid] = mark
    try:
        yield process
    finally:
        kill_session(process.pid)
        if process.stdout is not None:
            process.stdout.close()
        process.wait()


def kill_session(session: int) -> None:
    """kill -9 of everything that descends from a session's leader, again until none is left."""
    until(lambda: not _kill_once(session), "the session's processes to end")


def _kill_once(session: int) -> bool:
    found = False
    for pid in session_members(session):
        found = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def session_members(session: int) -> list[int]:
    """Live processes of a session that `started` began (zombies left out). The number of a session
    that has ended may pass to another's: the mark in the environment tells them apart."""
    found = []
    mark = f"{MARK}={_marks[session]}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                # The first thread of a process that is killed may end before the others, which hold its open
                # files; and memory, environment and all, is given back before files are closed.
                ended = fields[0] in "ZX" and int(fields[17]) <= 1
                mine = int(fields[3]) == session and not ended
                if mine and (not (text := (entry / "environ").read_bytes()) or mark in text.split(b"\0")):
                    found.append(int(entry.name))
    return found


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition; fails loudly when it never holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE:.0f} s for {what}")
        time.sleep(0.02)
