"""The runs of a dataset on the target: which run a step works on, which one published a release, which ones
`--new-release` replaced. Changes require the dataset's lock."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.core.errors import FailedError, PreflightError
from penstock.core.layout import ADOPTED, EMPTY_FOLDERS, LISTING, STATED
from penstock.dataset import current_pointer, run_claims, seals
from penstock.dataset.run import load
from penstock.fs import small_files
from penstock.target import dataset_folders, tree_removal

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.layout import DatasetLayout, RunLayout
    from penstock.dataset.run import Run


_KEPT = frozenset({"run.json", LISTING, STATED, EMPTY_FOLDERS, ADOPTED})


def open_run(layout: DatasetLayout, wanted: str = "") -> Run:
    """Open the run `wanted`, or else the run that list claimed the dataset for last. A workflow names the run
    that it listed, since another may have listed since. Raises PreflightError if nothing was listed yet, and
    for an account other than the dataset's."""
    dataset_folders.check_owner(layout)
    if wanted:
        try:
            return load(layout, layout.run(wanted))
        except FailedError:
            # A run that overtook this one finally removes its state: then this raises LockedError.
            run_claims.check(layout, wanted)
            raise
    standing = run_claims.highest(layout)
    if standing is None:
        raise PreflightError(
            "the source has not been listed yet",
            where=layout.dataset,
            hint=f"run `penstock step list {layout.dataset}` first",
        )
    if not standing.run:
        raise FailedError("a state file is damaged", where=str(layout.claims), hint="list again")
    return load(layout, layout.run(standing.run))


def sealed_run(layout: DatasetLayout, release: str) -> str | None:
    """Return the run that published `release`; "" if its seal cannot be read, None without such a release.
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
    """Return the runs whose releases hold newer versions of objects than were listed (`changed: follow`). By
    run id: the digests of the listing that the run froze and of the one that its release holds. Releases with
    an unreadable seal are left out."""
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
    """Return the runs replaced by `--new-release`: list reuses none, and plan links nothing from their
    releases."""
    try:
        return frozenset(os.listdir(layout.replaced))
    except FileNotFoundError:
        return frozenset()


def replace(layout: DatasetLayout, run: str) -> None:
    """Mark a run as replaced, durably: the same content is staged as a new run from now on."""
    small_files.make_dirs(layout.replaced)
    small_files.create_file(layout.replaced / run, b"")


def published(run: Run) -> bool:
    """Whether the run is finished: its sealed release stands, `current` is where it belongs, and publish
    ended. Raises FailedError if `current` is no link into `releases/`."""
    sealed = sealed_run(run.layout, run.release) == run.id
    return sealed and current_pointer.settled(run) and publish_ended(run)


def publish_ended(run: Run) -> bool:
    """Whether publish finished for a run whose sealed release stands, whatever `current` names."""
    return run.folder.receipt("publish").exists() or not run.folder.plan.exists()


def drop_derived(folder: RunLayout) -> bool:
    """Remove all of a run but its listing and description, the plan last. Durable on return. Returns whether
    anything was removed. Raises OSError."""
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
    """Move the new listing in `spool` into an existing run. Raises OSError. Both have the same identity; the
    rest may differ, such as which objects are archived."""
    os.replace(spool / LISTING, folder.listing)
    small_files.fsync_dir(folder.folder)
