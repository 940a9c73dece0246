"""Interpreters that have pyslurm: one with the stand-in, and one with the real pyslurm where that was built.

`tests/cluster/pyslurm.sh` builds it, in a tree of a later Debian (`make test-slurm-suite SUITE=forky`).
"""

from __future__ import annotations

import json
import platform
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKOUT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).with_name("pyslurm_stand_in")
"""Is put on the path of the interpreter with the stand-in."""


def built() -> Path:
    """Where pyslurm is, once it was built for the SLURM of this machine's distribution."""
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME", "unknown")
    return CHECKOUT / ".suites" / f"pyslurm-{suite}"


REAL = built() if (built() / "pyslurm").is_dir() else None
KINDS = ("stand-in",) if REAL is None else ("stand-in", "pyslurm")
"""What tests of pyslurm run over on this machine."""


def of_kind(kind: str, folder: Path, **faults: object) -> str:
    """An interpreter that has this kind of pyslurm, as a program in `folder`. With the real one it is the
    system's own Python, which has nothing of penstock. `faults`: of the stand-in alone."""
    if kind == "stand-in":
        given = {"PYTHONPATH": str(FOLDER), "PYSLURM_STAND_IN": json.dumps(faults)}
        return _program(folder, sys.executable, given)
    return _program(folder, "/usr/bin/python3", {"PYTHONPATH": str(REAL)})


def that_loses_answers(kind: str, folder: Path, after: str) -> str:
    """The same, but a helper that submits dies without its answer, `after` this shell command."""
    python = shlex.quote(of_kind(kind, folder))
    return _script(
        folder / "python-that-loses-answers",
        f'[ "$3" = submit ] || exec {python} "$@"\n{python} "$@" >/dev/null\n{after}\nkill -9 $$\n',
    )


def _program(folder: Path, python: str, environment: Mapping[str, str]) -> str:
    """The interpreter with these variables: penstock itself hands none on."""
    given = " ".join(shlex.quote(f"{name}={text}") for name, text in environment.items())
    return _script(folder / "python-with-pyslurm", f'exec env {given} {shlex.quote(python)} "$@"\n')


def _script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return str(path)
