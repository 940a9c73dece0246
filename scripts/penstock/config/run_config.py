"""The configuration that a run froze when it was listed, in `run.json`. Its steps obey it, whatever the file
says later."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from penstock.config.serialization import from_json, to_json
from penstock.config.settings import (
    AuditConfig,
    DatasetConfig,
    EngineConfig,
    PlanConfig,
    VerifyConfig,
)
from penstock.core.errors import STATE_ANEW, FailedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.config.settings import Config

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
    """What `freeze` made, perhaps in another version: newer settings have defaults, unknown ones are ignored.
    Each part is converted when it is first read, since an audit freezes only the engine's. Raises FailedError
    then for a missing or damaged part."""

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
