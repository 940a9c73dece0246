"""The Python environment: whether the libraries of every element can be found, without importing them."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

from penstock.core.errors import PreflightError
from penstock.core.events import CheckResult

if TYPE_CHECKING:
    from penstock.doctor.preflight.results import Looks

LIBRARIES = ("pyarrow", "xxhash", "pathspec")


def check(looks: Looks) -> None:
    """Raise PreflightError where libraries are missing."""
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise PreflightError(
            "this Python environment lacks libraries",
            where=sys.executable,
            why=f"missing: {', '.join(missing)}",
            hint="install penstock with its dependencies into this environment",
        )
    looks.saw(CheckResult("interpreter", f"{sys.executable} {sys.version.split()[0]}"))
