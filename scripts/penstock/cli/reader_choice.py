"""The dataset that a reader asks for (`penstock path`, `penstock gate`), and the release that it is given."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli import output, target_datasets
from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session
    from penstock.config.settings import TargetConfig
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.gate import Published


class Reading(NamedTuple):
    """The dataset that a reader asks for."""

    target: TargetConfig
    dataset: str
    grace: float
    """`gc.grace`; with --root its default."""

    @property
    def layout(self) -> DatasetLayout:
        from penstock.dataset.context import layout_of

        return layout_of(self.target, self.dataset)

    def warn_of_hold(self) -> None:
        """Say what stands in `<root>/HOLD` and holds nobody."""
        from penstock.target import hold

        root = self.target.root
        if said := hold.warning(root):
            output.say(f"warning: {root / hold.NAME}: {said}")

    def judged(self, release: str | None = None, within: float | None = None) -> Published:
        """`release`, or the one that `current` names, where nothing stands against it. Raises as
        `gate.passed`."""
        from penstock.dataset.gate import passed

        return passed(self.layout, release=release, within=within, owners=self.target.owners)


def chosen(parsed: argparse.Namespace, session: Session) -> Reading:
    """By the configuration, or with --root by what lies there. Raises ConfigError for a dataset that is not
    known."""
    if parsed.root is None:
        config = session.config()
        return Reading(config.target, session.only(config, parsed.dataset), config.gc.grace)
    from penstock.cli.session import reached
    from penstock.config.loader import target_at
    from penstock.config.settings import GcConfig
    from penstock.core.layout import DATASET_NAME
    from penstock.look import places

    target, name = reached(target_at(parsed.root)), parsed.dataset
    # Readers may enter some roots that they may not list: a name that is there is enough.
    there = name and DATASET_NAME.fullmatch(name) and os.path.lexists(target.root / name)
    known = [name] if there else places.datasets(target.root)
    if name and not there:
        raise target_datasets.not_known([name], known, target.root)
    if len(known) != 1:
        raise ConfigError("which dataset?", hint=f"there are: {', '.join(known)}" if known else "none")
    return Reading(target, known[0], GcConfig.grace)
