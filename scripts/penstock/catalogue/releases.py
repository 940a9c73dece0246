"""A dataset's releases as rows: what the seal, the verdict and the folder's owner say of each.

A release that cannot be shown in full is one row that says why; the others are not touched by it:

| what is there                                  | `state`      |
|------------------------------------------------|--------------|
| a folder with its seal                         | `published`  |
| a seal that is missing, cut off or another's   | `damaged`    |
| a seal of a newer format                       | `newer`      |
| a folder or seal that this account cannot read | `unreadable` |
| a folder of another account than the dataset's | `foreign`    |
| no folder at all                               | `damaged`    |
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from penstock.catalogue.reading import Folder
from penstock.core.documents import verdict as verdict_document
from penstock.core.layout import DATA, SEAL
from penstock.errors import FailedError, NewerFormatError, PenstockError
from penstock.filesystem.owners import user_name
from penstock.policy import pause
from penstock.state import auditor_verdicts, run_claims, seals, verdicts
from penstock.state.run import read_run
from penstock.storage.registry import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.catalogue.holders import Holders
    from penstock.core.documents.catalogue_rows import DatasetRow, OwnerJson, ReleaseRow, StagingRow
    from penstock.core.documents.verdict import Verdict
    from penstock.core.layout import DatasetLayout
    from penstock.state.seals import Stored

PUBLISHED, DAMAGED, NEWER, UNREADABLE, FOREIGN = "published", "damaged", "newer", "unreadable", "foreign"
_HIDDEN = re.compile(r"\.(?P<release>.+)\.(?P<kind>staging|repair)")
_STARTS = {".removed-": "removed", ".removing-": "removing"}


class Read(NamedTuple):
    """One release, with the documents that its row was made of."""

    row: ReleaseRow
    owner: OwnerJson | None
    seal: Stored | None
    verdict: Verdict | None
    """The owner's, with what auditors said."""


def dataset_row(
    layout: DatasetLayout,
    holders: Holders,
    now: datetime | None = None,
    *,
    auditors: Sequence[str] = (),
) -> DatasetRow:
    """The dataset, its releases (the newest first) and the hidden folders beside them. What these `auditors`
    found counts, beside what the owner did. Raises nothing for what lies there, whatever it is."""
    now = now or datetime.now(UTC)
    row: DatasetRow = {
        "dataset": layout.dataset,
        "path": str(layout.folder),
        "owner": None,
        "current": None,
        "problem": "",
        "pause": pause.words(layout.root),
        "releases": [],
        "files": 0,
        "bytes": 0,
        "stagings": [],
    }
    try:
        with Folder(layout.folder) as folder:
            row["owner"] = owner_of(os.fstat(folder.fd))
            row["current"], row["problem"] = _current(layout)
            names = folder.names(layout.releases.name)
            held = holders(layout)
            found = [
                release_row(
                    folder, layout, name, row["current"], held.get(name, ()), now, auditors=auditors
                ).row
                for name in names
                if not name.startswith(".")
            ]
            row["stagings"] = list(_stagings(folder, layout, names, now))
    except FileNotFoundError:
        row["problem"] = row["problem"] or "nothing is published or staged here yet"
        return row
    except OSError as error:
        row["problem"] = _why(error)
        return row
    row["releases"] = sorted(found, key=lambda one: (one["sealed"] or "", one["release"]), reverse=True)
    row["files"] = sum(one["files"] or 0 for one in found)
    row["bytes"] = sum(one["bytes"] or 0 for one in found)
    if row["current"] is not None and row["current"] not in names:
        row["problem"] = f"`current` names {row['current']}, which is not there"
    return row


def release_row(
    folder: Folder,
    layout: DatasetLayout,
    name: str,
    current: str | None,
    held: Sequence[str],
    now: datetime,
    *,
    auditors: Sequence[str] = (),
) -> Read:
    """One release below the dataset's folder."""
    row: ReleaseRow = {
        "release": name,
        "path": str(layout.release(name) / DATA),
        "current": name == current,
        "state": PUBLISHED,
        "problem": "",
        "files": None,
        "bytes": None,
        "sealed": None,
        "age": None,
        "source_grade": "",
        "storage_grade": "",
        "base": None,
        "unchanged": 0,
        "last_audit": None,
        "audit_age": None,
        "findings": {},
        "auditor": "",
        "auditors_found": "",
        "held_by": list(held),
    }
    owner, stored, verdict = None, None, None
    try:
        seen = folder.lstat(f"{layout.releases.name}/{name}")
        owner = owner_of(seen)
        if not stat.S_ISDIR(seen.st_mode):
            raise ValueError("it is no folder (links are not followed below the root)")
        stored = _seal(folder, layout, name)
    except NewerFormatError as error:
        row |= {"state": NEWER, "problem": error.why}
    except PermissionError as error:
        row |= {"state": UNREADABLE, "problem": _why(error)}
    except FileNotFoundError:
        missing = "its seal is missing" if owner else "there is no such release"
        row |= {"state": DAMAGED, "problem": missing}
    except ValueError as error:  # what is no plain file, too
        row |= {"state": DAMAGED, "problem": str(error)}
    except OSError as error:
        row |= {"state": UNREADABLE, "problem": _why(error)}
    top = os.fstat(folder.fd).st_uid
    if owner and owner["uid"] != top:
        why = f"it belongs to {account(owner)}, the dataset to {account(owner_of(os.fstat(folder.fd)))}"
        row |= {"state": FOREIGN, "problem": why}
    if stored is not None:
        _fill(row, stored, now)
        verdict, why = _verdict(folder, layout, name)
        row["problem"] = row["problem"] or why
        try:
            verdict = _with_auditors(row, layout, verdict, stored, auditors)
        except (FailedError, NewerFormatError) as error:
            row["problem"] = row["problem"] or f"{error.what}: {error.why}"
    if verdict is not None and stored is not None:
        _judge(row, verdict, stored, now)
    return Read(row, owner, stored, verdict)


def _fill(row: ReleaseRow, stored: Stored, now: datetime) -> None:
    seal = stored.seal
    row |= {
        "files": seal.files,
        "bytes": seal.bytes,
        "sealed": seal.sealed or None,
        "age": age_of(seal.sealed, now),
        "source_grade": seal.evidence.weakest_source,
        "storage_grade": seal.evidence.weakest_storage,
        "base": seal.base,
        "unchanged": seal.unchanged,
    }


def _judge(row: ReleaseRow, verdict: Verdict, stored: Stored, now: datetime) -> None:
    row["findings"] = verdicts.standing(verdict)
    if verdict.last is not None:
        row["last_audit"] = verdict.last.to_json()
        row["audit_age"] = age_of(verdict.last.ended, now)
    if verdict.seal != stored.digest:
        row["problem"] = row["problem"] or "its seal is not the one of the last audit's release"


def _with_auditors(
    row: ReleaseRow, layout: DatasetLayout, own: Verdict | None, stored: Stored, auditors: Sequence[str]
) -> Verdict | None:
    """The owner's verdict with those of auditors; the row says what is theirs. Raises FailedError."""
    said = auditor_verdicts.read(layout, row["release"], stored.digest, auditors)
    verdict = auditor_verdicts.with_said(layout, row["release"], own, stored.digest, said)
    row["auditors_found"] = auditor_verdicts.told(said, own)
    if verdict is not None and verdict.last is not None and verdict.last != (own and own.last):
        row["auditor"] = verdict.last.by
    return verdict


def _verdict(folder: Folder, layout: DatasetLayout, name: str) -> tuple[Verdict | None, str]:
    """What audits said, and why that cannot be read."""
    path = layout.verdict(name)
    try:
        return verdict_document.from_json(folder.read(f"{path.parent.name}/{path.name}"), path), ""
    except FileNotFoundError:
        return None, ""
    except NewerFormatError as error:
        why = error.why
    except ValueError as error:  # what is no plain file, too
        why = f"it is damaged: {error}"
    except OSError as error:
        why = _why(error)
    return None, f"what the last audit said cannot be read: {why}"


def _seal(folder: Folder, layout: DatasetLayout, name: str) -> Stored:
    """Raises OSError; ValueError for a seal that is damaged, or of another dataset or release."""
    path = layout.release(name) / SEAL
    content = folder.read(f"{layout.releases.name}/{name}/{SEAL}")
    try:
        stored = seals.of_content(content, path)
    except ValueError as error:
        raise ValueError(f"its seal is damaged: {error}") from None
    for key, wanted, found in (
        ("dataset", layout.dataset, stored.seal.dataset),
        ("release", name, stored.seal.release),
    ):
        if found != wanted:
            raise ValueError(f"its seal is that of another {key}, {found}")
    return stored


def _current(layout: DatasetLayout) -> tuple[str | None, str]:
    """The release that `current` names, and why that cannot be read."""
    try:
        return open_storage().current(layout), ""
    except PenstockError as error:
        return None, f"{error.what}: {error.why}"


def _stagings(
    folder: Folder, layout: DatasetLayout, names: Sequence[str], now: datetime
) -> Iterator[StagingRow]:
    hidden = [name for name in names if name.startswith(".")]
    running = _running(layout) if hidden else None
    for name in hidden:
        match = _HIDDEN.fullmatch(name)
        kind = next((kind for start, kind in _STARTS.items() if name.startswith(start)), "other")
        kind = match["kind"] if match else kind
        state = "unknown"
        if running is not None and kind == "staging":
            state = "under way" if match and match["release"] == running else "left"
        age = None
        with contextlib.suppress(OSError):
            seen = folder.lstat(f"{layout.releases.name}/{name}")
            age = max(0.0, now.timestamp() - seen.st_mtime)
            if kind == "removed" and not stat.S_ISDIR(seen.st_mode):
                state = "taken back"
        yield {"name": name, "kind": kind, "state": state, "age": age}


def _running(layout: DatasetLayout) -> str | None:
    """The release that the run makes which the dataset is claimed for; "" where there is no such run, None
    where this account cannot know."""
    try:
        os.listdir(layout.state)
        claim = run_claims.highest(layout)
        return read_run(layout.run(claim.run)).release if claim and claim.run else ""
    except (OSError, PenstockError):
        return None


def owner_of(seen: os.stat_result) -> OwnerJson:
    return {"uid": seen.st_uid, "user": user_name(seen.st_uid)}


def account(owner: OwnerJson) -> str:
    """The account's name, or its number where it has none."""
    return owner["user"] or f"uid {owner['uid']}"


def age_of(text: str, now: datetime) -> float | None:
    """Seconds since a time in UTC, ISO 8601; None for what is none, 0 for one to come."""
    try:
        then = datetime.fromisoformat(text)
    except ValueError:
        return None
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    return max(0.0, (now - then).total_seconds())


def _why(error: OSError) -> str:
    return str(error.strerror or error)
