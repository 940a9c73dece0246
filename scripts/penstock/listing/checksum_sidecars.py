"""Puts the checksums of checksum files (`datasets.*.checksums`) into the listing, so that the copy proves
each file in the same pass. Memory: one checksum for each line of these files."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from penstock.config.access_rules import of_file_alone, written
from penstock.core.errors import ObjectError, PreflightError
from penstock.sources.backoff import retrying
from penstock.tables.listing_file import ListingWriter, read_listing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.core.model import Entry, Listed, SourceChecksum
    from penstock.dataset.context import Context
    from penstock.sources.port import Source


def checksums(context: Context, source: Source, files: Sequence[Listed]) -> dict[str, SourceChecksum]:
    """Return the checksums in one source's checksum files, by the object's key. Raises PreflightError for an
    object that is no checksum file."""
    from penstock.sources.checksum_files import joined

    keys: list[str] = []

    def contents() -> Iterator[tuple[str, bytes]]:
        for listed in files:
            keys.append(listed.key)
            yield listed.key, _content(context, source, listed)

    try:
        return joined(contents())
    except ObjectError as error:
        raise PreflightError(
            "a checksum file cannot be used",
            where=error.where,
            why=f"{error.what} {error.why}".strip(),
            hint="to leave that file out, add to the end of `checksums` of the dataset "
            f"{written(['!' + of_file_alone(keys[-1])[0]])}",
        ) from error


def attach(
    listing: Path, result: Path, stated: dict[int, dict[str, SourceChecksum]]
) -> tuple[str, int, int, int]:
    """Write the listing again, as `result`, with the stated checksums (by the source's index, then by key).

    These are taken out of `stated`, where only unlisted keys stay. Returns digest, rows and bytes of the new
    listing, and the number of rows with a stated checksum.
    """
    lines = sum(map(len, stated.values()))
    with ListingWriter(result) as writer:
        for batch in read_listing(listing):
            for source, group in groupby(batch, attrgetter("source")):
                entries = list(group)
                by_key = stated.get(source, {})
                rows = [_listed(entry, by_key.pop(entry.key, None)) for entry in entries]
                writer.add(rows, paths=[entry.path for entry in entries], source=source)
        return (*writer.close(), lines - sum(map(len, stated.values())))


def _listed(entry: Entry, checksum: SourceChecksum | None) -> Listed:
    return entry.listed() if checksum is None else entry.listed()._replace(checksum=str(checksum))


def _content(context: Context, source: Source, listed: Listed) -> bytes:
    from penstock.sources.checksum_files import read

    attempts, wait = context.config.engine.attempts, context.stop.wait
    return retrying(lambda: read(source, listed), attempts, wait, renew=source.renew_refused)
