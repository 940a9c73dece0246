"""Shows people one release in detail, from its seal, verdict and history, and the lines of a dataset's
history and of its audits.
"""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.core import dataset_documents, human, typed_json
from penstock.core import findings as verdict_document
from penstock.core import seal as seal_document
from penstock.core.dataset_documents import (
    CtimeInterval,
    Publication,
    Removal,
    Repair,
    Rollback,
    Signing,
    Unpinning,
)
from penstock.core.errors import ConfigError, FindingsError, NewerFormatError, PenstockError, PreflightError
from penstock.core.grades import EVIDENCE_GRADES, SOURCE_GRADES
from penstock.core.layout import SIGNATURE
from penstock.dataset import gate, release_records, seals
from penstock.fs import small_files
from penstock.look.releases import Folder, release_row
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from penstock.core.catalogue_rows import GradeAmount, History, HistoryRow, ReleaseShown, ShownManifest
    from penstock.core.dataset_documents import HistoryLine
    from penstock.core.layout import DatasetLayout
    from penstock.core.seal import Amount, Seal
    from penstock.dataset.seals import Stored
    from penstock.look.releases import Holders, Read


# The lines of a dataset's history (`history.jsonl`) and of its audits (`audits.jsonl`), for people.
#
# Lines of a newer version, with an unknown event or format, are shown as the event's name and fields.

# fields of a line that have their own column, or no meaning for people
_SHOWN_APART = frozenset({"format", "event", "at", "dataset", "release", "by", "uid", "host", "user"})
MOST = 50_000  # number of lines that are shown, at most
OWNERS_ALONE = "it is readable for the dataset's owner alone"


def history(layout: DatasetLayout) -> History:
    """Return the lines of `history.jsonl`, newest first, except intervals, which are not for people. If the
    history is missing or unreadable, the result has no lines, and its `problem` says why."""
    return _lines(layout, layout.history)


def audits(layout: DatasetLayout) -> History:
    """Return the lines of `audits.jsonl`, in the same way as `history`."""
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
    except ValueError as error:  # also raised if the path is no plain file
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
    """Say in words what was done; None for an unknown event."""
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
    """Format the fields of a line whose event this version does not know."""
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


def shown(
    layout: DatasetLayout,
    release: str | None,
    holders: Holders,
    now: datetime | None = None,
    *,
    owners: Sequence[str] | None = None,
) -> ReleaseShown:
    """Return the named release or the current release, judged as in `dataset_row`. Raises ConfigError for an
    unknown release, PreflightError if nothing is published, FindingsError if `current` leads nowhere or
    folders are damaged."""
    now = now or datetime.now(UTC)
    try:
        with Folder(layout.folder) as folder:
            name, current = named(folder, layout, release)
            held = holders(layout).get(name)
            read = release_row(layout, name, current, held, now, owners=owners)
            manifests = _manifests(folder, layout, read)
    except OSError as error:
        raise unreadable(layout, error) from None
    lines = history(layout)
    stored, verdict = read.judgement.stored, read.judgement.verdict
    findings = read.row["findings"]
    since = release_records.read_since(verdict, stored.seal) if stored else None
    return {
        "dataset": layout.dataset,
        "row": read.row,
        "owner": read.owner,
        "seal": seal_document.RELEASE_SEAL.to_json(stored.seal) if stored else None,
        "seal_digest": stored.digest if stored else "",
        "seal_in_history": _in_history(
            lines["lines"], name, stored.digest if stored else "", lines["problem"]
        ),
        "signature": _signature(layout, name, stored) if stored else "",
        "source_evidence": _amounts(SOURCE_GRADES, stored.seal.evidence.source) if stored else [],
        "storage_evidence": _amounts(EVIDENCE_GRADES, stored.seal.evidence.storage) if stored else [],
        "manifests": manifests,
        "read_back": since.strftime("%Y-%m-%dT%H:%M:%SZ") if since else None,
        "verdict": verdict_document.VERDICT.to_json(verdict) if verdict else None,
        "advice": release_records.advice_on(layout.dataset, findings) if findings else "",
        "history": _of(lines["lines"], name),
        "audits": _of(audits(layout)["lines"], name),
    }


def named(folder: Folder, layout: DatasetLayout, release: str | None) -> tuple[str, str | None]:
    """Return the wanted release, and the release that `current` names. The beginning of a name is enough if
    no other release begins with it. Raises as `shown`, and OSError."""
    dataset_folders.check_shape(layout)
    try:
        current = gate.current(layout)
    except gate.NothingPublishedError as error:
        if release is None:
            raise PreflightError(
                error.what,
                where=error.where,
                why=error.why,
                hint=f"name a release: `penstock releases {layout.dataset}` lists them",
            ) from None
        current = None
    except (FindingsError, PreflightError):
        if release is None:
            raise
        current = None
    if release is None:
        return str(current), current
    if "/" in release or release.startswith("."):
        raise ConfigError(
            "this is no release's name", where=release, hint="`penstock releases` lists the names"
        )
    try:
        folder.lstat(f"{layout.releases.name}/{release}")
    except FileNotFoundError:
        meant = [name for name in folder.names(layout.releases.name) if name.startswith(release)]
        if len(meant) == 1:
            return meant[0], current
        raise ConfigError(
            f"{layout.dataset} has {human.counted(len(meant), 'release')} that begin so"
            if meant
            else f"{layout.dataset} has no such release",
            where=release,
            hint=", ".join(meant) or f"`penstock releases {layout.dataset}` lists them",
        ) from None
    return release, current


def unreadable(layout: DatasetLayout, error: OSError) -> ConfigError | PreflightError:
    """Return the error for a dataset's folder that cannot be opened."""
    if isinstance(error, FileNotFoundError):
        return ConfigError(
            f"there is no dataset {layout.dataset}",
            where=str(layout.folder),
            hint="`penstock releases` lists those that are there",
        )
    return PreflightError(
        "the dataset cannot be read by this account",
        where=str(layout.folder),
        why=str(error.strerror),
        hint="ask its owner for the group that may read it",
    )


def _in_history(lines: Sequence[HistoryRow], release: str, digest: str, problem: str) -> str:
    if problem == OWNERS_ALONE:
        return "unreadable"
    for line in lines:
        if line["event"] == "publish" and line["release"] == release:
            return "same" if line["line"].get("seal") == digest else "differs"
    return "none"


def _signature(layout: DatasetLayout, release: str, stored: Stored) -> str:
    if layout.signing.signers is None:
        exists = os.path.lexists(layout.release(release) / SIGNATURE)
        return f"{SIGNATURE} is there, and not verified: that needs `target.signers`" if exists else ""
    try:
        why = seals.problem(layout, release, stored)
    except (PenstockError, OSError) as error:
        return f"not verified: {error}"
    return f"DOES NOT HOLD: {why}" if why else "holds, by `target.signers`"


def _of(lines: Sequence[HistoryRow], release: str) -> list[HistoryRow]:
    """Return the history's lines about the release."""
    about = ("release", "from", "previous")
    return [line for line in lines if release in (line["line"].get(key) for key in about)]


def _amounts(order: Sequence[str], amounts: Mapping[str, Amount]) -> list[GradeAmount]:
    """Return the amounts, strongest grade first. Unknown grades come last."""
    ordered = [grade for grade in reversed(order) if grade in amounts]
    grades = ordered + sorted(set(amounts) - set(ordered))
    return [
        {"grade": grade, "files": amounts[grade].files, "bytes": amounts[grade].bytes} for grade in grades
    ]


def _manifests(folder: Folder, layout: DatasetLayout, read: Read) -> list[ShownManifest]:
    seal: Seal | None = read.judgement.stored.seal if read.judgement.stored else None
    manifests: list[ShownManifest] = []
    for name, sealed in (seal.manifests if seal else {}).items():
        size = None
        with contextlib.suppress(OSError):
            size = folder.lstat(f"{layout.releases.name}/{read.row['release']}/{name}").st_size
        manifests.append({"name": name, "bytes": size, "sha256": sealed.sha256})
    return manifests
