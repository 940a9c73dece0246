"""Chooses the release that a command reads, and checks that the release exists until the command ends."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from penstock.core.errors import (
    ConfigError,
    FailedError,
    FindingsError,
    InterruptedRunError,
    PenstockError,
    PreflightError,
)
from penstock.dataset import gate, pins
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context


def released(context: Context, layout: DatasetLayout, name: str | None, doing: str) -> str:
    """Return the named release, or the current one. `doing` is the command's verb, for the message. Raises
    ConfigError for an unknown name, PreflightError if nothing is published, FindingsError if the dataset's
    folders are damaged or `current` names no release."""
    dataset_folders.check_shape(layout)
    release, releases = name or dataset_folders.current(layout), dataset_folders.releases(layout)
    if release is not None and release in releases:
        return release
    stages = f"`{context.program} run {layout.dataset}` stages a release"
    hint = f"there are: {', '.join(releases)}" if releases else stages
    if release is None:
        raise PreflightError("nothing is published yet", where=layout.dataset, hint=hint)
    if name is None:
        raise FindingsError(
            gate.named_by_current(release),
            where=str(layout.current),
            hint=f"`{context.program} rollback {layout.dataset} RELEASE` makes another one current; {hint}",
        )
    raise ConfigError(f"there is no such release to {doing}", where=f"{layout.dataset}/{release}", hint=hint)


@contextlib.contextmanager
def standing(layout: DatasetLayout, release: str, doing: str) -> Iterator[None]:
    """Guard a release while a command reads it. Enter once the command's lock names the release. Entering
    detects a removal that marked the release earlier; a later removal sees the lock (`dataset.pins` has the
    proof). Raises PreflightError if the release is marked or gone, FailedError if it was removed
    meanwhile."""
    if pins.is_going(layout, release):
        raise PreflightError(
            f"the release is being removed: there is nothing to {doing}",
            where=str(layout.release(release)),
            hint=f"`penstock releases {layout.dataset}` names those that stay; where a removal was killed, "
            f"`penstock gc {layout.dataset}` brings it to its end",
        )
    try:
        yield
    except InterruptedRunError:
        raise
    except (PenstockError, OSError) as error:
        check_stands(layout, release, doing)
        raise error from None


def check_stands(layout: DatasetLayout, release: str, doing: str) -> None:
    """Raise FailedError if the release is gone, since the data read from it then prove nothing."""
    if not layout.release(release).is_dir():
        raise FailedError(
            f"the release was removed while this command was to {doing} it",
            where=str(layout.release(release)),
            why="what was seen of it says nothing, and was not noted",
            hint=f"`penstock history {layout.dataset}` says who removed it; pin a release that is to stay",
        )
