"""A dataset's releases as rows, each with the judgement of `dataset.gate` about whether a job may read it.
Also lists the datasets below a root, and reads folders that may belong to another account.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, Self

from penstock.core.errors import LOOK_AT_FILE, FailedError, PenstockError, PreflightError
from penstock.core.layout import ADOPT_TRIAL, DATASET_NAME, PROBE, UNDER_WAY
from penstock.dataset import (
    dataset_lock,
    gate,
    pins,
    release_records,
)
from penstock.dataset.documents import read_run
from penstock.dataset.pins import ShownPins
from penstock.fs import small_files
from penstock.fs.owners import user_name
from penstock.fs.safe_open import OPEN_FOLDER, open_beneath
from penstock.target import notices

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.core.catalogue_rows import DatasetRow, OwnerJson, ReleaseRow, StagingRow
    from penstock.core.dataset_documents import LastPin
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.gate import Judgement
    from penstock.dataset.seals import Stored


class Folder:
    """A folder, opened by descriptor; a context manager."""

    def __init__(self, path: Path) -> None:
        """Raises OSError; NotADirectoryError also for a link."""
        self.path = path
        self.fd = os.open(path, OPEN_FOLDER)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def names(self, below: str) -> list[str]:
        """Return the names in the folder `below`. Raises OSError."""
        fd = open_beneath(self.fd, below, OPEN_FOLDER)
        try:
            return sorted(os.listdir(fd))
        finally:
            os.close(fd)

    def lstat(self, below: str) -> os.stat_result:
        """Return the lstat of the path `below`, without following links in it. Raises OSError."""
        above, _, name = below.rpartition("/")
        fd = open_beneath(self.fd, above, OPEN_FOLDER) if above else os.dup(self.fd)
        try:
            return os.stat(name, dir_fd=fd, follow_symlinks=False)
        finally:
            os.close(fd)

    def read(self, below: str) -> bytes:
        """Return the bytes of a document. Raises OSError, including `small_files.NotPlainError`."""
        path = self.path / below
        try:
            fd = open_beneath(self.fd, below, small_files.FLAGS)
        except OSError as error:
            raise small_files.refused(error, path) from None
        return small_files.content(fd, path=path)


Holders = Callable[["DatasetLayout"], Mapping[str, ShownPins]]  # function that returns {held release: pins}


def nobody(_: DatasetLayout) -> Mapping[str, ShownPins]:
    """Return no holders, without reading pins."""
    return {}


_SIGNS = ("releases", "current", ".penstock", UNDER_WAY)  # names of which a dataset's folder has at least one


def datasets(root: Path, *, looked_into: bool = True) -> list[str]:
    """Return the sorted names of the datasets below `root`. They include unreadable folders and links that
    have a dataset's name, and all other folders with such names unless `looked_into`. Raises PreflightError
    if the root is missing or this account may not list it, FailedError if listing fails."""
    try:
        with os.scandir(root) as entries:
            return sorted(
                entry.name
                for entry in entries
                if DATASET_NAME.fullmatch(entry.name)
                and (_is_dataset(entry) if looked_into else entry.is_dir())
            )
    except (FileNotFoundError, NotADirectoryError) as error:
        raise PreflightError(
            "there is no such target",
            where=str(root),
            why=str(error.strerror),
            hint="correct `target.root` or --root",
        ) from None
    except PermissionError as error:
        raise PreflightError(
            "this account may not list the target",
            where=str(root),
            why=str(error.strerror),
            hint="name datasets of the configuration, or ask the root's owner for the permission to read it",
        ) from None
    except OSError as error:
        raise FailedError(
            "the target cannot be listed", where=str(root), why=str(error.strerror), hint=LOOK_AT_FILE
        ) from None


def _is_dataset(entry: os.DirEntry[str]) -> bool:
    if entry.is_symlink():
        return any(os.path.lexists(os.path.join(entry.path, sign)) for sign in _SIGNS)
    return entry.is_dir(follow_symlinks=False) and has_signs(entry.path)


def has_signs(folder: str | Path) -> bool:
    """Return whether a dataset's files are in the folder; True if this account may not look."""
    try:
        with os.scandir(folder) as inside:
            return any(inner.name in _SIGNS for inner in inside)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


# Rows of releases for `penstock releases`, `show` and `du`.
#
# If a release cannot be shown in full, its row says why, and the other releases are still shown. Sizes are in
# bytes, ages in seconds. None means missing or unknown.

_HIDDEN = re.compile(r"\.(?P<release>.+)\.(?P<kind>staging|repair)")
_EMPTY = "nothing is published or staged here yet"
_STARTS = {
    ".removed-": "removed",
    ".removing-": "removing",
    ".penstock-rehearsal": "rehearsal",
    PROBE: "trial",
    ADOPT_TRIAL: "trial",
}


class Read(NamedTuple):
    """A release's row, and the judgement from which it was made."""

    row: ReleaseRow
    owner: OwnerJson | None
    judgement: Judgement


def dataset_row(
    layout: DatasetLayout,
    holders: Holders,
    now: datetime | None = None,
    *,
    owners: Sequence[str] | None = None,
) -> DatasetRow:
    """Return the dataset with its releases (newest first) and hidden folders. Releases are judged as `gate`
    judges them for `owners`; None: the owner of the dataset's folder is trusted. `holders` returns the
    holders of releases (`pins.holding`, or `look.releases.nobody`). Damage in the dataset raises no error."""
    now = now or datetime.now(UTC)
    owner = _owner(layout.folder)
    trusted = _trusted(owner, owners)
    whole = current_judged(layout, owners)
    row: DatasetRow = {
        "dataset": layout.dataset,
        "path": str(layout.folder),
        "owner": owner,
        "current": whole.release or None,
        "state": whole.state,
        "problem": whole.problem if whole.state != gate.NOTHING else "",
        "pause": notices.words(layout.root),
        "hold": notices.warning(layout.root),
        "releases": [],
        "files": 0,
        "bytes": 0,
        "stagings": [],
    }
    try:
        with Folder(layout.folder) as folder:
            names = folder.names(layout.releases.name)
            row["stagings"] = list(_stagings(folder, layout, names, now))
        if not names:
            row["problem"] = row["problem"] or _EMPTY
        # If folders are damaged, the pins cannot be read.
        held = holders(layout) if whole.shaped else {}
        last = pins.last(layout) if whole.shaped else {}
    except FileNotFoundError:
        row["problem"] = row["problem"] or _EMPTY
        return row
    except OSError as error:
        row["problem"] = row["problem"] or _why(error)
        return row
    if whole.shaped and whole.release in names:
        row["problem"] = ""  # cleared, since the release's row states the problem
    rows = []
    for name in names:
        if not name.startswith("."):
            judgement = whole if name == whole.release else gate.judged(layout, trusted, release=name)
            rows.append(_row(judgement, row["current"], held.get(name), now, last))
    # If two releases were sealed in one second, the current release counts as newer.
    row["releases"] = sorted(
        rows,
        key=lambda entry: (entry["sealed"] or "", entry["release"] == whole.release, entry["release"]),
        reverse=True,
    )
    row["files"] = sum(entry["files"] or 0 for entry in rows)
    row["bytes"] = sum(entry["bytes"] or 0 for entry in rows)
    return row


def current_judged(layout: DatasetLayout, owners: Sequence[str] | None = None) -> Judgement:
    """Judge the release that `current` names, as `gate` does; `owners` as in `dataset_row`."""
    return gate.judged(layout, _trusted(_owner(layout.folder), owners))


def release_row(
    layout: DatasetLayout,
    name: str,
    current: str | None,
    held: ShownPins | None,
    now: datetime,
    *,
    owners: Sequence[str] | None = None,
) -> Read:
    """Return the row of one release, judged as in `dataset_row`. Damage raises no error. `current`: the
    release that the link names. `held`: the holders of this release."""
    trusted = _trusted(_owner(layout.folder), owners)
    judgement = gate.judged(layout, trusted, release=None if name == current else name)
    last = pins.last(layout) if judgement.shaped else {}
    return Read(_row(judgement, current, held, now, last), _owner(layout.release(name)), judgement)


def _trusted(owner: OwnerJson | None, owners: Sequence[str] | None) -> Sequence[str]:
    if owners is None and owner is not None:
        return (str(owner["uid"]),)
    return owners or ()


def _owner(path: Path) -> OwnerJson | None:
    try:
        return owner_of(path.lstat())
    except OSError:
        return None


def _row(
    judgement: Judgement,
    current: str | None,
    held: ShownPins | None,
    now: datetime,
    pinned: Mapping[str, LastPin],
) -> ReleaseRow:
    last, pin = release_records.last_audit_of(judgement.verdict), pinned.get(judgement.release)
    row: ReleaseRow = {
        "release": judgement.release,
        "path": str(judgement.data),
        "current": judgement.release == current,
        "state": judgement.state,
        "problem": judgement.problem,
        "files": None,
        "bytes": None,
        "sealed": None,
        "age": None,
        "source_grade": "",
        "storage_grade": "",
        "base": None,
        "unchanged": 0,
        "last_audit": last,
        "audit_age": age_of(last.audit.ended, now) if last else None,
        "findings": judgement.findings,
        "held_by": list(held.words) if held else [],
        "pins_unopened": held.unopened if held else 0,
        "last_pin": {
            "by": user_name(pin.uid) or f"uid {pin.uid}",
            "age": max(0.0, now.timestamp() - pin.at),
        }
        if pin
        else None,
    }
    if judgement.stored is not None:
        _fill(row, judgement.stored, now)
    return row


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
            status = folder.lstat(f"{layout.releases.name}/{name}")
            age = max(0.0, now.timestamp() - status.st_mtime)
            if kind == "removed" and not stat.S_ISDIR(status.st_mode):
                state = "taken back"
        yield {"name": name, "kind": kind, "state": state, "age": age}


def _running(layout: DatasetLayout) -> str | None:
    """Return the release of the run that has claimed the dataset; "" if no run has, None if this account
    cannot know."""
    try:
        os.listdir(layout.state)
        claim = dataset_lock.highest_claim(layout)
        return read_run(layout.run(claim.run)).release if claim and claim.run else ""
    except (OSError, PenstockError):
        return None


def owner_of(status: os.stat_result) -> OwnerJson:
    return {"uid": status.st_uid, "user": user_name(status.st_uid)}


def account(owner: OwnerJson) -> str:
    """Return the account's name, or its number if it has no name."""
    return owner["user"] or f"uid {owner['uid']}"


def age_of(text: str, now: datetime) -> float | None:
    """Return the seconds since a time in UTC, ISO 8601; None for an invalid time, 0 for a future time."""
    try:
        then = datetime.fromisoformat(text)
    except ValueError:
        return None
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    return max(0.0, (now - then).total_seconds())


def _why(error: OSError) -> str:
    return str(error.strerror or error)
