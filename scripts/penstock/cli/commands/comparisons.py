"""The commands `penstock adopt`, which compares an existing tree with a dataset's source and with --seal
publishes it as a release, and `penstock diff`, which compares two releases, or a release and its source now.
"""

from __future__ import annotations

import os
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import dataset_choice, flags, output
from penstock.cli.command_table import CommandFunctions
from penstock.core import human
from penstock.core.errors import ConfigError
from penstock.core.findings import CHECKSUM, KINDS, READ, SIZE
from penstock.core.human import printable
from penstock.look.views.text_layout import METHODS, Line, TextColumn, line, lines, table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from penstock.cli.session import Session
    from penstock.config.settings import Config
    from penstock.core.catalogue_rows import DiffResult, DiffRow
    from penstock.core.step_results import AdoptionResult, AmountJson, SameJson, SealingResult
    from penstock.look.difference import ManifestDifference


ADOPT_EXAMPLES = (
    "penstock adopt imagenet /beegfs/old/imagenet",
    "penstock adopt imagenet /beegfs/old/imagenet --seal --leave-extra",
)
SHOWN = 50  # number of names of each kind that are shown, at most
GRADES = {
    "full": "a checksum that the source states",
    "etag-md5": "an MD5 that is the object's etag",
    "composite": "a checksum over the parts of its upload",
}
BY_READING = "reading the source"
BY_SIZE = "size alone: nothing is known of their bytes"
TITLES = {
    "missing": "missing",
    "size": "of another size",
    "content": "of other bytes",
    "replaced": "replaced by something else",
    "extra": "extra",
    "link": "extra links",
    "special": "special files",
    "unread": "unreadable",
    "source": "not compared, by the source's fault",
    "moving": "written to meanwhile",
    "time": "of another time",
    "excluded": "left out by include and exclude",
    "folder": "folders without a file of the source",
    "unlinked": "links and special files, not compared",
    "away": "not read, since their data is not here",
}


def adopt_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", metavar="DATASET", help="whose source the tree is compared with")
    parser.add_argument("tree", type=Path, metavar="PATH", help="the tree's top folder")
    parser.add_argument(
        "--read-source", action="store_true",
        help="read the source where it states no checksum, and compare the bytes",
    )  # fmt: skip
    parser.add_argument(
        "--seal", action="store_true",
        help="then publish the tree as a release: what is right is renamed with it, the rest is fetched",
    )  # fmt: skip
    parser.add_argument(
        "--leave-extra", action="store_true",
        help="with --seal: what the release will not hold is moved to a folder beside the tree",
    )  # fmt: skip
    parser.add_argument(
        "--json", action="store_true", help="a line of JSON for each difference, all of them, then the result"
    )


def run_adopt(parsed: argparse.Namespace, session: Session) -> int:
    """Return 0 where the tree matches the source, or is published now. Raises FindingsError (4)."""
    from penstock.run import adopt_step

    config = session.config()
    (name,) = session.names(config, [parsed.dataset])
    if parsed.leave_extra and not parsed.seal:
        raise ConfigError("--leave-extra is for --seal", hint="without --seal nothing is moved")
    if parsed.seal:
        return _seal(parsed, session, config, name)
    request = adopt_step.Request(parsed.tree, read_source=parsed.read_source)
    with session.context(config) as context:
        result = adopt_step.run(context, name, request)
    # The display is closed, so the result can be printed.
    session.receipt(result)
    _show_adoption(parsed, result)
    adopt_step.judge(result)
    return 0


def _show_adoption(parsed: argparse.Namespace, result: AdoptionResult) -> None:
    from penstock.run import adopt_step

    if parsed.json:
        for difference in adopt_step.differences(result):
            output.show_json(difference)
        output.show_json({**result, "differences": []})
    elif parsed.progress == "json":
        output.show_json(result)
    else:
        output.show(comparison(result))


def _seal(parsed: argparse.Namespace, session: Session, config: Config, name: str) -> int:
    """Compare, note the intention, print what follows, do it; or resume what was begun."""
    from penstock.run import adopt_seal, adopt_step

    tree = Path(os.path.realpath(parsed.tree))
    with session.context(config) as context:
        begun = adopt_seal.under_way(context, name, tree)
        if begun is None:
            request = adopt_step.Request(parsed.tree, read_source=parsed.read_source, seal=True)
            compared = adopt_step.run(context, name, request)
    if begun is None:
        _show_adoption(parsed, compared)
        adopt_seal.refuse(compared, leave_extra=parsed.leave_extra)
        with session.context(config) as context:
            adopt_seal.mark(context, name, compared)
        # This comes after all checks that can refuse.
        for sentence in adopt_seal.intended(context, name, compared):
            output.say(sentence)
    with session.context(config) as context:
        result = adopt_seal.go_on(context, name, begun)
    session.receipt(result)
    session.show(result, partial(sealed, result))
    return 0


def comparison(result: AdoptionResult, shown: int = SHOWN) -> str:
    """Render a comparison as a table; ends in a line feed."""
    lines = [human.printable(f"{result['dataset']}: {result['tree']}")]
    listed = f"{human.counted(result['files'], 'file')}, {human.size(result['bytes'])}"
    lines.append(line("Source", f"{' '.join(result['sources'])}: {listed}"))
    lines += [line("Same", f"{_amount(amount)}, by {how}") for how, amount in _same(result).items()]
    lines += [
        line("How", f"{human.count(count)} {METHODS.get(name, name)}")
        for name, count in sorted(result["methods"].items())
    ]
    if result["earlier"]:
        note = f"{human.count(result['earlier'])} of them by an earlier command, untouched since"
        lines.append(line("Read", note))
    counts = result["counts"]
    ordered = sorted(result["differences"], key=lambda difference: KINDS.index(difference.kind))
    for kind, same in groupby(ordered, key=lambda difference: difference.kind):
        of_kind = list(same)[:shown]
        lines.append(line(_title(of_kind[0].mark), f"{_amount(counts[kind])} {TITLES[kind]}"))
        lines += table((difference.mark, difference.path, difference.why) for difference in of_kind)
        if counts[kind]["files"] > len(of_kind):
            lines.append(f"    and {human.count(counts[kind]['files'] - len(of_kind))} more")
    lines += [
        line("Told", f"{_amount(counts[kind])} {TITLES[kind]}")
        for kind in counts
        if kind not in {difference.kind for difference in ordered}
    ]
    if counts:
        lines.append(line("All", human.printable(result["all_differences"])))
    lines.append(line("Took", human.duration(result["seconds"])))
    by_size = sum(proven["files"] for proven in result["same"] if proven["how"] == SIZE)
    said = [f"{human.count(amount['files'])} {kind}" for kind, amount in counts.items()]
    note = ", ".join([*said, *([f"{human.counted(by_size, 'file')} by size alone"] if by_size else [])])
    lines.append(line("STATUS", f"{result['status']} ({note})" if note else result["status"]))
    return "".join(f"{text}\n" for text in lines)


def _same(result: AdoptionResult) -> dict[str, AmountJson]:
    """Sum up identical files by what they were compared by."""
    amounts: dict[str, AmountJson] = {}
    for proven in result["same"]:
        amount = amounts.setdefault(by(proven), {"files": 0, "bytes": 0})
        amount["files"] += proven["files"]
        amount["bytes"] += proven["bytes"]
    return amounts


def by(proven: SameJson) -> str:
    if proven["how"] == CHECKSUM:
        return GRADES.get(proven["grade"], "a checksum")
    return BY_READING if proven["how"] == READ else BY_SIZE


def _title(mark: str) -> str:
    return "Told" if mark in "~?" else "Differs"


def _amount(amount: AmountJson) -> str:
    return f"{human.counted(amount['files'], 'file')}, {human.size(amount['bytes'])}"


def sealed(result: SealingResult) -> str:
    """Render what became of a published tree; ends in a line feed."""
    lines = [
        human.printable(f"{result['dataset']}/{result['release']}"),
        line("Path", result["path"]),
        line("Fetched", human.counted(result["fetched"], "file")),
        *(line("Aside", folder) for folder in result["aside"]),
        line("Undo", result["undo"]),
        line("STATUS", "PUBLISHED" + (", current" if result["current"] == result["release"] else "")),
    ]
    return "".join(f"{text}\n" for text in lines)


ADOPT = CommandFunctions(adopt_arguments, run_adopt, ADOPT_EXAMPLES)


# `penstock diff`: compares two releases, or a release and its source now. Reads only, for any account.
#
# A row begins with its mark; names are escaped, whatever bytes they hold.
#
# | mark | kind                                                   |
# |------|--------------------------------------------------------|
# | `*`  | changed                                                |
# | `!`  | may have changed: nothing that both sides state proves |
# |      | that its bytes are the same                            |
# | `>`  | has another path                                       |
# | `-`  | removed                                                |
# | `+`  | added                                                  |

DIFF_EXAMPLES = ("penstock diff imagenet --source", "penstock diff imagenet 20261101-1f2e3d4c --exit-code")
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


def diff_arguments(parser: argparse.ArgumentParser) -> None:
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


def run_diff(parsed: argparse.Namespace, session: Session) -> int:
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
        _show_difference(parsed, session, difference, got.result)
    session.receipt(got.result)
    return DIFFERENT if parsed.exit_code and not got.result["equal"] else 0


def _show_difference(
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


DIFF = CommandFunctions(diff_arguments, run_diff, DIFF_EXAMPLES)
