"""The datasets that a command is about which shows what lies below a root (`releases`, `show`, `diff`,
`history`, `du`), or ends what works there (`cancel`). With --root it needs no configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.core.errors import ConfigError
from penstock.core.text import did_you_mean, in_quotes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.cli.session import Session
    from penstock.config.settings import TargetConfig
    from penstock.core.layout import DatasetLayout


class TargetDatasets(NamedTuple):
    """A target, and what is known of its datasets."""

    target: TargetConfig
    configured: Sequence[str] | None
    """The datasets of the configuration; None with --root."""

    @property
    def owners(self) -> Sequence[str] | None:
        """`target.owners`; None with --root: the owner of each dataset's folder counts."""
        return None if self.configured is None else self.target.owners

    def only(self, name: str | None) -> DatasetLayout:
        """The one dataset that is meant: the named one, else the only one of the configuration or, without
        that, below the root. Raises ConfigError."""
        names = [name] if name else self.configured or []
        layouts = self.layouts(names if len(names) == 1 else [])
        if len(layouts) != 1:
            known = ", ".join(layout.dataset for layout in layouts)
            raise ConfigError(
                "which dataset?", hint=f"there are: {known}" if known else "there is none at all"
            )
        return layouts[0]

    def layouts(self, names: Sequence[str]) -> list[DatasetLayout]:
        """The datasets that are meant: those named, else all that lie below the root or that the
        configuration has. Raises ConfigError for a name that neither knows."""
        from penstock.dataset.context import layout_of
        from penstock.look import places

        root, known = self.target.root, [*(self.configured or [])]
        # Readers may enter some roots that they may not list: the names of the configuration are enough.
        listed = not names or not set(names) <= set(known)
        # Where a configuration has staged nothing yet there is no root.
        if listed and (self.configured is None or root.exists()):
            known = list(dict.fromkeys([*known, *places.datasets(root)]))
        unknown = [name for name in names if name not in known]
        if unknown:
            raise not_known(unknown, known, root)
        return [layout_of(self.target, name) for name in dict.fromkeys(names or known)]


def not_known(names: Sequence[str], known: Sequence[str], root: Path) -> ConfigError:
    """The error about names that none of the datasets below a root has."""
    return ConfigError(
        f"no dataset is named {', '.join(map(in_quotes, names))}{did_you_mean(names, known)}",
        where=str(root),
        hint=f"there are: {', '.join(known)}" if known else "there is none at all",
    )


def chosen(parsed: argparse.Namespace, session: Session) -> TargetDatasets:
    """Those below --root, with the defaults of a target, else those of the configuration."""
    from penstock.cli.session import reached
    from penstock.config.settings import TargetConfig

    if parsed.root is not None:
        return TargetDatasets(reached(TargetConfig(parsed.root.absolute())), None)
    config = session.config()
    return TargetDatasets(config.target, list(config.datasets))
