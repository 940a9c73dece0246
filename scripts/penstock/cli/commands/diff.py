"""`penstock diff`: compares two releases, or a release and its source now. Reads only, for any account.

A row begins with its mark; names are escaped, whatever bytes they hold.

| mark | kind                                                   |
|------|--------------------------------------------------------|
| `*`  | changed                                                |
| `!`  | may have changed: nothing that both sides state proves |
|      | that its bytes are the same                            |
| `>`  | has another path                                       |
| `-`  | removed                                                |
| `+`  | added                                                  |
"""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING

from penstock.cli import dataset_choice, flags, output
from penstock.cli.command_table import CommandFunctions
from penstock.core import human
from penstock.core.errors import ConfigError
from penstock.core.human import printable
from penstock.look.views.text_layout import Line, TextColumn, lines

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from penstock.cli.session import Session
    from penstock.core.catalogue_rows import DiffResult, DiffRow
    from penstock.look.difference import ManifestDifference

EXAMPLES = ("penstock diff imagenet --source", "penstock diff imagenet 20261101-1f2e3d4c --exit-code")
DIFFERENT = 4  # exit status with `--exit-code` if releases differ
MARKS = {"changed": "*", "unproven": "!", "renamed": ">", "removed": "-", "added": "+"}
STYLES = {"changed": "yellow", "unproven": "magenta", "renamed": "cyan", "removed": "red", "added": "green"}
_MEANS = {"unproven": "may have changed"}
_COLUMNS = (
    TextColumn(""),
    TextColumn("FILES", right=True),
    TextColumn("BYTES", right=True),
    TextColumn("BEFORE", right=True),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.root(parser)
    flags.json_lines(parser)
    flags.dataset(parser, "name")
    parser.add_argument("release", nargs="?", metavar="A", help="a release (default: the current one)")
    parser.add_argument(
        "other", nargs="?", metavar="B",
        help="another one (default: the current one; without A: the source as it is now)",
    )  # fmt: skip
    parser.add_argument(
        "--source", action="store_true", help="compare A with the source as it is now: it is listed anew"
    )
    parser.add_argument(
        "--exit-code",
        action="store_true",
        help="end with 4 where they differ; else 0 says only that it worked",
    )
    flags.every_row(parser)


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Compare. Returns DIFFERENT under --exit-code unless all files are proven the same."""
    from penstock.look import release_comparison

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
            got = release_comparison.with_source(context, name, parsed.release)
    else:
        layout = dataset_choice.chosen_datasets(parsed, session).only(parsed.name)
        got = release_comparison.releases(layout, parsed.release, parsed.other)
    with got.difference as difference:
        _show(parsed, session, difference, got.result)
    session.receipt(got.result)
    return DIFFERENT if parsed.exit_code and not got.result["equal"] else 0


def _show(
    parsed: argparse.Namespace, session: Session, difference: ManifestDifference, result: DiffResult
) -> None:
    from penstock.look.difference import LISTED

    if session.as_json:
        for kind in LISTED:
            for changed in difference.rows(kind):
                output.show_json(_as_json(changed))
        output.show_json(result)
        return
    limit = None if parsed.all else flags.SHOWN_ROWS
    output.show_lines(summary(result))
    for kind in LISTED:
        output.show_lines(map(row, islice(difference.rows(kind), limit)))
        left = result["counts"][kind].files - (limit or 0)
        if limit is not None and left > 0:
            output.show_lines([more(kind, left)])


def _as_json(changed: DiffRow) -> Mapping[str, object]:
    """Return a row's known fields; `os.fsencode` of a name gives its bytes."""
    fields = {
        "kind": changed.kind,
        "path": os.fsdecode(changed.path),
        "bytes": changed.bytes,
        "bytes_before": changed.bytes_before,
    }
    return fields if changed.was is None else {**fields, "was": os.fsdecode(changed.was)}


def summary(result: DiffResult) -> list[Line]:
    """Count files and bytes by kind."""
    after = result["after"] or " ".join(result["source"]) + " now"
    shown = [Line(printable(f"{result['dataset']}: {result['before']} -> {after}"), "bold")]
    rows = [
        [
            _MEANS.get(kind, kind),
            human.count(count.files),
            human.size(count.bytes),
            human.size(count.bytes_before) if count.bytes_before not in (0, count.bytes) else "",
        ]
        for kind, count in result["counts"].items()
        if count.files
    ]
    for texts in lines(_COLUMNS, rows, indent=2):
        shown += map(Line, texts)
    if result["permissions"]:
        shown.append(Line(printable(f"  permissions differ: {result['permissions']}"), "yellow"))
    return shown


def row(changed: DiffRow) -> Line:
    size, before = changed.bytes, changed.bytes_before
    name = shown(changed.path) if changed.was is None else f"{shown(changed.was)} -> {shown(changed.path)}"
    much = human.size((before if size is None else size) or 0)
    if size is not None and before is not None and size != before:
        sizes = (human.size(before), much)
        # If both sizes round to the same text, show exact bytes.
        much = " -> ".join(sizes if sizes[0] != sizes[1] else (f"{n:,} B" for n in (before, size)))
    return Line(f"{MARKS[changed.kind]} {name}  ({much})", STYLES[changed.kind])


def shown(path: bytes) -> str:
    return printable(os.fsdecode(path))


def more(kind: str, count: int) -> Line:
    """Make the line for rows that are not shown."""
    return Line(f"  and {human.count(count)} more {_MEANS.get(kind, kind)} (--all)", "dim")


DIFF = CommandFunctions(arguments, run, EXAMPLES)
