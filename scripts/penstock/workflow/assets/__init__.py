"""The workflow as it is installed: Snakefile, rules, profiles, environments and the example.

All of it but this module is links to the same files at the top of a checkout; a wheel holds the files
themselves.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from penstock.core.errors import PreflightError


def workflow() -> Path:
    """The folder of the Snakefile. Raises PreflightError where Snakemake cannot read it: in an archive, since
    it reads files alone, and below a name with a brace, since it takes the paths of rules for patterns."""
    folder = files(__name__)
    if not isinstance(folder, Path):
        raise PreflightError(
            "the workflow cannot be started out of an archive",
            where=str(folder),
            hint="install penstock by pip, which unpacks it",
        )
    if set("{}") & set(str(folder)):
        raise PreflightError(
            "the workflow cannot be started below a name with a brace",
            where=str(folder),
            hint="install penstock elsewhere",
        )
    return folder
