"""`penstock show`: one release in detail. Reads only, for any account."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from penstock.cli import dataset_choice, flags
from penstock.cli.command_table import CommandFunctions
from penstock.core import human
from penstock.core.errors import FindingsError
from penstock.core.human import TEXT, brief, printable
from penstock.look.views import result_texts, text_layout
from penstock.look.views.result_texts import account, moment, problem
from penstock.look.views.text_layout import COLUMNS, Line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.cli.session import Session
    from penstock.core.catalogue_rows import (
        GradeAmount,
        HistoryRow,
        ReleaseRow,
        ReleaseShown,
    )

EXAMPLES = ("penstock show imagenet", "penstock show imagenet 20261101-1f2e3d4c --json")
_SEALS = {
    "same": "which is the one in the history",
    "differs": "WHICH IS NOT THE ONE IN THE HISTORY: it was changed since, or forged",
    "none": "which no line of the history names",
    "unreadable": "not compared with the history, which its owner alone can read",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.root(parser)
    flags.json_lines(parser)
    flags.dataset(parser, "name")
    flags.release(parser)


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Show the release. Returns 4 where it is damaged, as `gate` would."""
    from penstock.dataset import pins
    from penstock.dataset.gate import BAD
    from penstock.look import details

    datasets = dataset_choice.chosen_datasets(parsed, session)
    layout, name = datasets.release(parsed.name, parsed.release)
    holders = pins.holding()
    release = details.shown(layout, name, holders, owners=datasets.owners)
    session.receipt(release)
    session.show_rows([release], partial(render, release), hints=True)
    return FindingsError.exit_code if release["row"]["state"] in BAD else 0


def render(release: ReleaseShown, columns: int = COLUMNS) -> list[Line]:
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
        yield "Last audit", result_texts.last(row["last_audit"])
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
    if carried := result_texts.carried(seal.get("carried")):
        yield "Carried over", carried
    if delay := result_texts.delay(evidence.get("read_after")):
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


SHOW = CommandFunctions(arguments, run, EXAMPLES)
