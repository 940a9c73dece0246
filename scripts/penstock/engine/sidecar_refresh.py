"""Rereads the checksum files beside the data, for objects that changed since the listing.

The run keeps a list of its listing's checksum files (`RunLayout.stated`). For a changed object, only checksum
files in its folder and the folders above are read. If these are more than MANY (a sidecar for each object),
only files whose name begins with the object's name are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.errors import ObjectError, PenstockError, SourceChangedError
from penstock.sources.backoff import may_retry, retrying
from penstock.sources.checksum_files import joined, read
from penstock.tables.run_tables import read_listing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from penstock.core.model import Entry, SourceChecksum
    from penstock.engine.open_sources import Sources

MANY = 1000  # the most checksum files of a source that are read for its changed objects, whatever their names


def restated(
    stated: Path,
    sources: Sources,
    changed: Sequence[Entry],
    *,
    attempts: int,
    wait: Callable[[float], None],
) -> dict[tuple[int, str], SourceChecksum]:
    """Return the checksums that the files state now for these objects, by source and key.

    Retries a failed read up to `attempts` times, after `wait(seconds)`. Raises ObjectError for a file that
    cannot be read, or is no checksum file.
    """
    by_object: dict[tuple[int, str], SourceChecksum] = {}
    files = [entry for batch in read_listing(stated) for entry in batch]
    for source in {entry.source for entry in changed}:
        keys = [entry.key for entry in changed if entry.source == source]
        wanted = _of(keys, [entry.key for entry in files if entry.source == source])
        contents = ((key, data) for key in wanted for data in _content(sources, source, key, attempts, wait))
        checksums = joined(contents)
        by_object |= {(source, key): checksums[key] for key in keys if key in checksums}
    return by_object


def _of(keys: Sequence[str], files: Sequence[str]) -> list[str]:
    """Return the files that may state checksums of these keys."""
    folders = {folder for key in keys for folder in _above(key)}
    near = [key for key in files if key.rpartition("/")[0] in folders]
    if len(near) <= MANY:
        return near
    return [file for file in near if any(file.startswith(f"{key}.") for key in keys)]


def _above(key: str) -> Iterable[str]:
    while key:
        key = key.rpartition("/")[0]
        yield key


def _content(
    sources: Sources, source: int, key: str, attempts: int, wait: Callable[[float], None]
) -> Iterator[bytes]:
    """Yield the checksum file's current content, or nothing if it is gone."""

    def attempt() -> bytes | None:
        listed = sources.get(source).list_one(key)
        return None if listed is None else read(sources.get(source), listed)

    def may(error: PenstockError, tried: int) -> bool:
        return isinstance(error, SourceChangedError) or may_retry(error, tried)

    try:
        content = retrying(attempt, attempts, wait, may=may)
    except PenstockError as error:
        why = error.reason
        raise ObjectError("a checksum file cannot be read again", where=key, why=why) from error
    if content is not None:
        yield content
