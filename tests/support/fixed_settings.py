"""Settings without a key, in configurations that tests write: set by the environment, not by the file."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any, get_args

from penstock.config import settings
from penstock.config.loader import TESTED

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS: Mapping[str, tuple[type, ...]] = {
    "target": (settings.TargetConfig,),
    "cluster": (settings.ClusterConfig, settings.JobOptions),
    "list": (settings.ListConfig,),
    "plan": (settings.PlanConfig,),
    "engine": (settings.EngineConfig,),
    "verify": (settings.VerifyConfig,),
    "audit": (settings.AuditConfig,),
    "gc": (settings.GcConfig,),
    "notify": (settings.NotifyConfig,),
}
"""The sections whose settings may be without a key."""


def fixed(kind: Any) -> set[str]:
    """The fields of a dataclass of settings that have no key."""
    return {field.name for field in fields(kind) if "fixed" in get_args(field.type)}


def environment(values: Mapping[str, object]) -> dict[str, str]:
    """The environment that sets these settings, such as `{"plan.shard_files": 10}`."""
    return {TESTED: json.dumps(values)} if values else {}


def apart(document: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """A configuration without settings that have no key; and the environment that sets these."""
    kept, aside = dict(document), {}
    for section, kinds in KINDS.items():
        without = set().union(*map(fixed, kinds))
        values = dict(kept.get(section) or {})
        aside |= {f"{section}.{name}": values.pop(name) for name in without & set(values)}
        if values:
            kept[section] = values
        else:
            kept.pop(section, None)
    return kept, environment(aside)
