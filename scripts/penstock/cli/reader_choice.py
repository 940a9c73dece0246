"""The dataset that a reader asks for (`penstock path`, `penstock gate`), and the release to read."""

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
    target: TargetConfig
    dataset: str
    grace: float  # `gc.grace`; with --root its default

    @property
    def layout(self) -> DatasetLayout:
        from penstock.dataset.context import layout_of

        return layout_of(self.target, self.dataset)

    def warn_of_hold(self) -> None:
        """Warn of what is in `<root>/HOLD` and holds nobody."""
        from penstock.target import root_files

        root = self.target.root
        if said := root_files.warning(root):
            output.say(f"warning: {root / root_files.HOLD_NAME}: {said}")

    def judged(self, release: str | None = None, within: float | None = None) -> Published:
        """Pass `release`, or the current one, through the gate. Raises as `gate.passed`."""
        from penstock.dataset.gate import NothingPublishedError, passed

        try:
            return passed(self.layout, release=release, within=within, owners=self.target.owners)
        except NothingPublishedError as error:
            if self.target.contact and error.hint.startswith("ask its owner"):
                error.hint = f"ask {self.target.contact} to stage it"
            raise

    @contextlib.contextmanager
    def reported(self, session: Session) -> Iterator[dict[str, object]]:
        """Yield the document of --receipt and --json to complete; write it at the end, also with findings. It
        names the job that stages now."""
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
    """Choose by the configuration or --root; without a name, the only dataset. Raises ConfigError."""
    if parsed.root is None:
        config = session.config()
        return Reading(config.target, session.only(config, name), config.gc.grace)
    from penstock.cli.session import reached
    from penstock.config.loader import target_at
    from penstock.config.settings import GcConfig
    from penstock.core.layout import DATASET_NAME
    from penstock.look import releases

    target = reached(target_at(parsed.root))
    # Readers may enter some roots without listing them: an existing name is enough.
    exists = name and DATASET_NAME.fullmatch(name) and os.path.lexists(target.root / name)
    datasets = [name] if name and exists else releases.datasets(target.root)
    if name and not exists:
        raise target_datasets.not_known([name], datasets, target.root)
    if len(datasets) != 1:
        raise ConfigError("which dataset?", hint=f"there are: {', '.join(datasets)}" if datasets else "none")
    return Reading(target, datasets[0], GcConfig.grace)
