"""What lists a source: the source itself, or what the configuration names in its place.

That is an S3 Inventory, or a list of keys, which `listing.collection` and preflight get from `stated`. That
resolves the credentials for the place where the inventory or the list lies, and fetches neither: the lister
does, once its `note` or `list` is called. `reach` sends a request to the source.
"""

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
    """The part of `sources.port.Source` that lists, with the same guarantees."""

    @property
    def ignored(self) -> Mapping[str, int]: ...

    def list(self) -> Iterator[Sequence[Listed]]: ...


class StatedLister(Lister, Protocol):
    """One that reads the listing from files that somebody else made."""

    def note(self) -> str:
        """One sentence on these files and their age. Raises PreflightError for files that cannot be used."""


def stated(
    context: Context, dataset: DatasetConfig, config: SourceConfig, source: Source, scratch: Path
) -> StatedLister | None:
    """What the configuration names in place of the source's own listing; None where it names nothing.
    `scratch`: a folder for what is fetched and sorted."""
    if config.inventory:
        from penstock.listing import inventory

        return inventory.of(context, dataset, config, source, scratch)
    if config.list_from:
        from penstock.listing.key_list import KeyList

        return KeyList(context, dataset, config, source, scratch)
    return None


def reach(config: SourceConfig, source: Source, waiting: AbstractContextManager[object]) -> None:
    """Reach a source once, cheaply. One whose objects a list of keys names need not be listable: it is asked
    about the list's first key (`StatedLister.note`). `waiting`: `Context.waiting`, while that lasts. Raises
    PreflightError."""
    if not config.list_from:
        with waiting:
            try:
                source.check()
            except PreflightError as error:
                error.hint = error.hint or _UNREACHED
                raise
