"""Files of JSON lines. They appear only when complete, and are read as a stream, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from penstock.core import typed_json
from penstock.core.errors import STATE_ANEW, FailedError
from penstock.fs import small_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

T = TypeVar("T")


def write(path: Path, lines: Iterable[object]) -> None:
    """Write documents (`typed_json`) as they come, durably. The file gets its name once it is complete."""
    with small_files.Growing(path) as file:
        for line in lines:
            file.stream.write(small_files.json_line(typed_json.plain(line)))
        file.close()


def read(path: Path, parse: Callable[[bytes], T], what: str) -> Iterator[T]:
    """Yield the parsed lines in order. `parse` raises ValueError for a damaged line. Raises FailedError if
    the file is damaged or missing, with a message that `what` cannot be read."""
    try:
        with small_files.opened(path) as stream:
            for line in small_files.lines(stream):
                yield parse(line)
    except (OSError, ValueError, KeyError) as error:
        raise FailedError(
            f"{what} cannot be read", where=str(path), why=str(error), hint=STATE_ANEW
        ) from error
