"""The sources: each is opened from this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.checks import CheckResult
from penstock.core.text import printable
from penstock.listing.collection import apart, open_sources, ordered
from penstock.listing.key_filter import Filter

if TYPE_CHECKING:
    from penstock.config.settings import DatasetConfig
    from penstock.core.layout import DatasetLayout
    from penstock.state.context import Context
    from penstock.steps.preflight.looks import Looks


def check(context: Context, config: DatasetConfig, layout: DatasetLayout, looks: Looks) -> None:
    """Raises ConfigError or PreflightError for sources that cannot be opened together; what is wrong with
    one of them is reported, and the others are opened."""
    Filter(config.include, config.exclude)
    opened = open_sources(config, context.config.engine.timeout)
    ordered(config, opened)
    apart(layout, opened)
    for source in opened:
        with looks.at("source"):
            source.check()
            looks.saw(CheckResult("source", printable(source.url)))
