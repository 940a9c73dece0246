"""Chooses the datasets of a command that shows or stops work below a root; and the dataset and release of a
command for readers (`penstock path`, `penstock gate`).
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli import output
from penstock.core.errors import ConfigError
from penstock.core.human import did_you_mean, in_quotes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.cli.session import Session
    from penstock.config.settings import TargetConfig
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.gate import Published


class TargetDatasets(NamedTuple):
    target: TargetConfig
    configured: Sequence[str] | None  # names of the configuration's datasets; None with --root

    @property
    def owners(self) -> Sequence[str] | None:
        """`target.owners`, or None with --root: then the owner of each dataset's folder counts."""
        return None if self.configured is None else self.target.owners

    def only(self, name: str | None) -> DatasetLayout:
        """Return the named dataset, or the only dataset without a name. Raises ConfigError."""
        names = [name] if name else self.configured or []
        layouts = self.layouts(names if len(names) == 1 else [])
        if len(layouts) != 1:
            choices = ", ".join(layout.dataset for layout in layouts)
            raise ConfigError(
                "which dataset?", hint=f"there are: {choices}" if choices else "there is none at all"
            )
        return layouts[0]

    def release(self, name: str | None, release: str | None) -> tuple[DatasetLayout, str | None]:
        """Return a dataset and its release. A name that no dataset has may be that of a release, or its
        beginning, if one dataset alone has such a release. Raises ConfigError."""
        from penstock.target import dataset_folders

        try:
            return self.only(name), release
        except ConfigError:
            beginning = "" if release or not name else name
            layouts = self.layouts([]) if beginning else []
            holding = [
                layout
                for layout in layouts
                if any(existing.startswith(beginning) for existing in dataset_folders.releases(layout))
            ]
            if len(holding) != 1:
                raise
            return holding[0], beginning

    def layouts(self, names: Sequence[str]) -> list[DatasetLayout]:
        """Return the named datasets, or all below the root and in the configuration. Raises ConfigError."""
        from penstock.dataset.context import layout_of
        from penstock.look import releases

        root, datasets = self.target.root, [*(self.configured or [])]
        # Readers may enter some roots but not list them, so names in the configuration are enough.
        listed = not names or not set(names) <= set(datasets)
        # The root does not exist before a configuration has staged anything.
        if listed and (self.configured is None or root.exists()):
            datasets = list(dict.fromkeys([*datasets, *releases.datasets(root)]))
        unknown = [name for name in names if name not in datasets]
        if unknown:
            raise not_known(unknown, datasets, root)
        return [layout_of(self.target, name) for name in dict.fromkeys(names or datasets)]


def not_known(names: Sequence[str], datasets: Sequence[str], root: Path) -> ConfigError:
    return ConfigError(
        f"no dataset is named {', '.join(map(in_quotes, names))}{did_you_mean(names, datasets)}",
        where=str(root),
        hint=f"there are: {', '.join(datasets)}" if datasets else "there is none at all",
    )


def chosen_datasets(parsed: argparse.Namespace, session: Session) -> TargetDatasets:
    """Return the datasets below --root with a target's defaults, or else the configuration's datasets."""
    from penstock.cli.session import reached
    from penstock.config.settings import TargetConfig

    if parsed.root is not None:
        return TargetDatasets(reached(TargetConfig(parsed.root.absolute())), None)
    config = session.config()
    return TargetDatasets(config.target, list(config.datasets))


class Reading(NamedTuple):
    target: TargetConfig
    dataset: str
    grace: float  # `gc.grace`, or its default with --root

    @property
    def layout(self) -> DatasetLayout:
        from penstock.dataset.context import layout_of

        return layout_of(self.target, self.dataset)

    def warn_of_hold(self) -> None:
        """Warn of the parts of the HOLD file (`<root>/HOLD`) that stop nobody."""
        from penstock.target import notices

        root = self.target.root
        if said := notices.warning(root):
            output.say(f"warning: {root / notices.HOLD_NAME}: {said}")

    def judged(self, release: str | None = None, within: float | None = None) -> Published:
        """Pass `release`, or the current release, through the gate. Raises the errors of `gate.passed`."""
        from penstock.dataset.gate import NothingPublishedError, passed

        try:
            return passed(self.layout, release=release, within=within, owners=self.target.owners)
        except NothingPublishedError as error:
            if self.target.contact and error.hint.startswith("ask its owner"):
                error.hint = f"ask {self.target.contact} to stage it"
            raise

    @contextlib.contextmanager
    def reported(self, session: Session) -> Iterator[dict[str, object]]:
        """Yield the document of --receipt and --json, which the caller completes, and write it at the end,
        also if there are findings. It includes the job that is staging now."""
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


def chosen_reading(parsed: argparse.Namespace, session: Session, name: str | None) -> Reading:
    """Choose a dataset, by default the only one, by the configuration or --root. Raises ConfigError."""
    if parsed.root is None:
        config = session.config()
        return Reading(config.target, session.only(config, name), config.gc.grace)
    from penstock.cli.session import reached
    from penstock.config.loader import target_at
    from penstock.config.settings import GcConfig
    from penstock.core.layout import DATASET_NAME
    from penstock.look import releases

    target = reached(target_at(parsed.root))
    # Readers may enter some roots but not list them, so an existing name is enough.
    exists = name and DATASET_NAME.fullmatch(name) and os.path.lexists(target.root / name)
    datasets = [name] if name and exists else releases.datasets(target.root)
    if name and not exists:
        raise not_known([name], datasets, target.root)
    if len(datasets) != 1:
        raise ConfigError("which dataset?", hint=f"there are: {', '.join(datasets)}" if datasets else "none")
    return Reading(target, datasets[0], GcConfig.grace)
