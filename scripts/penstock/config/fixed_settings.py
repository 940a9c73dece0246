"""Settings that no configuration sets: fields of `config.settings` that are marked `Fixed`. Tests need other
values of some of them, such as shards of ten files, and set these by an environment variable. Reads that
variable alone; the loader calls it for each configuration."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

TESTED = "PENSTOCK_TEST_SETTINGS"
"""Environment variable, for tests alone: a JSON object such as `{"plan.shard_files": 10}`, whose values are
written as a configuration's would be (`"64MiB"`, `"0.2s"`)."""


def laid_over(values: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration's mapping with what the variable sets; the mapping itself stays as it is. Raises
    ConfigError for a variable that holds anything else."""
    made = dict(values)
    for key, value in _tested().items():
        *sections, name = key.split(".")
        inner = made
        for section in sections:
            inner[section] = dict(inner.get(section) or {})
            inner = inner[section]
        inner[name] = value
    return made


def _tested() -> dict[str, Any]:
    text = os.environ.get(TESTED)
    if not text:
        return {}
    try:
        values = json.loads(text)
    except ValueError as error:
        raise _unusable(str(error)) from None
    if not isinstance(values, dict):
        raise _unusable("it is no object of keys and values")
    return values


def _unusable(why: str) -> ConfigError:
    return ConfigError(
        f"the environment variable {TESTED} cannot be used",
        why=why,
        hint="it is for penstock's own tests: unset it",
    )
