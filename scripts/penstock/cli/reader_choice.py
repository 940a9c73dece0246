"""The dataset that a reader asks for (`penstock path`, `penstock gate`), and the release that it is given."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli import output, target_datasets
from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

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
        from penstock.dataset.gate import NothingPublishedError, passed

        try:
            return passed(self.layout, release=release, within=within, owners=self.target.owners)
        except NothingPublishedError as error:
            if self.target.contact and error.hint.startswith("ask its owner"):
                error.hint = f"ask {self.target.contact} to stage it"
            raise

    @contextlib.contextmanager
    def reported(self, session: Session) -> Iterator[dict[str, object]]:
        """The document of --receipt and --json, which the caller completes. It is written at the end, also
        with findings; it names the job that stages the dataset now, where there is one."""
        from penstock.core.errors import FindingsError
        from penstock.dataset import staging_notice

        answer: dict[str, object] = {"dataset": self.dataset, "release": "", "path": ""}
        staging = staging_notice.find(self.layout)
        if staging and staging.alive and staging.notice.job:
            answer |= {"job": staging.notice.job, "cluster": staging.notice.cluster}
        failure = None
        try:
            yield answer
        except FindingsError as error:
            failure = error
        session.receipt(answer)
        if session.parsed.json:
            output.show_json(answer)
        if failure is not None:
            raise failure


def chosen(parsed: argparse.Namespace, session: Session, name: str | None) -> Reading:
    """By the configuration, or with --root by what lies there; without a name the only one. Raises
    ConfigError for a dataset that is not known."""
    if parsed.root is None:
        config = session.config()
        return Reading(config.target, session.only(config, name), config.gc.grace)
    from penstock.cli.session import reached
    from penstock.config.loader import target_at
    from penstock.config.settings import GcConfig
    from penstock.core.layout import DATASET_NAME
    from penstock.look import places

    target = reached(target_at(parsed.root))
    # Readers may enter some roots that they may not list: a name that is there is enough.
    there = name and DATASET_NAME.fullmatch(name) and os.path.lexists(target.root / name)
    known = [name] if name and there else places.datasets(target.root)
    if name and not there:
        raise target_datasets.not_known([name], known, target.root)
    if len(known) != 1:
        raise ConfigError("which dataset?", hint=f"there are: {', '.join(known)}" if known else "none")
    return Reading(target, known[0], GcConfig.grace)
