"""The runs of a dataset as they lie on the target: which one a step works on, which one published a release,
which ones `--new-release` replaced, whether one is published; and the removal of what plan and later steps
made. Changes the state below `.penstock` alone, and reads seals; what changes it is called under the lock."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.core.errors import FailedError, PreflightError
from penstock.core.layout import ADOPTED, EMPTY_FOLDERS, LISTING, STATED
from penstock.dataset import current_pointer, run_claims, seals
from penstock.dataset.run import load
from penstock.fs import durable
from penstock.target import dataset_folders, tree_removal

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.layout import DatasetLayout, RunLayout
    from penstock.dataset.run import Run


_KEPT = frozenset({"run.json", LISTING, STATED, EMPTY_FOLDERS, ADOPTED})


def open_run(layout: DatasetLayout, wanted: str = "") -> Run:
    """The run with the id `wanted`; without one, the run that list claimed the dataset for last. A workflow
    names the run that it listed, since another workflow may have listed since. Raises PreflightError when
    nothing was listed yet, and for another account than the one that stages the dataset."""
    dataset_folders.check_owner(layout)
    if wanted:
        try:
            return load(layout, layout.run(wanted))
        except FailedError:
            # A run that overtook this one removes its state in the end: then this raises LockedError.
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
    """The run that published `release`; "" when its seal cannot be read, None when there is no such release.
    Raises NewerFormatError."""
    folder = layout.release(release)
    if not os.path.lexists(folder):
        return None
    try:
        found = seals.find(layout, release)
        return found.seal.run if found else ""
    except FailedError:
        return ""


def amended(layout: DatasetLayout) -> dict[str, tuple[str, str]]:
    """Runs of releases that hold objects in a newer version than was listed (`changed: follow`). By run id:
    the digest of the listing that the run froze, and of the one that its release holds. Releases whose seal
    cannot be read are left out."""
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
    """Runs whose releases were replaced by `--new-release`: list begins no such run again, and plan links
    nothing from their releases."""
    try:
        return frozenset(os.listdir(layout.replaced))
    except FileNotFoundError:
        return frozenset()


def replace(layout: DatasetLayout, run: str) -> None:
    """Mark a run as replaced, durably: the same content is staged as a new run from now on."""
    durable.make_dirs(layout.replaced)
    durable.create_file(layout.replaced / run, b"")


def published(run: Run) -> bool:
    """Whether nothing is left to do: the run's sealed release stands, and `current` is where it belongs
    (`current_pointer.settled`), and publish came to its end. Raises FailedError when `current` is anything
    but a link into `releases/`."""
    sealed = sealed_run(run.layout, run.release) == run.id
    return sealed and current_pointer.settled(run) and publish_ended(run)


def publish_ended(run: Run) -> bool:
    """Whether publish came to its end for a run whose sealed release stands, whatever `current` names."""
    return run.folder.receipt("publish").exists() or not run.folder.plan.exists()


def drop_derived(folder: RunLayout) -> bool:
    """Remove all of a run but its listing and description: journals, receipts, records, shards and, last, the
    plan. Durable on return. Returns whether there was anything to remove. Raises OSError."""
    derived = [name for name in os.listdir(folder.folder) if name not in _KEPT]
    for name in sorted(derived, key=lambda name: name == folder.plan.name):
        path = folder.folder / name
        if path.is_dir() and not path.is_symlink():
            tree_removal.remove_tree(path)
        else:
            path.unlink()
    durable.fsync_dir(folder.folder)
    return bool(derived)


def replace_listing(spool: Path, folder: RunLayout) -> None:
    """Take the new listing in `spool` into a run that exists already. What makes the run's identity is the
    same in both; what does not may have changed, such as which objects are archived. Raises OSError."""
    os.replace(spool / LISTING, folder.listing)
    durable.fsync_dir(folder.folder)
