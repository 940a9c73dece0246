"""The lines of a dataset's history (`history.jsonl`) and of its audits (`audits.jsonl`), for people.

Lines of an unknown event or format, from a newer version, show the event's name and fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import dataset_documents, human, typed_json
from penstock.core.dataset_documents import (
    CtimeInterval,
    Publication,
    Removal,
    Repair,
    Rollback,
    Signing,
    Unpinning,
)
from penstock.core.errors import NewerFormatError
from penstock.fs import small_files
from penstock.look.untrusted_folder import Folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.core.catalogue_rows import History, HistoryRow
    from penstock.core.dataset_documents import HistoryLine
    from penstock.core.layout import DatasetLayout

# fields with a column of their own, or without meaning for people
_SHOWN_APART = frozenset({"format", "event", "at", "dataset", "release", "by", "uid", "host", "user"})
MOST = 50_000  # lines
OWNERS_ALONE = "it is readable for the dataset's owner alone"


def history(layout: DatasetLayout) -> History:
    """Return the lines of `history.jsonl`, newest first, without intervals, which say nothing to people. If
    the history is missing or unreadable, there are none, and `problem` says why."""
    return _lines(layout, layout.history)


def audits(layout: DatasetLayout) -> History:
    """As `history`, for `audits.jsonl`."""
    return _lines(layout, layout.audit_history)


def _lines(layout: DatasetLayout, path: Path) -> History:
    shown: History = {"dataset": layout.dataset, "path": str(path), "problem": "", "lines": [], "damaged": 0}
    try:
        with Folder(layout.state) as folder:
            content = folder.read(path.name)
        typed_json.check_bounds(content)
    except FileNotFoundError:
        shown["problem"] = "nothing was written there yet"
        return shown
    except NotADirectoryError:
        shown["problem"] = "it lies below a `target.state_root` that is not configured here"
        return shown
    except PermissionError:
        shown["problem"] = OWNERS_ALONE
        return shown
    except ValueError as error:  # also if it is no plain file
        shown["problem"] = str(error)
        return shown
    except OSError as error:
        shown["problem"] = str(error.strerror)
        return shown
    rows: list[HistoryRow] = []
    for raw in small_files.backwards(content):
        if len(rows) + shown["damaged"] == MOST:
            shown["problem"] = f"only its last {MOST} lines are shown"
            break
        try:
            line = typed_json.loads(raw)
        except ValueError:
            shown["damaged"] += 1
            continue
        if line.get("event") != CtimeInterval.event:
            rows.append(_row(raw, line, path))
    shown["lines"] = rows
    return shown


def _row(raw: bytes, line: Mapping[str, object], path: Path) -> HistoryRow:
    def text(*names: str) -> str:
        value = next((line[name] for name in names if line.get(name) is not None), "")
        return value if isinstance(value, str) else str(value)

    event = text("event") or "?"
    try:
        # Lines of `audits.jsonl` have no format.
        sentence = (
            _AUDITS[event](line) if event in _AUDITS else _told(dataset_documents.line_from_json(raw, path))
        )
    except (NewerFormatError, ValueError):
        sentence = None
    return {
        "at": text("at"),
        "event": event,
        "release": text("release"),
        "by": text("by", "user"),
        "host": text("host"),
        "text": _fields(line) if sentence is None else sentence,
        "known": sentence is not None,
        "line": line,
    }


def _told(line: HistoryLine) -> str | None:
    """Say what was done; None for an unknown event."""
    if isinstance(line, Publication):
        amount = f"{human.counted(line.files, 'file')}, {human.size(line.bytes)}"
        renamed = f", {human.count(line.renamed)} of them renamed" if line.renamed else ""
        return f"{amount}{renamed}"
    if isinstance(line, Rollback):
        return f"from {line.left}" if line.left else "from another release"
    if isinstance(line, Repair):
        repaired = line.counts.repaired or len(line.repaired)
        left = line.counts.unrepairable or len(line.unrepairable)
        text = f"{human.counted(repaired, 'file')} repaired"
        text += f", {human.count(left)} could not be" if left else ""
        return f"{text}; {human.size(line.fetched_bytes)} fetched"
    if isinstance(line, Removal):
        return f"{human.counted(line.files, 'file')}, {human.size(line.bytes)}: {line.why}"
    if isinstance(line, Unpinning):
        return line.told or line.pin
    if isinstance(line, Signing):
        return "its seal was signed"
    return None


def _fields(line: Mapping[str, object]) -> str:
    """Format the fields of a line that this version cannot explain."""
    fields = [f"{name}: {value}" for name, value in line.items() if name not in _SHOWN_APART and _says(value)]
    return ", ".join(fields)


def _says(value: object) -> bool:
    return value not in (None, "", [], {}) and not isinstance(value, (list, dict))


def _audit(line: Mapping[str, object]) -> str:
    counts = line.get("counts")
    kinds = counts if isinstance(counts, dict) else {}
    text = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return f"{line.get('choice', '')}: {line.get('status', '')}".strip(": ") + (f" ({text})" if text else "")


def _overruled(line: Mapping[str, object]) -> str:
    return f"findings overruled: {line.get('why', '')}"


_AUDITS = {"audit": _audit, "overrule": _overruled}
