"""A loaded configuration as JSON and back: what a step on a node is handed.

Everything that depends on the working directory or on a profile has been resolved by then, so a
node reads exactly what the controller read. It holds references to secrets, never secrets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.config.settings import (
    Config,
    cluster_config,
    dataset_config,
    engine_config,
    plan_config,
    target_config,
    to_json,
    verify_config,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


def freeze(config: Config) -> dict[str, Any]:
    """`thaw` is the inverse."""
    return to_json(config)


def thaw(raw: Mapping[str, Any]) -> Config:
    """Raises KeyError, TypeError or ValueError for anything that `freeze` did not make."""
    return Config(
        target=target_config(raw["target"]),
        datasets={name: dataset_config(value) for name, value in raw["datasets"].items()},
        cluster=cluster_config(raw["cluster"]),
        plan=plan_config(raw["plan"]),
        engine=engine_config(raw["engine"]),
        verify=verify_config(raw["verify"]),
    )
