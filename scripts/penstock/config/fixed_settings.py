"""Settings that no configuration sets: fields marked `FIXED` in `config.settings`. Tests set some by an
environment variable, such as shards of ten files."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

# For tests only: a JSON object such as `{"plan.shard_files": 10}`, with values as in a configuration
# (`"64MiB"`).
TESTED = "PENSTOCK_TEST_SETTINGS"


def laid_over(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration's mapping with the variable's values. Raises ConfigError for any other
    variable."""
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
