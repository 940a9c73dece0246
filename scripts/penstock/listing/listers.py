"""Chooses the lister of a source: the source itself, an S3 Inventory, or a list of keys. An inventory or list
of keys is not fetched before its lister's `note` or `list` is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.core.errors import PreflightError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from penstock.config.settings import DatasetConfig, SourceConfig
    from penstock.core.model import Listed
    from penstock.dataset.context import Context
    from penstock.sources.port import Source

_UNREACHED = "see whether it is up, and can be reached from here; or correct the dataset's `source`"


class Lister(Protocol):
    """The listing part of `sources.port.Source`, with the same guarantees."""

    @property
    def ignored(self) -> Mapping[str, int]: ...

    def list(self) -> Iterator[Sequence[Listed]]: ...


class StatedLister(Lister, Protocol):
    """A lister that reads the listing from a file made by another program."""

    def note(self) -> str:
        """Describe the file and its age in one sentence. Raises PreflightError if it is unusable."""


def stated(
    context: Context, dataset: DatasetConfig, config: SourceConfig, source: Source, scratch: Path
) -> StatedLister | None:
    """Return the lister that the configuration names in place of the source, or None. `scratch`: a folder for
    files that are fetched or sorted."""
    if config.inventory:
        from penstock.listing import inventory

        return inventory.of(context, dataset, config, source, scratch)
    if config.list_from:
        from penstock.listing.outside_lists import KeyList

        return KeyList(context, dataset, config, source, scratch)
    return None


def reach(config: SourceConfig, source: Source, waiting: AbstractContextManager[object]) -> bool | None:
    """Check with a cheap request that a source is reachable. Returns whether it has objects; None if that is
    not known. A source with a list of keys is skipped: it may not be listable, and `StatedLister.note`
    queries it. `waiting`: a `Context.waiting` for the request. Raises PreflightError."""
    if config.list_from:
        return None
    with waiting:
        try:
            return source.check()
        except PreflightError as error:
            error.hint = error.hint or _UNREACHED
            raise
