"""What options of a command choose: the configuration (`--config`), and the scheduler (`--backend`). Loaded
by every command, so it imports little.
"""

from __future__ import annotations

import os
from pathlib import Path

from penstock.core.errors import ConfigError

# The schedulers of `cluster.backend` and `--backend`; the first is the default.

BACKENDS = ("local", "slurm")


# Chooses the configuration, for every command:
#
# | `--config` | `PENSTOCK_CONFIG`      | penstock.yaml | config.yaml | the configuration             |
# |------------|------------------------|---------------|-------------|-------------------------------|
# | given      | any                    | any           | any         | the file of `--config`        |
# | no         | names a file           | any           | any         | the file of the variable      |
# | no         | names a missing file   | any           | any         | an error from `required`      |
# | no         | not set, or empty      | exists        | any         | penstock.yaml                 |
# | no         | not set, or empty      | no            | exists      | config.yaml                   |
# | no         | not set, or empty      | no            | no          | none; error from `required`   |
#
# penstock.yaml and config.yaml are looked up in the working directory only. Files are not read here.

VARIABLE = "PENSTOCK_CONFIG"  # environment variable with the path of a configuration
NAMES = ("penstock.yaml", "config.yaml")  # names in the working directory; the first that exists counts
SITE = Path("/etc/penstock/site.yaml")  # the site's file (`config.site`), read before the configuration


def chosen(option: Path | None = None) -> Path | None:
    """Return the configuration's path according to the table, or None. The file may be missing."""
    if option is not None:
        return option
    if named := os.environ.get(VARIABLE):
        return Path(named)
    # A dangling link counts, so that it is reported.
    return next((Path(name) for name in NAMES if os.path.lexists(name)), None)


def required(option: Path | None = None) -> Path:
    """Do the same as `chosen`, but raise ConfigError if there is no configuration, or if `PENSTOCK_CONFIG`
    names a missing file. A missing file of --config is noticed when it is read."""
    path = chosen(option)
    if path is None:
        raise ConfigError(
            "there is no configuration file",
            where=os.getcwd(),
            why=f"--config is not given, {VARIABLE} is not set, and neither {' nor '.join(NAMES)} is there",
            hint="write one by `penstock init`, or give one by --config FILE",
        )
    if option is None and os.environ.get(VARIABLE) and not path.exists():
        raise ConfigError(
            "there is no configuration file",
            where=str(path),
            why=f"the environment variable {VARIABLE} names it",
            hint=f"correct or unset {VARIABLE}, give --config FILE, or write this one by `penstock init`",
        )
    return path


def to_write(option: Path | None = None) -> Path:
    """Return the path at which a new configuration will be found."""
    return option or Path(os.environ.get(VARIABLE) or NAMES[0])
