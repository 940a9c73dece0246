"""`penstock releases`: the releases of all datasets below a root. Reads only, for any account."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.cli import dataset_choice, flags
from penstock.cli.command_table import CommandFunctions
from penstock.core import human
from penstock.core.errors import FindingsError
from penstock.core.human import brief, printable
from penstock.look.views.result_texts import (
    account,
    last_pinned,
    problem,
    said,
)
from penstock.look.views.text_layout import COLUMNS, Line, TextColumn, lines

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from penstock.cli.session import Session
    from penstock.core.catalogue_rows import DatasetRow, ReleaseRow, StagingRow

EXAMPLES = ("penstock releases imagenet", "penstock releases --root /beegfs/datasets --json")
HOLDERS = 3  # number of a release's holders that the table names, at most
_RELEASES = (
    TextColumn(""),
    TextColumn("RELEASE", least=17),
    TextColumn("SIZE", right=True),
    TextColumn("FILES", right=True),
    TextColumn("GRADE", least=9),
    TextColumn("AGE", right=True),
    TextColumn("LAST AUDIT", least=10),
)
_KINDS = {
    ("staging", "under way"): "being staged",
    ("staging", "left"): "left by a run that did not end",
    ("staging", "unknown"): "staging, of which its owner alone knows whether it is under way",
    ("repair", "unknown"): "of a repair",
    ("rehearsal", "unknown"): "of a rehearsal",
    ("trial", "unknown"): "of a trial of the file system",
    ("removing", "unknown"): "the mark of a removal that begins",
    ("removed", "unknown"): "a release whose files are being removed",
    ("removed", "taken back"): "of a removal that was taken back",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.datasets(parser)
    flags.root(parser)
    flags.json_lines(parser)


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Show releases of all or the named datasets. Returns 4 where a current one is damaged, as `gate`
    would."""
    from penstock.dataset import pins
    from penstock.dataset.gate import BAD
    from penstock.look.releases import dataset_row

    holders = pins.holding()
    datasets = dataset_choice.chosen_datasets(parsed, session)
    layouts = {layout.dataset: layout for layout in datasets.layouts(parsed.dataset)}
    rows, code = session.apart(
        [*layouts], lambda name: dataset_row(layouts[name], holders, owners=datasets.owners)
    )
    session.receipt({"datasets": {row["dataset"]: row for row in rows}})
    session.show_rows(rows, partial(render, rows))
    return FindingsError.exit_code if any(row["state"] in BAD for row in rows) else code


def render(datasets: Sequence[DatasetRow], columns: int = COLUMNS) -> list[Line]:
    lines: list[Line] = []
    for row in datasets:
        lines += _dataset(row, columns)
    return lines or [Line("there is no dataset below this root")]


def _dataset(row: DatasetRow, columns: int) -> Iterator[Line]:
    count, what = len(row["releases"]), ""
    if count:
        sized = sum(release["files"] is not None for release in row["releases"])
        what = f": {human.counted(count, 'release')}"
        if sized:
            what += f", {human.size(row['bytes'])} in {human.counted(row['files'], 'file')}"
            # Their total size on disk is known only after a walk (`penstock du`).
            what += " (shared ones each time)" if sized > 1 else ""
        if sized < count:
            what += f", {human.count(count - sized)} of them not known" if sized else ", of unknown size"
        what += f", owner {account(row['owner'])}" if row["owner"] else ""
    yield Line(printable(f"{row['dataset']}{what}"), "bold")
    if row["pause"]:
        yield from said(f"PAUSE: {row['pause']}", 2, columns, "yellow")
    if row["hold"]:
        yield from said(f"HOLD: {row['hold']}", 2, columns, "yellow")
    if row["problem"]:
        yield from said(f"! {row['problem']}", 2, columns, "red" if row["releases"] else "yellow")
    tables = lines(_RELEASES, [_cells(release) for release in row["releases"]], columns=columns, indent=2)
    if count:
        yield from (Line(text, "dim") for text in tables[0])
    for release, texts in zip(row["releases"], tables[1:], strict=True):
        yield from (Line(text, "green" if release["current"] else "") for text in texts)
        if release["problem"]:
            yield from said(f"! {problem(release)}", 4, columns, "red")
        for who in release["held_by"][:HOLDERS]:
            yield from said(f"held by {who}", 4, columns, "cyan")
        if release["last_pin"] and not release["held_by"]:
            yield from said(last_pinned(release["last_pin"]), 4, columns, "dim")
        if more := len(release["held_by"][HOLDERS:]) + release["pins_unopened"]:
            least = "up to " if release["pins_unopened"] else ""
            yield Line(f"    and by {least}{human.count(more)} more (--json)", "cyan")
    for text in _beside(row["stagings"]):
        yield from said(text, 2, columns, "dim")


def _cells(row: ReleaseRow) -> list[str]:
    last = row["last_audit"]
    audited = f"{brief(last.audit.status)}, {human.age(row['audit_age'])}" if last else "never"
    if last and last.closed:
        audited = brief(last.closed.partition("T")[0])
    sized = row["files"] is not None
    return [
        "*" if row["current"] else "",
        row["release"],
        human.size(row["bytes"] or 0) if sized else human.UNKNOWN,
        human.count(row["files"] or 0) if sized else human.UNKNOWN,
        row["storage_grade"] or human.UNKNOWN,
        human.age(row["age"]),
        audited if sized else human.UNKNOWN,
    ]


def _beside(stagings: Sequence[StagingRow]) -> Iterator[str]:
    for staging in stagings:
        kind = _KINDS.get((staging["kind"], staging["state"]), "hidden, and not of penstock")
        changed = f", changed {human.age(staging['age'])} ago" if staging["age"] is not None else ""
        yield f"beside them: {staging['name']} ({kind}{changed})"


RELEASES = CommandFunctions(arguments, run, EXAMPLES)
