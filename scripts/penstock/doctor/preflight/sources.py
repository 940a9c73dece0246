"""The sources: each is opened here, and reached by a request that only reads.

Inventories and lists of keys are fetched into a temporary folder, which is removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.events import CheckResult
from penstock.core.human import printable
from penstock.fs import scratch
from penstock.listing.collection import apart, folder_of, open_sources, ordered
from penstock.listing.key_list import Filter
from penstock.listing.listers import reach, stated

if TYPE_CHECKING:
    from penstock.config.settings import DatasetConfig
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.doctor.preflight.mount_answers import Answers
    from penstock.doctor.preflight.results import Looks


def check(
    context: Context, config: DatasetConfig, layout: DatasetLayout, answers: Answers, looks: Looks
) -> None:
    """Raise ConfigError or PreflightError for sources that cannot be opened together; report what is wrong
    with single ones."""
    Filter(config.include, config.exclude)
    opened = open_sources(config)
    ordered(config, opened)
    if not answers.silent(layout.root):
        apart(layout, [source for source in opened if not answers.silent(folder_of(source))])
    for source, settings in zip(opened, config.sources, strict=True):
        with looks.at("source"):
            folder = folder_of(source)
            if folder is not None:
                answers.require(folder, "the source")
            reach(settings, source, context.waiting(config.name, "preflight", source.url))
            looks.saw(CheckResult("source", printable(source.url)))
        with looks.at("listing"), scratch.folder() as folder_of_lists:
            if lister := stated(context, config, settings, source, folder_of_lists):
                looks.saw(CheckResult("listing", printable(lister.note())))
