"""Checksum files beside the data, read again for objects that changed since they were listed.

`change_following` calls it before changed objects are copied. It reads from the sources and the run's list of
checksum files; it writes nothing.

The run keeps the list of the checksum files that its listing found (`RunLayout.stated`). For a changed object
only those of them are read that may name it: the files in its own folder and in the folders above it. Where
these are more than MANY (a sidecar for each object), only files are read whose name begins with the object's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.errors import ObjectError, PenstockError, SourceChangedError
from penstock.sources.backoff import may_retry, retrying
from penstock.sources.checksum_files import joined, read
from penstock.tables.listing_file import read_listing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from penstock.core.model import Entry, SourceChecksum
    from penstock.engine.open_sources import Sources

MANY = 1000
"""Up to so many checksum files are read, whatever their names, for the changed objects of one source."""


def restated(
    stated: Path,
    sources: Sources,
    changed: Sequence[Entry],
    *,
    attempts: int,
    wait: Callable[[float], None],
) -> dict[tuple[int, str], SourceChecksum]:
    """What the checksum files state now of these objects, by source and key. A failed read is retried, up to
    `attempts` times; `wait` waits for so many seconds before each retry. Raises ObjectError for a file that
    cannot be read, or that is no checksum file."""
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
    """Those of the files that may state something of these keys."""
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
    """The content of the checksum file as it is now; nothing where the file is gone."""

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
