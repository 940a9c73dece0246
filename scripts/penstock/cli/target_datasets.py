"""Chooses the datasets of commands on a root (`releases`, `show`, `diff`, `history`, `du`, `cancel`). --root
needs no configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.core.errors import ConfigError
from penstock.core.human import did_you_mean, in_quotes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.cli.session import Session
    from penstock.config.settings import TargetConfig
    from penstock.core.layout import DatasetLayout


class TargetDatasets(NamedTuple):
    target: TargetConfig
    configured: Sequence[str] | None  # datasets of the configuration; None with --root

    @property
    def owners(self) -> Sequence[str] | None:
        """`target.owners`; None with --root: the owner of each dataset's folder counts."""
        return None if self.configured is None else self.target.owners

    def only(self, name: str | None) -> DatasetLayout:
        """Return the named dataset, else the only one. Raises ConfigError."""
        names = [name] if name else self.configured or []
        layouts = self.layouts(names if len(names) == 1 else [])
        if len(layouts) != 1:
            choices = ", ".join(layout.dataset for layout in layouts)
            raise ConfigError(
                "which dataset?", hint=f"there are: {choices}" if choices else "there is none at all"
            )
        return layouts[0]

    def layouts(self, names: Sequence[str]) -> list[DatasetLayout]:
        """Return the named datasets, else all below the root and of the configuration. Raises ConfigError."""
        from penstock.dataset.context import layout_of
        from penstock.look import releases

        root, datasets = self.target.root, [*(self.configured or [])]
        # Readers may enter some roots without listing them: names of the configuration are enough.
        listed = not names or not set(names) <= set(datasets)
        # Where a configuration has staged nothing yet there is no root.
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


def chosen(parsed: argparse.Namespace, session: Session) -> TargetDatasets:
    """Take the datasets below --root with a target's defaults, else the configuration's."""
    from penstock.cli.session import reached
    from penstock.config.settings import TargetConfig

    if parsed.root is not None:
        return TargetDatasets(reached(TargetConfig(parsed.root.absolute())), None)
    config = session.config()
    return TargetDatasets(config.target, list(config.datasets))
