"""Decides which configurations may name files to write and programs to run. Whoever can write a configuration
acts as the account that reads it.

| accounts other than this account and root may write  | a key that is marked   | a command that          |
| the configuration, or replace its file               | WRITES or RUNS         | stages nothing          |
|------------------------------------------------------|------------------------|-------------------------|
| no                                                   | counts                 | obeys it                |
| yes                                                  | is rejected            | ignores the key         |
| yes, and the site's file lists the program           | counts                 | obeys it                |
| (`notify.programs`), or it is the running interpreter|                        |                         |

"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.config import loader, site
from penstock.config.annotations import keys_of
from penstock.config.settings import ClusterConfig, Config
from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

# Keys that every command for data obeys from its start. `notify.command` and `metrics` are obeyed only at a
# command's end.
ELEMENTS = ("cluster.python", "cluster.pyslurm_python")


def refuse(config: Config, file: Path, keys: Container[str] | None = None) -> None:
    """Raise ConfigError for the first of `keys` (None: of all) whose value does not count (see the table)."""
    for key, value in _given(config, Config):
        if keys is None or key in keys:
            _refuse(key, value, file)


def bounded(config: Config, file: Path, *, staging: bool) -> Config:
    """Leave out values that do not count (see the table). Raises ConfigError for a command that stages."""
    try:
        refuse(config, file, ELEMENTS)
    except ConfigError:
        if staging:
            raise
        plain = ClusterConfig()
        cluster = replace(config.cluster, python=plain.python, pyslurm_python=plain.pyslurm_python)
        return replace(config, cluster=cluster)
    return config


def _given(settings: object, kind: type, where: str = "") -> Iterator[tuple[str, object]]:
    """Yield each marked key that has a value, with this value."""
    for name, key in keys_of(kind).items():
        value = getattr(settings, name, None)
        if key.touches and value:
            yield where + name, value
        elif key.below is not None:
            yield from _given(value, key.below, f"{where}{name}.")
        elif key.each is not None and key.each.below is not None:
            for inner in value.values() if isinstance(value, Mapping) else value or ():
                yield from _given(inner, key.each.below, f"{where}{name}.")


def _refuse(key: str, value: object, file: Path) -> None:
    word = str(value[0] if isinstance(value, tuple) else value)
    notify = key == "notify.command"
    if word == sys.executable or (notify and word in loader.site_bounds().notify.programs):
        return
    real = os.path.realpath(file)
    for place in dict.fromkeys((real, os.path.dirname(real), os.path.dirname(os.path.abspath(file)))):
        status = os.stat(place)
        # In a sticky folder nobody else can replace the file.
        written = status.st_mode & site.OTHERS and not (place != real and status.st_mode & stat.S_ISVTX)
        own = status.st_uid in (os.geteuid(), 0)
        if written or not own:
            mend = f"`chmod go-w {place}`" if own else "give a copy that is this account's own by --config"
            raise ConfigError(
                f"{key} is refused: others than this account may write the configuration",
                where=str(file),
                why=f"{place} belongs to uid {status.st_uid}, with mode {stat.S_IMODE(status.st_mode):04o}",
                hint=f"{mend}, or {site.FILE} lists {word} under `notify.programs`" if notify else mend,
            )
