"""Converts plain mappings to typed settings and back. It is used for the YAML file, for the configuration
that a run freezes as JSON, and for the keys that decide a run's identity. Pure.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

from penstock.config.annotations import Unit
from penstock.config.settings import (
    DECIDES,
    AuditConfig,
    DatasetConfig,
    EngineConfig,
    PlanConfig,
    VerifyConfig,
)
from penstock.core.errors import STATE_ANEW, FailedError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from penstock.config.settings import Config


# Conversion of plain mappings to typed settings and back, for the YAML file and a run's frozen JSON.
#
# A dataclass's annotations determine how each field is read. Settings contain references to secrets, but no
# secrets. Values that depend on the working directory are resolved before settings are written.

T = TypeVar("T")

# Readers of values, by the name in a field's annotation, such as `Annotated[Path, "folder"]` or
# `Annotated[int, Unit("size")]`. They are not called for `null`, which becomes None.
Readers = Mapping[str, Callable[[Any], object]]


def to_json(value: DataclassInstance) -> dict[str, object]:
    """Return settings in a form for JSON; `from_json` is the inverse."""
    return {name: plain(inner) for name, inner in asdict(value).items()}


def plain(value: object) -> object:
    """Return a setting's value in a form for JSON."""
    if isinstance(value, Path):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return to_json(value)
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value


def from_json(kind: type[T], raw: object) -> T:
    """Read settings that `to_json` made, perhaps in another version. Missing fields get their defaults, and
    unknown fields are ignored. Raises TypeError or ValueError."""
    return read(kind, raw, {})


def read(kind: type[T], raw: object, readers: Readers) -> T:
    """Make the dataclass `kind` from a mapping, with the readers that its annotations name. Raises the errors
    of the readers and of `from_json`."""
    if not isinstance(raw, Mapping):
        raise TypeError(f"{kind.__name__} is made of a mapping, not of {raw}")
    declared = fields(kind)  # type: ignore[arg-type]
    return kind(**{f.name: _value(f.type, raw[f.name], readers) for f in declared if f.name in raw})


def _value(kind: Any, value: Any, readers: Readers) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        for mark in kind.__metadata__:
            name = mark.name if isinstance(mark, Unit) else mark
            value = readers[name](value) if name in readers and value is not None else value
        return _value(inner[0], value, readers)
    if origin in (Union, types.UnionType):
        return None if value is None else _value(inner[0], value, readers)
    if origin is tuple:
        return tuple(_value(inner[0], item, readers) for item in value)
    if origin is Mapping:
        return {name: _value(inner[1], item, readers) for name, item in value.items()}
    if isinstance(kind, type) and is_dataclass(kind):
        return read(kind, value, readers)
    return kind(value) if kind in (Path, float) else value


# The part of a run's identity that the configuration decides. The list step makes the run's id from it and
# from the listing's digest.
#
# The machine and the way of copying do not change a run's identity, so `target`, `cluster` and `engine` are
# no part of it. For other keys, `config.settings` declares whether they are part of it:
#
# | annotated with | part of the identity |
# |----------------|----------------------|
# | `DECIDES`      | always               |
# | `APART`        | never                |


def deciding(config: Config, dataset: DatasetConfig) -> dict[str, object]:
    """Return the keys that decide a run's identity, as JSON: those of the dataset, `plan` and `verify`."""
    return {**_deciding(dataset), **_deciding(config.plan), **_deciding(config.verify)}


def _deciding(section: DataclassInstance) -> dict[str, object]:
    values: dict[str, object] = {}
    for field in fields(section):
        if DECIDES in get_args(field.type):
            value = getattr(section, field.name)
            several = is_dataclass(value) and not isinstance(value, type)
            values[field.name] = _deciding(value) if several else plain(value)
    return values


# The configuration that a run freezes in `run.json` when it is listed. The run's steps obey it, even if the
# file changes later.

Section = TypeVar("Section")


def freeze(config: Config, dataset: DatasetConfig) -> Mapping[str, object]:
    """Return the configuration of a run of this dataset, as JSON for `RunConfig`."""
    return {
        "dataset": to_json(dataset),
        "plan": to_json(config.plan),
        "engine": to_json(config.engine),
        "verify": to_json(config.verify),
        "audit": to_json(config.audit),
        "filesystem": config.target.filesystem,
    }


class RunConfig:
    """A configuration that `freeze` made, perhaps in another version. Settings that it lacks get their
    defaults, and unknown settings are ignored. Each part is converted when it is first read, since an audit
    freezes only the part for the engine. Reading a part that is missing or damaged raises FailedError."""

    def __init__(self, raw: Mapping[str, object], where: object) -> None:
        self._raw, self._where = raw, where

    @cached_property
    def dataset(self) -> DatasetConfig:
        return self._section("dataset", DatasetConfig)

    @cached_property
    def plan(self) -> PlanConfig:
        return self._section("plan", PlanConfig)

    @cached_property
    def engine(self) -> EngineConfig:
        return self._section("engine", EngineConfig)

    @cached_property
    def verify(self) -> VerifyConfig:
        return self._section("verify", VerifyConfig)

    @cached_property
    def audit(self) -> AuditConfig:
        return self._section("audit", AuditConfig) if "audit" in self._raw else AuditConfig()

    @property
    def filesystem(self) -> str:
        """`target.filesystem`."""
        return str(self._raw.get("filesystem", "auto"))

    def _section(self, name: str, kind: type[Section]) -> Section:
        try:
            return from_json(kind, self._raw[name])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FailedError(
                "a run's description is damaged",
                where=str(self._where),
                why=f"its configuration has no {name} that can be read: {error}",
                hint=STATE_ANEW,
            ) from error
