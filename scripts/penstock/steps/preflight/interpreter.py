"""The Python environment: whether the libraries that every element needs are there."""

from __future__ import annotations

import importlib.util
import sys

from penstock.errors import PreflightError


LIBRARIES = ("pyarrow", "xxhash", "pathspec")


def check() -> str:
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise PreflightError(
            "this Python environment lacks libraries",
            where=sys.executable,
            why=f"missing: {', '.join(missing)}",
            hint="install penstock with its dependencies into this environment",
        )
    return f"interpreter: {sys.executable} {sys.version.split()[0]}"
