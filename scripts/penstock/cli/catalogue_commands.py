"""Commands that show what lies below a root: releases, show, diff, history. They read alone, and work for
accounts that stage nothing; with --root they need no configuration."""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING

from penstock.cli import output
from penstock.core.layout import DatasetLayout
from penstock.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.catalogue.difference import Difference, Row
    from penstock.cli.session import Session
    from penstock.core.documents.catalogue_rows import DiffResult

FOUND, BROKEN, DIFFERENT = 0, 4, 4
"""Exit statuses: all is shown; the seal of what `show` shows is missing or damaged; `diff --exit-code` saw a
difference."""
SHOWN_ROWS = 20
"""Of each kind, where nothing else is asked for."""


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
        output.show_lines(release_text.shown(found, output.columns()), hints=True)
    return BROKEN if found["row"]["state"] == DAMAGED else FOUND


def diff(parsed: argparse.Namespace, session: Session) -> int:
    """Two releases compared, or one with its source as it is now. Returns DIFFERENT under --exit-code where
    not every file is known to be the same."""
    from penstock.catalogue import compared

    names = [parsed.release, parsed.other]
    if parsed.source and parsed.other is not None:
        raise ConfigError("--source stands for the second release", hint="name one release, or none")
    if parsed.source or names == [None, None]:
        if parsed.root is not None:
            raise ConfigError(
                "the source stands in the configuration",
                where="--root",
                hint="name two releases, or use --config instead of --root",
            )
        config = session.config()
        (name,) = session.names(config, [parsed.name])
        with session.context(config) as context:
            got = compared.with_source(context, name, parsed.release)
    else:
        (layout,) = _layouts(parsed, session, [parsed.name])
        got = compared.releases(layout, parsed.release, parsed.other)
    with got.found as found:
        _show_difference(parsed, found, got.result)
    session.receipt(got.result)
    return DIFFERENT if parsed.exit_code and not got.result["equal"] else FOUND


def _show_difference(parsed: argparse.Namespace, found: Difference, result: DiffResult) -> None:
    from penstock.catalogue.difference import LISTED
    from penstock.views import difference_text

    as_json = _json(parsed)
    limit = parsed.limit
    if limit is None and not (as_json or parsed.all):
        limit = SHOWN_ROWS
    if not as_json:
        output.show_lines(difference_text.summary(result))
    for kind in LISTED:
        rows = islice(found.rows(kind), limit)
        if as_json:
            _lines(map(_row, rows))
        else:
            output.show_lines(map(difference_text.row, rows))
        left = result["counts"][kind]["files"] - (limit or 0)
        if limit is not None and left > 0 and not as_json:
            output.show_lines([difference_text.more(kind, left)])
    if as_json:
        _lines([result])


def _row(one: Row) -> Mapping[str, object]:
    """Of a row what is known of it; names as text, whose bytes are `os.fsencode` of it."""
    told = {
        "kind": one.kind,
        "path": os.fsdecode(one.path),
        "bytes": one.bytes,
        "bytes_before": one.bytes_before,
    }
    return told if one.was is None else {**told, "was": os.fsdecode(one.was)}


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


def _lines(found: Iterable[Mapping[str, object]]) -> None:
    for one in found:
        output.show_json(one)
