"""The part of a run's identity that the configuration decides; list makes the run's id of it and of the
listing's digest.

A run is the same wherever it runs from and however it is copied: `target`, `cluster` and `engine` never
decide. For other keys `config.settings` declares it:

| annotated with | part of the identity |
|----------------|----------------------|
| `DECIDES`      | always               |
| `APART`        | never                |
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, get_args

from penstock.config.serialization import plain
from penstock.config.settings import DECIDES

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from penstock.config.settings import Config, DatasetConfig


def deciding(config: Config, dataset: DatasetConfig) -> dict[str, object]:
    """Return the keys that decide, as JSON: the dataset's and those of `plan` and `verify`."""
    return {**_deciding(dataset), **_deciding(config.plan), **_deciding(config.verify)}


def _deciding(section: DataclassInstance) -> dict[str, object]:
    values: dict[str, object] = {}
    for field in fields(section):
        if DECIDES in get_args(field.type):
            value = getattr(section, field.name)
            several = is_dataclass(value) and not isinstance(value, type)
            values[field.name] = _deciding(value) if several else plain(value)
    return values
