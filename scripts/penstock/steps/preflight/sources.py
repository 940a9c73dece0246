"""The sources: each is opened from this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.listing.collection import apart, open_sources, ordered
from penstock.listing.key_filter import Filter

if TYPE_CHECKING:
    from penstock.config.settings import DatasetConfig
    from penstock.core.layout import DatasetLayout
    from penstock.state.context import Context
    from penstock.steps.preflight.looks import Looks


def check(context: Context, config: DatasetConfig, layout: DatasetLayout, looks: Looks) -> list[str]:
    Filter(config.include, config.exclude)
    opened = open_sources(config, context.config.engine.timeout)
    ordered(config, opened)
    apart(layout, opened)
    checked = []
    for source in opened:
        with looks:
            source.check()
            checked.append(f"source: {source.url}")
    return checked
