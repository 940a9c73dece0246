"""Commands that show a dataset's releases: `penstock releases`, `show`, `history` and `du`. Read only, for
any account. Names in their texts are escaped.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, cast

from penstock.cli import dataset_choice, flags
from penstock.cli.command_table import CommandFunctions
from penstock.core import human
from penstock.core.errors import FindingsError
from penstock.core.human import TEXT, brief, printable
from penstock.look.views import text_layout
from penstock.look.views.text_layout import (
    COLUMNS,
    Line,
    TextColumn,
    account,
    last_pinned,
    lines,
    moment,
    problem,
    said,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.cli.session import Session
    from penstock.core.catalogue_rows import (
        AreaUse,
        DatasetRow,
        DiskUse,
        GradeAmount,
        History,
        HistoryRow,
        OwnedUse,
        ReleaseRow,
        ReleaseShown,
        StagingRow,
    )


# `penstock releases`

RELEASES_EXAMPLES = ("penstock releases imagenet", "penstock releases --root /beegfs/datasets --json")
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


def releases_arguments(parser: argparse.ArgumentParser) -> None:
    flags.datasets(parser)
    flags.root(parser)
    flags.json_lines(parser)


def run_releases(parsed: argparse.Namespace, session: Session) -> int:
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
    session.show_rows(rows, partial(render_releases, rows))
    return FindingsError.exit_code if any(row["state"] in BAD for row in rows) else code


def render_releases(datasets: Sequence[DatasetRow], columns: int = COLUMNS) -> list[Line]:
    lines: list[Line] = []
    for row in datasets:
        lines += _dataset_lines(row, columns)
    return lines or [Line("there is no dataset below this root")]


def _dataset_lines(row: DatasetRow, columns: int) -> Iterator[Line]:
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


RELEASES = CommandFunctions(releases_arguments, run_releases, RELEASES_EXAMPLES)


# `penstock show`: one release in detail

SHOW_EXAMPLES = ("penstock show imagenet", "penstock show imagenet 20261101-1f2e3d4c --json")
_SEALS = {
    "same": "which is the one in the history",
    "differs": "WHICH IS NOT THE ONE IN THE HISTORY: it was changed since, or forged",
    "none": "which no line of the history names",
    "unreadable": "not compared with the history, which its owner alone can read",
}


def show_arguments(parser: argparse.ArgumentParser) -> None:
    flags.root(parser)
    flags.json_lines(parser)
    flags.dataset(parser, "name")
    flags.release(parser)


def run_show(parsed: argparse.Namespace, session: Session) -> int:
    """Show the release. Returns 4 where it is damaged, as `gate` would."""
    from penstock.dataset import pins
    from penstock.dataset.gate import BAD
    from penstock.look import details

    datasets = dataset_choice.chosen_datasets(parsed, session)
    layout, name = datasets.release(parsed.name, parsed.release)
    holders = pins.holding()
    release = details.shown(layout, name, holders, owners=datasets.owners)
    session.receipt(release)
    session.show_rows([release], partial(render_release, release), hints=True)
    return FindingsError.exit_code if release["row"]["state"] in BAD else 0


def render_release(release: ReleaseShown, columns: int = COLUMNS) -> list[Line]:
    row = release["row"]
    current = " (current)" if row["current"] else ""
    lines = [Line(printable(f"{release['dataset']}/{row['release']}{current}"), "bold")]
    if row["problem"]:
        lines += _field("Problem", problem(row), columns, "red")
    for title, text in _facts(release):
        lines += _field(title, text, columns, "red" if title == "Findings" else "")
    for title, history in (("History", release["history"]), ("Audits", release["audits"])):
        for event in history:
            lines += _field(title, f"{brief(moment(event['at']))}: {_event(event)}", columns)
            title = ""
    return lines


def _facts(release: ReleaseShown) -> Iterator[tuple[str, str]]:
    row, seal = release["row"], release["seal"]
    yield "Path", row["path"]
    if release["owner"]:
        yield "Owner", account(release["owner"])
    if seal is not None:
        yield from _sealed(release, seal)
    if row["last_audit"]:
        yield "Last audit", text_layout.last(row["last_audit"])
    elif seal is not None:
        yield "Last audit", "never"
    if seal is not None:
        since = release["read_back"]
        yield "Read back", f"all of it, last at {moment(since)}" if since else "never all of it"
    if row["findings"]:
        yield "Findings", f"{_counts(row['findings'])}: {release['advice']}"
    yield from _verdict(release["verdict"] or {})
    for holder in row["held_by"]:
        yield "Held by", holder
    if row["pins_unopened"]:
        yield "Held by", f"up to {human.count(row['pins_unopened'])} more pins"


def _sealed(release: ReleaseShown, seal: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    row = release["row"]
    files = row["files"] or 0
    giants = _number(seal, "giants")
    parts = f", {human.counted(giants, 'giant')} in parts of {human.size(_number(seal, 'part_bytes'))}"
    size = f"{human.size(row['bytes'] or 0)} ({human.count(row['bytes'] or 0)} bytes)"
    yield "Holds", f"{human.counted(files, 'file')}, {size}{parts if giants else ''}"
    by = f", by penstock {seal['penstock']}" if seal["penstock"] else ""
    run = f", run {seal['run']}" if seal["run"] else ""
    yield "Sealed", f"{moment(row['sealed'])}, {human.age(row['age'])} ago{by}{run}"
    yield "Seal", f"{release['seal_digest']}, {_SEALS[release['seal_in_history']]}"
    if release["signature"]:
        yield "Signature", release["signature"]
    for source in _maps(seal.get("sources")):
        into = f", into {source['into']}" if source["into"] else ""
        yield "Source", f"{source['url']}{into}"
    yield "Selected", _selected(seal)
    amended = seal.get("amended")
    if isinstance(amended, dict):
        span = (
            f", read from {moment(amended['from'])} to {moment(amended['until'])}" if amended["from"] else ""
        )
        changed = f"{human.count(amended['changed'])} changed, {human.count(amended['gone'])} gone"
        yield "Snapshot", f"no: the source was followed while it changed ({changed}{span})"
    yield "Linked", _linked(row)
    yield from (("Permissions", text) for text in _permissions(_map(seal.get("permissions"))))
    evidence = _map(seal.get("evidence"))
    yield "Source proof", _evidence(release["source_evidence"], evidence.get("required_source"))
    yield "Stored proof", _evidence(release["storage_evidence"], evidence.get("required_storage"))
    if carried := text_layout.carried(seal.get("carried")):
        yield "Carried over", carried
    if delay := text_layout.delay(evidence.get("read_after")):
        yield "Read after", delay
    if evidence.get("fsync_ends"):
        yield "Durable", f"each fsync ended {evidence['fsync_ends']}"
    for manifest in release["manifests"]:
        size = "missing, or unreadable" if manifest["bytes"] is None else human.size(manifest["bytes"])
        yield "Manifest", f"{manifest['name']}, {size}"


def _selected(seal: Mapping[str, object]) -> str:
    counts = [f"{human.counted(_number(seal, 'scanned'), 'object')} scanned"]
    for name in ("include", "exclude"):
        patterns = seal.get(name)
        if isinstance(patterns, (list, tuple)) and patterns:
            counts.append(f"{name} {' '.join(map(str, patterns))}")
    ignored = {why: int(str(count)) for why, count in _map(seal.get("ignored")).items()}
    if left_out := human.of_kinds(ignored):
        counts.append(f"left out: {', '.join(left_out)}")
    return "; ".join(counts)


def _linked(row: ReleaseRow) -> str:
    if row["base"] is None or not row["unchanged"]:
        return "none of its files from an earlier release"
    return (
        f"{human.count(row['unchanged'])} of {human.counted(row['files'] or 0, 'file')}, from {row['base']}"
    )


def _permissions(held: Mapping[str, object]) -> Iterator[str]:
    octal = _map(held.get("octal"))
    rights = [f"{what} {mode}" for what, mode in octal.items()]
    for title, number, name in (("group", "gid", "group"), ("owner", "uid", "user")):
        if held.get(number) is not None:
            rights.append(f"{title} {held.get(name) or held[number]} ({held[number]})")
    yield ", ".join(rights) or "not known"
    for rule in _maps(held.get("modes")):
        modes = [
            f"{what} {rule[key]:04o}"
            for what, key in (("files", "file"), ("folders", "dir"))
            if rule.get(key) is not None
        ]
        yield f"{rule['match']}: {', '.join(modes)}"
    acl = held.get("acl")
    if isinstance(acl, (list, tuple)) and acl:
        yield f"ACL {' '.join(map(str, acl))}"


def _evidence(amounts: Sequence[GradeAmount], required: object) -> str:
    proofs = [
        f"{amount['grade']} {human.counted(amount['files'], 'file')} ({human.size(amount['bytes'])})"
        for amount in amounts
    ]
    return ", ".join(proofs) + (f"; required: {required}" if required else "") if proofs else "not known"


def _verdict(verdict: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    repair, overruled = _map(verdict.get("repair")), _map(verdict.get("overruled"))
    if repair:
        yield "Repaired", f"{moment(repair['at'])}: {repair['repaired']} repaired, {repair['left']} left"
    if overruled:
        counts = _counts(cast("Mapping[str, int]", overruled["counts"]))
        yield "Overruled", f"{moment(overruled['at'])} by {overruled['by']}: {overruled['why']} ({counts})"


def _event(row: HistoryRow) -> str:
    by = f" by {brief(row['by'])}" if row["by"] else ""
    host = f" on {brief(row['host'])}" if row["host"] else ""
    release = f" {brief(row['release'], 128)}" if row["release"] else ""
    note = "" if row["known"] else " (not known to this version)"
    text = f": {brief(row['text'], 500)}" if row["text"] else ""
    return f"{brief(row['event'])}{note}{release}{by}{host}{text}"


def _field(title: str, text: str, columns: int, style: str = "") -> list[Line]:
    return [Line(line, style) for line in text_layout.field(title, brief(text, TEXT), columns)]


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{human.count(count)} {kind}" for kind, count in sorted(counts.items()))


def _number(held: Mapping[str, object], name: str) -> int:
    value = held.get(name)
    return value if isinstance(value, int) else 0


def _map(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _maps(value: object) -> Sequence[Mapping[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, (list, tuple)) else []


SHOW = CommandFunctions(show_arguments, run_show, SHOW_EXAMPLES)


# `penstock history`: what was published, repaired and moved of a dataset

HISTORY_EXAMPLES = ("penstock history imagenet", "penstock history imagenet --all --json")
_HISTORY = (
    TextColumn("TIME"), TextColumn("EVENT", least=10), TextColumn("RELEASE", least=17),
    TextColumn("BY", least=8), TextColumn("WHAT", least=20),
)  # fmt: skip
_SECOND = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def history_arguments(parser: argparse.ArgumentParser) -> None:
    flags.root(parser)
    flags.json_lines(parser)
    flags.dataset(parser, "name")
    flags.every_row(parser)


def run_history(parsed: argparse.Namespace, session: Session) -> int:
    from penstock.look import details

    history = details.history(dataset_choice.chosen_datasets(parsed, session).only(parsed.name))
    session.receipt({"datasets": {history["dataset"]: history}})
    rows = ({"dataset": history["dataset"], **row["line"]} for row in history["lines"])
    limit = None if parsed.all else flags.SHOWN_ROWS
    session.show_rows(rows, partial(render_history, [history], limit))
    return 0


def render_history(
    histories: Sequence[History], limit: int | None = None, columns: int = COLUMNS
) -> list[Line]:
    """Render a table for each dataset, newest line first; with `limit` so many, and the count of the rest."""
    shown: list[Line] = []
    for history in histories:
        shown.append(Line(printable(history["dataset"]), "bold"))
        if history["problem"]:
            shown += said(f"! no history: {history['problem']}", 2, columns, "yellow")
        rows = history["lines"][:limit]
        table = lines(_HISTORY, [_line(row) for row in rows], columns=columns, indent=2)
        shown += [Line(text, "dim") for text in table[0]] if rows else []
        shown += [Line(text) for texts in table[1:] for text in texts]
        if len(rows) < len(history["lines"]):
            shown.append(
                Line(f"  and {human.counted(len(history['lines']) - len(rows), 'earlier line')} (--all)")
            )
        if history["damaged"]:
            shown.append(Line(f"  {human.counted(history['damaged'], 'damaged line')} passed over", "yellow"))
    return shown


def _line(row: HistoryRow) -> list[str]:
    event = row["event"] if row["known"] else f"{row['event']} (not known to this version)"
    at = brief(_minute(row["at"]), len("2026-03-14 12:03:11.000000+00:00"))
    return [at, brief(event), brief(row["release"], 128), brief(row["by"]), brief(row["text"], 500)]


def _minute(text: str) -> str:
    """Shorten a time to `2026-03-14 12:03Z`; leave other texts."""
    return moment(text)[:16] + "Z" if _SECOND.fullmatch(text) else moment(text)


HISTORY = CommandFunctions(history_arguments, run_history, HISTORY_EXAMPLES)


# `penstock du`: how much room datasets take

DU_EXAMPLES = ("penstock du imagenet", "penstock du --root /beegfs/datasets")
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
_AREA_NAMES = {
    "staging": "staging {}",
    "repair": "repair {}",
    "removed": "being removed {}",
    "removing": "mark {}",
    "state": "state",
    "other": "the rest",
}
_AREA_STATES = {
    "taken back": " (taken back)",
    "left": " (left by a run that did not end)",
    "under way": " (under way)",
}


def du_arguments(parser: argparse.ArgumentParser) -> None:
    flags.datasets(parser)
    flags.root(parser)
    flags.json_lines(parser)


def run_du(parsed: argparse.Namespace, session: Session) -> int:
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
    session.show_rows(uses, partial(render_use, uses))
    return code


def render_use(uses: Sequence[DiskUse], columns: int = COLUMNS) -> list[Line]:
    lines: list[Line] = []
    for use in uses:
        lines += _use_lines(use, columns)
    return lines or [Line("there is no dataset below this root")]


def _use_lines(use: DiskUse, columns: int) -> Iterator[Line]:
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
    what = _AREA_NAMES.get(use["kind"], "{}").format(use["name"]) + _AREA_STATES.get(use["state"], "")
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


DU = CommandFunctions(du_arguments, run_du, DU_EXAMPLES)
