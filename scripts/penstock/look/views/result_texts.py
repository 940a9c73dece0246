"""Results of commands as plain text: findings, removals of gc, releases, readings of files, and previews of
dry runs. Every name is escaped, so that no file name can control a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.core import human
from penstock.core.grades import SOON
from penstock.core.human import TEXT, brief
from penstock.look.views import text_layout
from penstock.look.views.text_layout import Line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.core.catalogue_rows import OwnerJson, PinnedBy, ReleaseRow
    from penstock.core.findings import AuditShown
    from penstock.core.step_results import Collected, DryRunResult, Preview


# The common text of audits, repairs and adoptions: a line for each finding, which begins with a mark.

SHOWN = 50
WIDTH = 12
METHODS = {
    "disk": "read from the servers' disks by direct I/O",
    "direct": "read past the page cache by direct I/O",
    "dropped": "read after the page cache was emptied of it",
    "cached": "read, perhaps from memory",
}


def last(shown: AuditShown) -> str:
    """Describe a release's last audit in one line: time, extent, result, and what closed its findings."""
    audit = shown.audit
    counts = ", ".join(f"{human.count(n)} {kind}" for kind, n in sorted(audit.counts.items()))
    much = f"{human.count(audit.files)} of {human.counted(audit.of_files, 'file')}, {human.size(audit.bytes)}"
    left = ", ".join(f"{human.count(n)} {kind}" for kind, n in sorted(audit.skipped.items()))
    details = ", ".join(filter(None, (counts, left and f"not read: {left}")))
    text = f"{audit.ended}, {audit.choice}, {much}: {audit.status}" + (f" ({details})" * bool(details))
    return f"{text}, {shown.closed}" if shown.closed else text


def table(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return a line for each (mark, path, why)."""
    return [f"  {mark} {human.printable(path)}  ({human.printable(why)})" for mark, path, why in rows]


def line(title: str, value: object) -> str:
    """Return a line of a table, with its title."""
    return text_layout.field(title, str(value), width=WIDTH)[0]


PINS = 20  # number of ended pins that are named, at most


def collected(removal: Collected, columns: int = 0) -> str:
    """Return a block for one dataset. Lines beyond `columns` (0: no limit) continue indented."""
    gone = [release for release in removal["releases"] if release["removed"]]
    would = removal["dry_run"]
    verb = "would remove" if would else "removed"
    lines = [
        f"{removal['dataset']}: {verb} {len(gone)} of {human.counted(len(removal['releases']), 'release')}"
    ]
    for release in removal["releases"]:
        amount = f"{human.size(release['bytes'])} in {human.counted(release['files'], 'file')}"
        mark, why = ("-", "nothing holds it") if release["removed"] else ("=", "; ".join(release["held_by"]))
        lines.append(f"  {mark} {human.printable(release['release'])}  {amount}: {human.printable(why)}")
    for staging in removal["stagings"]:
        why = f": stays, {staging['why']}" if staging["why"] else ""
        lines.append(f"  {'=' if why else '-'} {human.printable(staging['staging'])}{human.printable(why)}")
    if removal["interrupted"]:
        what = human.counted(len(removal["interrupted"]), "folder")
        lines.append(f"  {what} of an interrupted removal {'would be' if would else 'were'} removed, too")
    lines += [f"  pin {human.printable(pin)}" for pin in removal["ended_pins"][:PINS]]
    if len(removal["ended_pins"]) > PINS:
        lines.append(f"  and {len(removal['ended_pins']) - PINS:,} more pins that stand no more")
    done = "would be" if would else "was"
    lines += [f"  pin {human.printable(name)} {done} taken back" for name in removal["unpinned"]]
    if gone or removal["interrupted"] or any(staging["removed"] for staging in removal["stagings"]):
        lines += removal["frees"].in_words("would free" if would else "freed, as counted before")
    if folder := removal.get("gone"):
        lines.append(f"  the dataset {'would go' if would else 'is gone'}, {human.printable(folder)}")
    if removal["waits"]:
        lines.append(f"  {human.printable(removal['waits'])}")
    return "".join(f"{text}\n" for line in lines for text in _wrapped(line, columns))


def _wrapped(line: str, columns: int) -> list[str]:
    if not columns or len(line) <= columns:
        return [line]
    below = " " * (len(line) - len(line.lstrip()) + 2)
    return text_layout.wrapped(line, columns, below=below)


# Texts common to releases, show and history. Only paths, digests and URLs exceed the given columns.


def problem(row: ReleaseRow) -> str:
    state = "HELD" if row["state"] == "held" else row["state"]
    return row["problem"] if state == "published" else f"{state}: {row['problem']}"


def said(text: str, indent: int, columns: int, style: str) -> list[Line]:
    wrapped = text_layout.wrapped(brief(text, TEXT), columns - indent - 2)
    return [Line(" " * (indent + 2 * (number > 0)) + line, style) for number, line in enumerate(wrapped)]


def moment(text: object) -> str:
    """Format `2026-03-14 12:03:11Z`."""
    return str(text or human.UNKNOWN).replace("T", " ", 1)


def last_pinned(pin: PinnedBy) -> str:
    return f"last pinned by {pin['by']}, {human.age(pin['age'])} ago"


def account(owner: OwnerJson | None) -> str:
    if owner is None:
        return human.UNKNOWN
    return owner["user"] or f"uid {owner['uid']}"


def carried(amount: object) -> str:
    """Describe the seal's `carried`; "" if every file was read.

    >>> carried({"files": 989010, "bytes": 1, "oldest_read": "2026-11-02T03:04:05Z"})
    'carried 989,010 files, the oldest reading of 2026-11-02'
    """
    if not isinstance(amount, Mapping) or not isinstance(files := amount.get("files"), int) or not files:
        return ""
    day = str(amount.get("oldest_read", ""))[:10]
    return f"carried {human.counted(files, 'file')}, the oldest reading of {day}"


def delay(read_after: object, *, servers: bool = False) -> str:
    """Describe the seal's `evidence.read_after`; "" if unknown. `servers`: whether servers may answer reads
    from their memory.

    >>> delay({"least": 190, "median": 2500, "soon": 7}, servers=True)
    'read back 3 min after writing at least, 41 min in the median'
    >>> delay({"least": 4, "median": 70, "soon": 7}, servers=True).partition("; ")[2]
    "a server's memory may have answered: `penstock audit --fraction` reads such files first"
    """
    if not isinstance(read_after, Mapping):
        return ""
    least, median = (human.age(read_after[name]) for name in ("least", "median"))
    text = f"read back {least} after writing at least, {median} in the median"
    if servers and read_after["median"] < SOON:
        text += "; a server's memory may have answered: `penstock audit --fraction` reads such files first"
    return text


# The preview of a dry run, as text, and the block of titled rows that list and plan print, too.

COLUMNS = 80  # columns of a line, except for long paths or URLs


def preview(result: DryRunResult, step: str = "run") -> str:
    """Return a block for each dataset of `run.rehearsal`, and a list of the work that a dry run omits."""
    datasets = result["datasets"]
    verb = "read back" if step == "audit" else "staged"
    head = f"Dry run: {human.counted(len(datasets), 'dataset')} would be {verb}. Nothing was changed.\n"
    return head + "".join(_would(preview_of_dataset) for preview_of_dataset in datasets.values())


def _would(preview: Preview) -> str:
    amount = ""
    if preview.get("current") and "files" in preview:
        amount = f": {human.counted(preview['files'], 'file')}, {human.size(preview.get('bytes', 0))}"
    rows = [
        *(("Source", url) for url in preview["sources"]),
        ("Target", f"{preview['target']} ({preview['backend']} elements)"),
        ("Current", f"{preview['current']}{amount}" if preview.get("current") else "none"),
        ("State", preview.get("state", "")),
        ("Locked", preview.get("lock", "")),
        ("Would", preview.get("would", "")),
        ("Takes", " ".join(preview.get("takes", "").split())),
        ("Problem", " ".join(preview.get("problem", "").replace("\n", "; ").split())),
    ]
    return block(preview["dataset"], rows)


def block(dataset: str, rows: Sequence[tuple[str, str]]) -> str:
    """Return the dataset's name, and its rows of title and text, wrapped. Rows without text are omitted."""
    lines = [dataset]
    for title, text in rows:
        lines += text_layout.field(title, text, COLUMNS) if text else []
    return "\n".join(lines) + "\n"
