"""Commands that show what lies below a root: releases, show, history. They read alone, and work for accounts
that stage nothing; with --root they need no configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import output
from penstock.core.layout import DatasetLayout
from penstock.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from penstock.cli.session import Session

FOUND, BROKEN = 0, 4
"""Exit statuses of `show`: the release is shown; its seal is missing or damaged."""


def releases(parsed: argparse.Namespace, session: Session) -> int:
    """The releases of all datasets below the root, or of those named."""
    from penstock.catalogue.releases import dataset_row
    from penstock.retention import pins
    from penstock.storage.registry import open_storage
    from penstock.views import release_text

    holders = pins.holding(open_storage())
    found = [dataset_row(layout, holders) for layout in _layouts(parsed, session, parsed.dataset)]
    session.receipt({"datasets": {one["dataset"]: one for one in found}})
    if _json(parsed):
        _lines(found)
    else:
        output.show_lines(release_text.releases(found, output.columns()))
    return 0


def show(parsed: argparse.Namespace, session: Session) -> int:
    """One release in detail. Returns BROKEN where its seal is missing or damaged."""
    from penstock.catalogue import details
    from penstock.catalogue.releases import DAMAGED
    from penstock.retention import pins
    from penstock.storage.registry import open_storage
    from penstock.views import release_text

    (layout,) = _layouts(parsed, session, [parsed.name])
    found = details.shown(layout, parsed.release, pins.holding(open_storage()))
    session.receipt(found)
    if _json(parsed):
        _lines([found])
    else:
        output.show_lines(release_text.shown(found, output.columns()))
    return BROKEN if found["row"]["state"] == DAMAGED else FOUND


def history(parsed: argparse.Namespace, session: Session) -> int:
    """What was published, repaired and moved, newest first."""
    from penstock.catalogue import past
    from penstock.views import release_text

    found = [past.history(layout) for layout in _layouts(parsed, session, [parsed.name])]
    session.receipt({"datasets": {one["dataset"]: one for one in found}})
    if _json(parsed):
        _lines([{"dataset": one["dataset"], **row["line"]} for one in found for row in one["lines"]])
    else:
        output.show_lines(release_text.history(found, None if parsed.all else parsed.limit, output.columns()))
    return 0


def _layouts(parsed: argparse.Namespace, session: Session, names: Sequence[str]) -> list[DatasetLayout]:
    """The datasets that are meant: those named, else all that lie below the root or that the configuration
    has. Raises ConfigError for a name that neither knows."""
    from penstock.catalogue import places

    if parsed.root is not None:
        root, state_root, configured = parsed.root.absolute(), None, []
    else:
        config = session.config()
        root, state_root = config.target.root, config.target.state_root
        configured = list(config.datasets)
        if not root.exists():
            # Nothing was staged by this configuration yet.
            return [DatasetLayout(root, name, state_root) for name in _known(names, configured, root)]
    known = list(dict.fromkeys([*configured, *places.datasets(root)]))
    return [DatasetLayout(root, name, state_root) for name in _known(names, known, root)]


def _known(names: Sequence[str], known: Sequence[str], root: object) -> list[str]:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(
            f"no dataset is named {', '.join(map(repr, unknown))}",
            where=str(root),
            hint=f"there are: {', '.join(known)}" if known else "there is none at all",
        )
    return list(dict.fromkeys(names)) or list(known)


def _json(parsed: argparse.Namespace) -> bool:
    return bool(parsed.json) or parsed.progress == "json"


def _lines(found: Sequence[Mapping[str, object]]) -> None:
    for one in found:
        output.show_json(one)
