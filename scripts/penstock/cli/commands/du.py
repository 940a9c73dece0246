"""`penstock du`: how much room datasets take. Reads only, for any account. Names in its text are escaped."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.cli import dataset_choice, flags
from penstock.cli.command_table import CommandFunctions
from penstock.core import human
from penstock.core.human import printable
from penstock.look.views.result_texts import last_pinned
from penstock.look.views.text_layout import COLUMNS, Line, TextColumn, lines

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from penstock.cli.session import Session
    from penstock.core.catalogue_rows import AreaUse, DiskUse, OwnedUse

EXAMPLES = ("penstock du imagenet", "penstock du --root /beegfs/datasets")
_AREAS = (
    TextColumn(""),
    TextColumn("WHAT", least=20),
    TextColumn("FREES", right=True),
    TextColumn("FILES", right=True),
    TextColumn("HOLDS", right=True),
    TextColumn("FILES", right=True),
    TextColumn("PROJECT", right=True),
    TextColumn("POOL"),
)
_OWNERS = (
    TextColumn("USER", least=8),
    TextColumn("GROUP", least=8),
    TextColumn("BYTES", right=True),
    TextColumn("FILES", right=True),
)
_NAMES = {
    "staging": "staging {}",
    "repair": "repair {}",
    "removed": "being removed {}",
    "removing": "mark {}",
    "state": "state",
    "other": "the rest",
}
_STATES = {
    "taken back": " (taken back)",
    "left": " (left by a run that did not end)",
    "under way": " (under way)",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.datasets(parser)
    flags.root(parser)
    flags.json_lines(parser)


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Measure each dataset, and what removing each release would free. Rests during PAUSE, and keeps within
    `target.ops`."""
    from penstock.cli.error_report import logged
    from penstock.core import run_steps
    from penstock.dataset.context import operations
    from penstock.jobs.shares import paced
    from penstock.look.dataset_use import used
    from penstock.target import notices

    datasets = dataset_choice.chosen_datasets(parsed, session)
    target = datasets.target
    layouts = {layout.dataset: layout for layout in datasets.layouts(parsed.dataset)}
    with session.display() as view:
        sink = logged(view)
        with notices.watching(
            notices.PauseWatch(target.root, lambda text: sink(run_steps.Warned("", "pause", text)))
        ):

            def measured(name: str) -> DiskUse:
                def progress(files: int, size: int) -> None:
                    sink(run_steps.Progressed(name, "du", files=files, bytes=size))

                sink(run_steps.Started(name, "du"))
                with paced(layouts[name], operations(target), "du", session.stop) as spend:
                    use = used(layouts[name], spend, progress, filesystem=target.filesystem)
                sink(run_steps.Ended(name, "du", {"files": use["files"], "bytes": use["bytes"]}))
                return use

            uses, code = session.apart([*layouts], measured)
    session.receipt({"datasets": {use["dataset"]: use for use in uses}})
    session.show_rows(uses, partial(render, uses))
    return code


def render(uses: Sequence[DiskUse], columns: int = COLUMNS) -> list[Line]:
    lines: list[Line] = []
    for use in uses:
        lines += _dataset(use, columns)
    return lines or [Line("there is no dataset below this root")]


def _dataset(use: DiskUse, columns: int) -> Iterator[Line]:
    amount = f"{human.size(use['bytes'])} in {human.counted(use['files'], 'file')} and "
    amount += human.counted(use["folders"], "folder")
    yield Line(printable(f"{use['dataset']}: {use['problem'] or amount}"), "bold")
    if use["problem"]:
        return
    areas = [area for area in use["areas"] if area["files"] or area["folders"] or area["unreadable"]]
    table = lines(_AREAS, [_area(area) for area in areas], columns=columns, indent=2)
    yield from (Line(text, "dim") for text in table[0])
    for area, texts in zip(areas, table[1:], strict=True):
        yield from (Line(text, _style(area)) for text in texts)
    hidden = sum(area["unreadable"] for area in use["areas"])
    for release, pin in use["last_pins"].items():
        yield Line(printable(f"  release {release}: {last_pinned(pin)}"), "dim")
    if use["shared_files"]:
        in_several = f"{human.size(use['shared_bytes'])} in {human.counted(use['shared_files'], 'file')}"
        yield Line(f"  shared by several of them, once: {in_several}")
    if use["outside_files"]:
        outside = f"{human.size(use['outside_bytes'])} in {human.counted(use['outside_files'], 'file')}"
        where = ", or where this account cannot look" if hidden else ""
        yield Line(f"  with names outside of the dataset{where}, too: {outside}", "yellow")
    if hidden:
        names = human.counted(hidden, "name")
        yield Line(f"  not counted: {names} that this account cannot look into", "yellow")
    for texts in lines(_OWNERS, [_owner(owner) for owner in use["owners"]], columns=columns, indent=2):
        yield from map(Line, texts)


def _area(use: AreaUse) -> list[str]:
    what = _NAMES.get(use["kind"], "{}").format(use["name"]) + _STATES.get(use["state"], "")
    hidden = not use["files"] and not use["folders"] and use["unreadable"]
    return [
        "*" if use["state"] == "current" else "",
        what,
        human.UNKNOWN if hidden else human.size(use["unique_bytes"]),
        human.UNKNOWN if hidden else human.count(use["unique_files"]),
        human.UNKNOWN if hidden else human.size(use["bytes"]),
        human.UNKNOWN if hidden else human.count(use["files"]),
        str(use["project"]) if use["project"] else "",
        use["pool"],
    ]


def _style(use: AreaUse) -> str:
    return "green" if use["state"] == "current" else "yellow" if use["state"] == "left" else ""


def _owner(use: OwnedUse) -> list[str]:
    user, group = (
        name or str(number) for name, number in ((use["user"], use["uid"]), (use["group"], use["gid"]))
    )
    return [user, group, human.size(use["bytes"]), human.count(use["files"])]


DU = CommandFunctions(arguments, run, EXAMPLES)
