"""The objects of a listing that cannot be read before somebody has them restored: a listing of their own,
whose column `token` holds the storage class or access tier.

They stand beside the run's listing and not in it: objects go into an archive and come out of it while their
bytes stay the same, and so does the run. List writes this file (`listing.collection`), plan reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from penstock.tables.listing_file import ListingWriter, read_listing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.core.model import Listed


class ArchivedWriter:
    """Makes its file with the first object that is archived, whole once it is closed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: ListingWriter | None = None

    def add(self, batch: Sequence[Listed], paths: Sequence[str], source: int) -> None:
        """Of these objects those that are archived; in ascending byte order of their paths."""
        archived = [place for place, listed in enumerate(batch) if listed.archived]
        if not archived:
            return
        self._writer = self._writer or ListingWriter(self._path)
        rows = [batch[place]._replace(token=batch[place].archived) for place in archived]
        self._writer.add(rows, paths=[paths[place] for place in archived], source=source)

    def close(self) -> None:
        """Make the file whole and durable; without an archived object there is none."""
        if self._writer is not None:
            self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._writer is not None:
            self._writer.abandon()


def read(path: Path) -> Iterator[tuple[str, str]]:
    """Path and storage class (or access tier) of each archived object, in ascending byte order of the
    paths; none where the file is missing."""
    if path.exists():
        for batch in read_listing(path):
            for entry in batch:
                yield entry.path, entry.token
