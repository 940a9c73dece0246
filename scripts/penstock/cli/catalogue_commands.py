"""Commands that show what lies below a root: releases, show, diff, history, du. They read alone, and work for
accounts that stage nothing; with --root they need no configuration."""

from __future__ import annotations

import contextlib
import os
from itertools import islice
from typing import TYPE_CHECKING

from penstock.cli import output
from penstock.core.text import did_you_mean, in_quotes
from penstock.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.catalogue.difference import Difference
    from penstock.cli.session import Session
    from penstock.config.settings import TargetConfig
    from penstock.core.documents.catalogue_rows import DiffResult, DiffRow
    from penstock.core.layout import DatasetLayout

FOUND, BROKEN, DIFFERENT = 0, 4, 4
"""Exit statuses: all is shown; `gate` would end with 4 for what `releases` or `show` shows; `diff
--exit-code` saw a difference."""
SHOWN_ROWS = 20
"""Of each kind, where nothing else is asked for."""


def releases(parsed: argparse.Namespace, session: Session) -> int:
    """The releases of all datasets below the root, or of those named. Returns BROKEN where what `current`
    names of one of them is damaged."""
    from penstock.catalogue.releases import dataset_row
    from penstock.retention import pins
    from penstock.state.gate import BAD
    from penstock.views import release_text

    holders = pins.holding()
    owners = _owners(parsed, session)
    found = [
        dataset_row(layout, holders, owners=owners) for layout in layouts(parsed, session, parsed.dataset)
    ]
    session.receipt({"datasets": {one["dataset"]: one for one in found}})
    if _json(parsed):
        _lines(found)
    else:
        output.show_lines(release_text.releases(found, output.columns()))
    return BROKEN if any(one["state"] in BAD for one in found) else FOUND


def show(parsed: argparse.Namespace, session: Session) -> int:
    """One release in detail. Returns BROKEN where it is damaged."""
    from penstock.catalogue import details
    from penstock.retention import pins
    from penstock.state.gate import BAD
    from penstock.views import release_text

    layout = _layout(parsed, session)
    owners = _owners(parsed, session)
    holders = pins.holding()
    found = details.shown(layout, parsed.release, holders, owners=owners)
    session.receipt(found)
    if _json(parsed):
        _lines([found])
    else:
        output.show_lines(release_text.shown(found, output.columns()), hints=True)
    return BROKEN if found["row"]["state"] in BAD else FOUND


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
        name = session.only(config, parsed.name)
        with session.context(config) as context:
            got = compared.with_source(context, name, parsed.release)
    else:
        layout = _layout(parsed, session)
        got = compared.releases(layout, parsed.release, parsed.other)
    with got.found as found:
        _show_difference(parsed, found, got.result)
    session.receipt(got.result)
    return DIFFERENT if parsed.exit_code and not got.result["equal"] else FOUND


def _show_difference(parsed: argparse.Namespace, found: Difference, result: DiffResult) -> None:
    from penstock.catalogue.difference import LISTED
    from penstock.views import difference_text

    as_json = _json(parsed)
    limit = None if as_json or parsed.all else SHOWN_ROWS
    if not as_json:
        output.show_lines(difference_text.summary(result))
    for kind in LISTED:
        rows = islice(found.rows(kind), limit)
        if as_json:
            _lines(map(_row, rows))
        else:
            output.show_lines(map(difference_text.row, rows))
        left = result["counts"][kind].files - (limit or 0)
        if limit is not None and left > 0:
            output.show_lines([difference_text.more(kind, left)])
    if as_json:
        _lines([result])


def _row(one: DiffRow) -> Mapping[str, object]:
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

    found = [past.history(_layout(parsed, session))]
    session.receipt({"datasets": {one["dataset"]: one for one in found}})
    if _json(parsed):
        _lines([{"dataset": one["dataset"], **row["line"]} for one in found for row in one["lines"]])
    else:
        output.show_lines(release_text.history(found, None if parsed.all else SHOWN_ROWS, output.columns()))
    return 0


def du(parsed: argparse.Namespace, session: Session) -> int:
    """How much room each dataset takes, and what the removal of each of its releases would free. It rests
    while PAUSE stands, and keeps within `target.ops`."""
    from penstock.catalogue.dataset_use import used
    from penstock.cli.log_file import logged
    from penstock.core import events
    from penstock.policy import pause
    from penstock.views import disk_use_text

    target, _ = _target(parsed, session)
    found = []
    with session.display() as view:
        sink = logged(view)
        with pause.watching(pause.Watch(target.root, lambda text: sink(events.Warned("", "pause", text)))):
            for layout in layouts(parsed, session, parsed.dataset):

                def progress(files: int, size: int, name: str = layout.dataset) -> None:
                    sink(events.Progressed(name, "du", files=files, bytes=size))

                sink(events.Started(layout.dataset, "du"))
                with _paced(target, layout, session) as spend:
                    use = used(layout, spend, progress, filesystem=target.filesystem)
                sink(events.Ended(layout.dataset, "du", {"files": use["files"], "bytes": use["bytes"]}))
                found.append(use)
    session.receipt({"datasets": {one["dataset"]: one for one in found}})
    if _json(parsed):
        _lines(found)
    else:
        output.show_lines(disk_use_text.shown(found, output.columns()))
    return 0


@contextlib.contextmanager
def _paced(target: TargetConfig, layout: DatasetLayout, session: Session) -> Iterator[Callable[[int], None]]:
    """What is called before n metadata operations: it waits for their share of `target.ops`, and while PAUSE
    stands. Raises InterruptedRunError."""
    from penstock.state.context import operations

    check, ops = session.stop.check, operations(target)
    if not ops:
        yield lambda _: check()
        return
    from penstock.engine.pacing import spending
    from penstock.ownership.ops_share import OpsShare

    with spending(OpsShare(layout, "", ops, 1), session.stop.event.wait) as take:

        def spend(count: int) -> None:
            check()
            take(count)

        yield spend


def _target(parsed: argparse.Namespace, session: Session) -> tuple[TargetConfig, Sequence[str]]:
    """The target, and the datasets that the configuration has; with --root the defaults of one, and none."""
    from penstock.config.settings import TargetConfig

    if parsed.root is not None:
        return TargetConfig(parsed.root.absolute()), []
    config = session.config()
    return config.target, list(config.datasets)


def _owners(parsed: argparse.Namespace, session: Session) -> Sequence[str] | None:
    """`target.owners`; None with --root: the owner of each dataset's folder counts."""
    return None if parsed.root is not None else session.config().target.owners


def _layout(parsed: argparse.Namespace, session: Session) -> DatasetLayout:
    """The one dataset that is meant: the named one, else the only one of the configuration or, without that,
    below the root. Raises ConfigError."""
    names = [parsed.name] if parsed.name else _target(parsed, session)[1]
    found = layouts(parsed, session, names if len(names) == 1 else [])
    if len(found) != 1:
        names = ", ".join(layout.dataset for layout in found)
        raise ConfigError("which dataset?", hint=f"there are: {names}" if names else "there is none at all")
    return found[0]


def layouts(parsed: argparse.Namespace, session: Session, names: Sequence[str]) -> list[DatasetLayout]:
    """The datasets that are meant: those named, else all that lie below the root or that the configuration
    has. Raises ConfigError for a name that neither knows."""
    from penstock.catalogue import places
    from penstock.state.context import layout_of

    target, known = _target(parsed, session)
    root = target.root
    # Readers may enter some roots that they may not list: the names of the configuration are enough there.
    listed = not names or not set(names) <= set(known)
    # Where a configuration has staged nothing yet there is no root.
    if listed and (parsed.root is not None or root.exists()):
        known = list(dict.fromkeys([*known, *places.datasets(root)]))
    return [layout_of(target, name) for name in _known(names, known, root)]


def _known(names: Sequence[str], known: Sequence[str], root: object) -> list[str]:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(
            f"no dataset is named {', '.join(map(in_quotes, unknown))}{did_you_mean(unknown, known)}",
            where=str(root),
            hint=f"there are: {', '.join(known)}" if known else "there is none at all",
        )
    return list(dict.fromkeys(names)) or list(known)


def _json(parsed: argparse.Namespace) -> bool:
    return bool(parsed.json) or parsed.progress == "json"


def _lines(found: Iterable[Mapping[str, object]]) -> None:
    for one in found:
        output.show_json(one)
