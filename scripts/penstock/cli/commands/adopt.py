"""`penstock adopt`: compares an existing tree with a dataset's source; --seal publishes it as a release.

Exit status 4: the tree differs, or --seal needs a decision. The text has a line for each difference, mark
first; after some of each kind, a count of the rest and the file of all.
"""

from __future__ import annotations

import os
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import output
from penstock.cli.command_table import CommandFunctions
from penstock.core import human
from penstock.core.errors import ConfigError
from penstock.core.findings import (
    CHECKSUM,
    KINDS,
    READ,
    SIZE,
)
from penstock.look.views.result_texts import METHODS, line, table

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session
    from penstock.config.settings import Config
    from penstock.core.step_results import (
        AdoptionResult,
        AmountJson,
        SameJson,
        SealingResult,
    )

EXAMPLES = (
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


def arguments(parser: argparse.ArgumentParser) -> None:
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


def run(parsed: argparse.Namespace, session: Session) -> int:
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
    _show(parsed, result)
    adopt_step.judge(result)
    return 0


def _show(parsed: argparse.Namespace, result: AdoptionResult) -> None:
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
        _show(parsed, compared)
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


ADOPT = CommandFunctions(arguments, run, EXAMPLES)
