"""The runs of a dataset on the target: on which run a step works, and which runs published or were replaced.
It also decides which release the link `current` shall name.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.core.dataset_documents import Publication, Rollback
from penstock.core.errors import FailedError, PreflightError
from penstock.core.layout import ADOPTED, EMPTY_FOLDERS, LISTING, STATED
from penstock.dataset import dataset_lock, release_records, seals
from penstock.dataset.documents import load_run
from penstock.fs import small_files
from penstock.fs.safe_open import storage_error
from penstock.target import dataset_folders, tree_removal

if TYPE_CHECKING:
    from collections.abc import Container
    from pathlib import Path

    from penstock.core.layout import DatasetLayout, RunLayout
    from penstock.dataset.documents import Run


# Decides which release the link `current` shall name. `target.reveal` moves the link.
#
# That is the release staged last, unless a person moved the link since (`penstock rollback`, or by hand).
# Then the link stays while the source still has the content published last. A run of other content moves it.

Move = Publication | Rollback  # history lines that say where `current` belongs


def moves(layout: DatasetLayout) -> list[Move]:
    """Return the history's lines about `current`, oldest first. Lines that a run wrote after another run
    claimed the dataset are left out: an earlier line has a higher claim number. Raises NewerFormatError,
    PermissionError, and the errors of `safe_open.storage_error` if the history cannot be read."""
    effective: list[Move] = []
    highest = 0
    try:
        lines = list(release_records.history_lines(layout))
    except PermissionError:
        raise
    except OSError as error:
        raise storage_error(error, "the history cannot be read", str(layout.history)) from error
    for line in reversed(lines):
        if not isinstance(line, Publication | Rollback):
            continue
        claim = highest if line.claim is None else line.claim
        if claim >= highest:
            effective.append(line)
            highest = claim
    return effective


def last_move(layout: DatasetLayout) -> Move | None:
    """Return the newest of `moves`. Raises as `moves`."""
    return next(reversed(moves(layout)), None)


def before(layout: DatasetLayout, release: str, existing: Container[str]) -> str | None:
    """Return the release that `current` named before `release`. If it no longer exists (`existing`), return
    the release before it, and so on; None if the history has none. Raises as `moves`.

    | history                                     | of    | before it |
    |---------------------------------------------|-------|-----------|
    | A, B and C were published                   | C     | B         |
    | A, B, C published; `current` led back to B  | B     | A         |
    | `current` led back to A; then D published   | D     | A         |
    | A, B and C were published, B was removed    | C     | A         |
    """
    moved = moves(layout)
    wanted: str | None = release
    while wanted is not None:
        at = next((i for i in reversed(range(len(moved))) if _published(moved[i], wanted)), None)
        if at is None:
            return None
        line = moved[at]
        earlier = (move.release for move in reversed(moved[:at]) if move.release != wanted)
        # A publish that was killed before it wrote its line does not know what `current` named before.
        previous = line.previous if isinstance(line, Publication) else None
        wanted = previous or next(earlier, None)
        if wanted is not None and wanted != release and wanted in existing:
            return wanted
        moved = moved[:at]
    return None


def _published(line: Move, release: str) -> bool:
    return isinstance(line, Publication) and line.release == release


def settled(run: Run) -> bool:
    """Whether `current` is where it belongs after this run, so that nothing is to be moved or noted.

    | `current` leads | the history's last line          | publish's receipt, | settled                      |
    |                 |                                  | or never planned   |                              |
    |-----------------|----------------------------------|--------------------|------------------------------|
    | nowhere         | any                              | any                | no: readers have nothing     |
    | to a release    | none (removed)                   | yes                | yes                          |
    | to a release    | none                             | no                 | no: stopped before `current` |
    | to a release    | publish of this run              | any                | yes, even if a person moved  |
    |                 |                                  |                    | it by hand since             |
    | to a release    | publish of this run, and then    | any                | yes: nobody's rollback is    |
    |                 | rollbacks                        |                    | undone by a plain rerun      |
    | to a release    | rollbacks alone (lines are lost),| any                | yes                          |
    |                 | the last from this release       |                    |                              |
    | to a release    | any other: the source has this   | any                | no                           |
    |                 | run's content again              |                    |                              |

    Raises FailedError if `current` is no link into `releases/`, and as `moves`.
    """
    if not dataset_folders.leads(run.layout):
        return False
    moved = moves(run.layout)
    if not moved:
        return run.folder.receipt("publish").exists() or not run.folder.plan.exists()
    published = [line for line in moved if isinstance(line, Publication)]
    return _about(published[-1] if published else moved[-1], run)


def kept(run: Run) -> str:
    """Say that `current` still names the release that a person chose; "" if it names this run's release or
    none. Requires a `settled` run."""
    current = dataset_folders.current(run.layout)
    if current in (None, run.release):
        return ""
    last = last_move(run.layout)
    if isinstance(last, Rollback) and last.release == current:
        by = f" by {last.author.by}" if last.author.by else ""
        return (
            f"release {run.release}, which holds what the source holds, is published, but `current` was "
            f"rolled back to {current} at {last.at}{by}: it stays there until the source changes; "
            f"`penstock rollback {run.dataset} {run.release}` leads it forward"
        )
    return (
        f"release {run.release} is published, and `current` was set to {current} since: it stays there "
        "until the source changes"
    )


def _about(last: Move, run: Run) -> bool:
    if isinstance(last, Rollback):
        return last.left == run.release
    return last.run == run.id and last.release == run.release


# The runs of a dataset on the target: on which run a step works, which run published a release, which runs
# `--new-release` replaced. Changes require the dataset's lock.

_KEPT = frozenset({"run.json", LISTING, STATED, EMPTY_FOLDERS, ADOPTED})


def open_run(layout: DatasetLayout, wanted: str = "") -> Run:
    """Open the run `wanted`, or else the run for which list claimed the dataset last. A workflow names the
    run that it listed, since another workflow may list meanwhile. Raises PreflightError if nothing was listed
    yet, and for an account other than the dataset's."""
    dataset_folders.check_owner(layout)
    if wanted:
        try:
            return load_run(layout, layout.run(wanted))
        except FailedError:
            # Another run that has claimed the dataset finally removes this run's state: then this raises
            # LockedError.
            dataset_lock.check_claim(layout, wanted)
            raise
    standing = dataset_lock.highest_claim(layout)
    if standing is None:
        raise PreflightError(
            "the source has not been listed yet",
            where=layout.dataset,
            hint=f"run `penstock step list {layout.dataset}` first",
        )
    if not standing.run:
        raise FailedError("a state file is damaged", where=str(layout.claims), hint="list again")
    return load_run(layout, layout.run(standing.run))


def sealed_run(layout: DatasetLayout, release: str) -> str | None:
    """Return the run that published `release`; "" if its seal cannot be read, None if it does not exist.
    Raises NewerFormatError."""
    folder = layout.release(release)
    if not os.path.lexists(folder):
        return None
    try:
        stored = seals.find(layout, release)
        return stored.seal.run if stored else ""
    except FailedError:
        return ""


def amended(layout: DatasetLayout) -> dict[str, tuple[str, str]]:
    """Return the runs whose releases have newer versions of objects than were listed (`changed: follow`). The
    values are two digests: of the listing that the run froze, and of the listing that its release has.
    Releases with an unreadable seal are left out."""
    digests = {}
    for release in dataset_folders.releases(layout):
        try:
            stored = seals.find(layout, release)
        except FailedError:
            continue
        if stored and stored.seal.amended:
            digests[stored.seal.run] = stored.seal.listing, stored.seal.amended.listing
    return digests


def replaced(layout: DatasetLayout) -> frozenset[str]:
    """Return the runs replaced by `--new-release`: list does not reuse them, plan does not link from them."""
    try:
        return frozenset(os.listdir(layout.replaced))
    except FileNotFoundError:
        return frozenset()


def replace(layout: DatasetLayout, run: str) -> None:
    """Mark a run as replaced, durably: from now on its content is staged as a new run."""
    small_files.make_dirs(layout.replaced)
    small_files.create_file(layout.replaced / run, b"")


def published(run: Run) -> bool:
    """Whether the run is finished: its sealed release exists, `current` is where it belongs, and publish
    ended. Raises FailedError if `current` is no link into `releases/`."""
    sealed = sealed_run(run.layout, run.release) == run.id
    return sealed and settled(run) and publish_ended(run)


def publish_ended(run: Run) -> bool:
    """Whether publish finished for a run whose sealed release exists, whichever release `current` names."""
    return run.folder.receipt("publish").exists() or not run.folder.plan.exists()


def drop_derived(folder: RunLayout) -> bool:
    """Remove a run's files except its listing and description, the plan last. The removal is durable on
    return. Returns whether anything was removed. Raises OSError."""
    derived = [name for name in os.listdir(folder.folder) if name not in _KEPT]
    for name in sorted(derived, key=lambda name: name == folder.plan.name):
        path = folder.folder / name
        if path.is_dir() and not path.is_symlink():
            tree_removal.remove_tree(path)
        else:
            path.unlink()
    small_files.fsync_dir(folder.folder)
    return bool(derived)


def replace_listing(spool: Path, folder: RunLayout) -> None:
    """Move the new listing in `spool` into an existing run. Raises OSError. Both listings have the same
    identity; other facts may differ, such as which objects are archived."""
    os.replace(spool / LISTING, folder.listing)
    small_files.fsync_dir(folder.folder)
