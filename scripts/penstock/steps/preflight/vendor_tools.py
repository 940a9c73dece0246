"""What the commands of the file system's vendor say of the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.checks import told
from penstock.errors import PreflightError
from penstock.vendors import registry

if TYPE_CHECKING:
    from penstock.config.settings import DatasetConfig
    from penstock.core.layout import DatasetLayout
    from penstock.state.context import Context


def check(context: Context, config: DatasetConfig, layout: DatasetLayout, warnings: list[str]) -> list[str]:
    """What the commands of the file system's vendor say of the target; nothing where it has none. Raises
    PreflightError for what stops the run."""
    results = registry.check_target(layout.releases, gid=context.storage.group_id(config.permissions))
    warnings.extend(told(result) for result in results if result.verdict == "warning")
    stops = [result for result in results if result.verdict == "stop"]
    if stops:
        raise PreflightError(
            "the target is not in order",
            where=str(layout.root),
            why="; ".join(f"{result.about}: {result.found}" for result in stops),
            hint="; ".join(dict.fromkeys(result.mend for result in stops)),
        )
    return [f"{result.about}: {result.found}" for result in results if result.verdict in ("ok", "note")]
