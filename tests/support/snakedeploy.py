"""snakedeploy, by which people deploy workflows of the Snakemake workflow catalogue, in a virtual environment
of its own.

Made once, in the repository's cache, of envs/snakedeploy.lock. A machine that cannot make it is named in the
one message that skips.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.go_servers import locked_environment

LOCK = Path(__file__).resolve().parents[2] / "envs/snakedeploy.lock"


def program() -> Path:
    """The command. Raises UnavailableError."""
    # Its metadata refuse Python 3.13, on which it runs.
    return locked_environment("snakedeploy", LOCK, "--ignore-requires-python") / "bin/snakedeploy"
