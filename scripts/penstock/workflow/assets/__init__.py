"""The installed workflow: Snakefile, rules, profiles, environments and the example. In a checkout its files
are links to those at the top; a wheel holds the files themselves."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from penstock.core.errors import PreflightError


def workflow() -> Path:
    """Return the folder of the Snakefile. Raises PreflightError if Snakemake cannot read it: in an archive,
    or below a name with a brace, since it takes the paths of rules for patterns."""
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
