"""Datasets, their releases and their history as text (`catalogue`). Guarantee: every name is escaped; lines
have at most COLUMNS columns, but for a path, a digest or a URL, which is never broken."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from penstock.core import human
from penstock.core.text import TEXT, brief, printable
from penstock.views import findings_text, linked_text, text_block
from penstock.views.aligned_table import COLUMNS, Column, lines
from penstock.views.styled_lines import Line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.core.documents.catalogue_rows import (
        Amount,
        DatasetRow,
        History,
        HistoryRow,
        OwnerJson,
        ReleaseRow,
        ReleaseShown,
        StagingRow,
    )

HOLDERS = 3
"""Of a release that are named in the table."""
_RELEASES = (
    Column(""),
    Column("RELEASE", least=17),
    Column("SIZE", right=True),
    Column("FILES", right=True),
    Column("GRADE", least=9),
    Column("AGE", right=True),
    Column("LAST AUDIT", least=10),
)
_HISTORY = (
    Column("TIME"), Column("EVENT", least=10), Column("RELEASE", least=17), Column("BY", least=8),
    Column("WHAT", least=20),
)  # fmt: skip
_SECOND = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_KINDS = {
    ("staging", "under way"): "being staged",
    ("staging", "left"): "left by a run that did not end",
    ("staging", "unknown"): "staging, of which its owner alone knows whether it is under way",
    ("repair", "unknown"): "of a repair",
    ("removing", "unknown"): "the mark of a removal that begins",
    ("removed", "unknown"): "a release whose files are being removed",
    ("removed", "taken back"): "of a removal that was taken back",
}


def releases(found: Sequence[DatasetRow], columns: int = COLUMNS) -> list[Line]:
    """A block a dataset: what there is in all, a row a release, what lies beside them."""
    told: list[Line] = []
    for row in found:
        told += _dataset(row, columns)
    return told or [Line("there is no dataset below this root")]


def _dataset(row: DatasetRow, columns: int) -> Iterator[Line]:
    count, what = len(row["releases"]), ""
    if count:
        known = sum(one["files"] is not None for one in row["releases"])
        what = f": {human.counted(count, 'release')}"
        if known:
            what += f", {human.size(row['bytes'])} in {human.counted(row['files'], 'file')}"
            # What they take together on disk is known to a walk alone: `penstock du`.
            what += " (shared ones each time)" if known > 1 else ""
        if known < count:
            what += f", {human.count(count - known)} of them not known" if known else ", of unknown size"
        what += f", owner {_account(row['owner'])}" if row["owner"] else ""
    yield Line(printable(f"{row['dataset']}{what}"), "bold")
    if row["pause"]:
        yield from _said(f"PAUSE: {row['pause']}", 2, columns, "yellow")
    if row["hold"]:
        yield from _said(f"HOLD: {row['hold']}", 2, columns, "yellow")
    if row["problem"]:
        yield from _said(f"! {row['problem']}", 2, columns, "red" if row["releases"] else "yellow")
    tables = lines(_RELEASES, [_cells(one) for one in row["releases"]], columns=columns, indent=2)
    if count:
        yield from (Line(text, "dim") for text in tables[0])
    for one, texts in zip(row["releases"], tables[1:], strict=True):
        yield from (Line(text, "green" if one["current"] else "") for text in texts)
        if one["problem"]:
            yield from _said(f"! {_problem(one)}", 4, columns, "red")
        for who in one["held_by"][:HOLDERS]:
            yield from _said(f"held by {who}", 4, columns, "cyan")
        if more := len(one["held_by"][HOLDERS:]) + one["pins_unopened"]:
            least = "up to " if one["pins_unopened"] else ""
            yield Line(f"    and by {least}{human.count(more)} more (--json)", "cyan")
    for text in _beside(row["stagings"]):
        yield from _said(text, 2, columns, "dim")


def _cells(row: ReleaseRow) -> list[str]:
    last = row["last_audit"]
    audited = f"{brief(last.audit.status)}, {human.age(row['audit_age'])}" if last else "never"
    if last and last.closed:
        audited = brief(last.closed.partition("T")[0])
    known = row["files"] is not None
    return [
        "*" if row["current"] else "",
        row["release"],
        human.size(row["bytes"] or 0) if known else human.UNKNOWN,
        human.count(row["files"] or 0) if known else human.UNKNOWN,
        row["storage_grade"] or human.UNKNOWN,
        human.age(row["age"]),
        audited if known else human.UNKNOWN,
    ]


def _problem(row: ReleaseRow) -> str:
    state = "HELD" if row["state"] == "held" else row["state"]
    return row["problem"] if state == "published" else f"{state}: {row['problem']}"


def _beside(stagings: Sequence[StagingRow]) -> Iterator[str]:
    for one in stagings:
        kind = _KINDS.get((one["kind"], one["state"]), "hidden, and not of penstock")
        changed = f", changed {human.age(one['age'])} ago" if one["age"] is not None else ""
        yield f"beside them: {one['name']} ({kind}{changed})"


def shown(found: ReleaseShown, columns: int = COLUMNS) -> list[Line]:
    """One release in detail."""
    row = found["row"]
    current = " (current)" if row["current"] else ""
    told = [Line(printable(f"{found['dataset']}/{row['release']}{current}"), "bold")]
    if row["problem"]:
        told += _field("Problem", _problem(row), columns, "red")
    for title, text in _facts(found):
        told += _field(title, text, columns, "red" if title == "Findings" else "")
    for title, history in (("History", found["history"]), ("Audits", found["audits"])):
        for one in history:
            told += _field(title, f"{brief(_time(one['at']))}: {_event(one)}", columns)
            title = ""
    return told


def _facts(found: ReleaseShown) -> Iterator[tuple[str, str]]:
    row, seal = found["row"], found["seal"]
    yield "Path", row["path"]
    if found["owner"]:
        yield "Owner", _account(found["owner"])
    if seal is not None:
        yield from _sealed(found, seal)
    if row["last_audit"]:
        yield "Last audit", findings_text.last(row["last_audit"])
    elif seal is not None:
        yield "Last audit", "never"
    if seal is not None:
        since = found["read_back"]
        yield "Read back", f"all of it, last at {_time(since)}" if since else "never all of it"
    if row["findings"]:
        yield "Findings", f"{_counts(row['findings'])}: {found['advice']}"
    yield from _verdict(found["verdict"] or {})
    for one in row["held_by"]:
        yield "Held by", one
    if row["pins_unopened"]:
        yield "Held by", f"up to {human.count(row['pins_unopened'])} more pins"


def _sealed(found: ReleaseShown, seal: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    row = found["row"]
    files = row["files"] or 0
    giants = _number(seal, "giants")
    parts = f", {human.counted(giants, 'giant')} in parts of {human.size(_number(seal, 'part_bytes'))}"
    size = f"{human.size(row['bytes'] or 0)} ({human.count(row['bytes'] or 0)} bytes)"
    yield "Holds", f"{human.counted(files, 'file')}, {size}{parts if giants else ''}"
    by = f", by penstock {seal['penstock']}" if seal["penstock"] else ""
    run = f", run {seal['run']}" if seal["run"] else ""
    yield "Sealed", f"{_time(row['sealed'])}, {human.age(row['age'])} ago{by}{run}"
    yield "Seal", f"{found['seal_digest']}, {_SEALS[found['seal_in_history']]}"
    if found["signature"]:
        yield "Signature", found["signature"]
    for source in _maps(seal.get("sources")):
        into = f", into {source['into']}" if source["into"] else ""
        yield "Source", f"{source['url']}{into}"
    yield "Selected", _selected(seal)
    amended = seal.get("amended")
    if isinstance(amended, dict):
        span = f", read from {_time(amended['from'])} to {_time(amended['until'])}" if amended["from"] else ""
        changed = f"{human.count(amended['changed'])} changed, {human.count(amended['gone'])} gone"
        yield "Snapshot", f"no: the source was followed while it changed ({changed}{span})"
    yield "Linked", _linked(row)
    yield from (("Permissions", text) for text in _permissions(_map(seal.get("permissions"))))
    evidence = _map(seal.get("evidence"))
    yield "Source proof", _evidence(found["source_evidence"], evidence.get("required_source"))
    yield "Stored proof", _evidence(found["storage_evidence"], evidence.get("required_storage"))
    if carried := linked_text.words(seal.get("carried")):
        yield "Carried over", carried
    if evidence.get("fsync_ends"):
        yield "Durable", f"each fsync ended {evidence['fsync_ends']}"
    for one in found["manifests"]:
        size = "missing, or unreadable" if one["bytes"] is None else human.size(one["bytes"])
        yield "Manifest", f"{one['name']}, {size}"


_SEALS = {
    "same": "which is the one in the history",
    "differs": "WHICH IS NOT THE ONE IN THE HISTORY: it was changed since, or forged",
    "none": "which no line of the history names",
    "unreadable": "not compared with the history, which its owner alone can read",
}


def _selected(seal: Mapping[str, object]) -> str:
    told = [f"{human.counted(_number(seal, 'scanned'), 'object')} scanned"]
    for name in ("include", "exclude"):
        patterns = seal.get(name)
        if isinstance(patterns, (list, tuple)) and patterns:
            told.append(f"{name} {' '.join(map(str, patterns))}")
    ignored = {why: int(str(count)) for why, count in _map(seal.get("ignored")).items()}
    if left_out := human.of_kinds(ignored):
        told.append(f"left out: {', '.join(left_out)}")
    return "; ".join(told)


def _linked(row: ReleaseRow) -> str:
    if row["base"] is None or not row["unchanged"]:
        return "none of its files from an earlier release"
    return (
        f"{human.count(row['unchanged'])} of {human.counted(row['files'] or 0, 'file')}, from {row['base']}"
    )


def _permissions(held: Mapping[str, object]) -> Iterator[str]:
    octal = _map(held.get("octal"))
    told = [f"{what} {mode}" for what, mode in octal.items()]
    for title, number, name in (("group", "gid", "group"), ("owner", "uid", "user")):
        if held.get(number) is not None:
            told.append(f"{title} {held.get(name) or held[number]} ({held[number]})")
    yield ", ".join(told) or "not known"
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


def _evidence(amounts: Sequence[Amount], required: object) -> str:
    told = [
        f"{one['grade']} {human.counted(one['files'], 'file')} ({human.size(one['bytes'])})"
        for one in amounts
    ]
    return ", ".join(told) + (f"; required: {required}" if required else "") if told else "not known"


def _verdict(verdict: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    repair, overruled = _map(verdict.get("repair")), _map(verdict.get("overruled"))
    if repair:
        yield "Repaired", f"{_time(repair['at'])}: {repair['repaired']} repaired, {repair['left']} left"
    if overruled:
        counts = _counts(cast("Mapping[str, int]", overruled["counts"]))
        yield "Overruled", f"{_time(overruled['at'])} by {overruled['by']}: {overruled['why']} ({counts})"


def history(found: Sequence[History], limit: int | None = None, columns: int = COLUMNS) -> list[Line]:
    """A table a dataset, newest line first; with `limit` so many, and the count of the others."""
    told: list[Line] = []
    for one in found:
        told.append(Line(printable(one["dataset"]), "bold"))
        if one["problem"]:
            told += _said(f"! no history: {one['problem']}", 2, columns, "yellow")
        rows = one["lines"][:limit]
        table = lines(_HISTORY, [_line(row) for row in rows], columns=columns, indent=2)
        told += [Line(text, "dim") for text in table[0]] if rows else []
        told += [Line(text) for texts in table[1:] for text in texts]
        if len(rows) < len(one["lines"]):
            told.append(Line(f"  and {human.counted(len(one['lines']) - len(rows), 'earlier line')} (--all)"))
        if one["damaged"]:
            told.append(Line(f"  {human.counted(one['damaged'], 'damaged line')} passed over", "yellow"))
    return told


def _line(row: HistoryRow) -> list[str]:
    event = row["event"] if row["known"] else f"{row['event']} (not known to this version)"
    at = brief(_minute(row["at"]), len("2026-03-14 12:03:11.000000+00:00"))
    return [at, brief(event), brief(row["release"], 128), brief(row["by"]), brief(row["text"], 500)]


def _event(row: HistoryRow) -> str:
    by = f" by {brief(row['by'])}" if row["by"] else ""
    host = f" on {brief(row['host'])}" if row["host"] else ""
    release = f" {brief(row['release'], 128)}" if row["release"] else ""
    known = "" if row["known"] else " (not known to this version)"
    text = f": {brief(row['text'], 500)}" if row["text"] else ""
    return f"{brief(row['event'])}{known}{release}{by}{host}{text}"


def _field(title: str, text: str, columns: int, style: str = "") -> list[Line]:
    return [Line(line, style) for line in text_block.field(title, brief(text, TEXT), columns)]


def _said(text: str, indent: int, columns: int, style: str) -> list[Line]:
    wrapped = text_block.wrapped(brief(text, TEXT), columns - indent - 2)
    return [Line(" " * (indent + 2 * (number > 0)) + part, style) for number, part in enumerate(wrapped)]


def _time(text: object) -> str:
    """`2026-03-14 12:03:11Z`."""
    return str(text or human.UNKNOWN).replace("T", " ", 1)


def _minute(text: str) -> str:
    """`2026-03-14 12:03Z`; what is no such time as it is."""
    return _time(text)[:16] + "Z" if _SECOND.fullmatch(text) else _time(text)


def _account(owner: OwnerJson | None) -> str:
    if owner is None:
        return human.UNKNOWN
    return owner["user"] or f"uid {owner['uid']}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{human.count(count)} {kind}" for kind, count in sorted(counts.items()))


def _number(held: Mapping[str, object], name: str) -> int:
    value = held.get(name)
    return value if isinstance(value, int) else 0


def _map(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _maps(value: object) -> Sequence[Mapping[str, object]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, (list, tuple)) else []
