"""Which configuration counts: the one place that decides it, for every command.

| `--config` | `PENSTOCK_CONFIG`  | penstock.yaml | config.yaml | the configuration           |
|------------|--------------------|---------------|-------------|-----------------------------|
| given      | any                | any           | any         | that file                   |
| no         | names a file       | any           | any         | that file                   |
| no         | names none         | any           | any         | an error, by `required`     |
| no         | not set, or empty  | there         | any         | penstock.yaml               |
| no         | not set, or empty  | no            | there       | config.yaml                 |
| no         | not set, or empty  | no            | no          | none; an error, by `required` |

The two names are looked for in the working directory alone. Files are looked for, and not read.
"""

from __future__ import annotations

import os
from pathlib import Path

from penstock.core.errors import ConfigError

VARIABLE = "PENSTOCK_CONFIG"
"""Environment variable: the path of a configuration."""
NAMES = ("penstock.yaml", "config.yaml")
"""Names of a configuration in the working directory, the first that is there counts."""
SITE = Path("/etc/penstock/site.yaml")
"""The site's file (`config.site`), which is read before the configuration."""


def chosen(given: Path | None = None) -> Path | None:
    """The configuration's path by the table, whether a file is there or not; None: there is none. `given`: by
    `--config`."""
    if given is not None:
        return given
    if named := os.environ.get(VARIABLE):
        return Path(named)
    # A link that leads nowhere counts, so that it is reported.
    return next((Path(name) for name in NAMES if os.path.lexists(name)), None)


def required(given: Path | None = None) -> Path:
    """As `chosen`, for a command that needs a configuration. Raises ConfigError where there is none, and
    where `PENSTOCK_CONFIG` names no file; whether `--config` names a file shows when it is read."""
    path = chosen(given)
    if path is None:
        raise ConfigError(
            "there is no configuration file",
            where=os.getcwd(),
            why=f"--config is not given, {VARIABLE} is not set, and neither {' nor '.join(NAMES)} is there",
            hint="write one by `penstock init`, or give one by --config FILE",
        )
    if given is None and os.environ.get(VARIABLE) and not path.exists():
        raise ConfigError(
            "there is no configuration file",
            where=str(path),
            why=f"the environment variable {VARIABLE} names it",
            hint=f"correct or unset {VARIABLE}, give --config FILE, or write this one by `penstock init`",
        )
    return path


def to_write(given: Path | None = None) -> Path:
    """The path at which a new configuration counts, where nothing is there yet."""
    return given or Path(os.environ.get(VARIABLE) or NAMES[0])
