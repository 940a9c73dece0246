"""Checks that the installed parts belong together: the package, Snakemake, the workflow's files.

| part                   | taken from                             | rejected if                              |
|------------------------|----------------------------------------|------------------------------------------|
| Snakemake              | the interpreter that runs penstock     | it is missing, or not `WANTED`           |
| the workflow's files   | the package, a checkout, or a copy     | their version is not the package's       |
| the package of a step  | the interpreter, started isolated      | it is not the package that Snakemake has |

Installations side by side find their own parts. But parts are mixed by a `PATH` or `PYTHONPATH` with parts of
two installations, or if an installation was changed in place.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import penstock
from penstock.core.errors import PreflightError
from penstock.host import interpreter

WANTED = "snakemake>=9.14,<10"  # the same as in pyproject.toml
FIRST, BEFORE = (9, 14), (10, 0)  # `WANTED` as numbers: from FIRST on, before BEFORE
FOLDER = Path(penstock.__file__).parent  # the package's folder


def identity() -> str:
    """Return the version, the package's folder and the interpreter."""
    return f"penstock {penstock.__version__}\n  {FOLDER}, Python {_python()}: {sys.executable}\n"


def check_snakemake() -> None:
    """Raise PreflightError unless this interpreter has a suitable Snakemake. Does not import it."""
    from importlib import metadata, util

    try:
        spec = util.find_spec("snakemake")
        version = metadata.version("snakemake") if spec is not None else ""
    except metadata.PackageNotFoundError:
        version = ""
    install = f"{sys.executable} -m pip install '{WANTED}'"
    if not version:
        raise PreflightError(
            "Snakemake is not installed beside penstock",
            where=sys.prefix,
            why=f"penstock {penstock.__version__} needs {WANTED}",
            hint=f"whoever keeps that environment installs it: {install}",
        )
    numbers = re.match(r"(\d+)(?:\.(\d+))?", version)
    if numbers is None or not FIRST <= (int(numbers[1]), int(numbers[2] or 0)) < BEFORE:
        raise PreflightError(
            f"Snakemake {version} is not one that penstock {penstock.__version__} works with",
            where=sys.prefix,
            why=f"it needs {WANTED}",
            hint=f"whoever keeps that environment installs it: {install}",
        )


def check_workflow(version: str, folder: str) -> None:
    """Check the workflow's files, which are below `folder` and have `version`. Raises PreflightError if
    Snakemake or this package does not fit, or if another package would do the workflow's steps."""
    check_snakemake()
    if version != penstock.__version__:
        raise PreflightError(
            f"the workflow is of penstock {version}, the package of penstock {penstock.__version__}",
            where=folder,
            why=f"the package is {FOLDER}, of Python {sys.executable}",
            hint="call the `snakemake` of the environment that holds the workflow's version, or `penstock "
            "run`, which has a workflow of its own",
        )
    if sys.flags.ignore_environment and sys.flags.safe_path:
        return
    code = "import penstock as p; print(p.__version__, p.__file__)"
    words = [*interpreter.isolated(), "-c", code]
    done = subprocess.run(words, capture_output=True, encoding="utf-8", errors="surrogateescape", check=False)
    other_version, _, file = done.stdout.rstrip("\n").partition(" ")
    if done.returncode == 0 and Path(file).parent.samefile(FOLDER):
        return
    why = f"its steps would be done by penstock {other_version} in {Path(file).parent}"
    if done.returncode != 0:
        why = "its steps find none without PYTHONPATH, which they do not obey"
    raise PreflightError(
        f"Snakemake has found penstock {penstock.__version__} by PYTHONPATH, or in the working directory",
        where=str(FOLDER),
        why=why,
        hint="take that away (`unset PYTHONPATH`), and call the `snakemake` of the environment that is meant",
    )


def _python() -> str:
    return ".".join(map(str, sys.version_info[:3]))
