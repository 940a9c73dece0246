"""Queries the source's checksums of a giant when publish joins its parts. A giant is an object of 64 GiB or
more, copied in parts by several shards: no shard sees all of its bytes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from penstock.core import events
from penstock.core.errors import ObjectError, SourceChangedError, TransientError
from penstock.core.human import in_quotes
from penstock.engine.checksums import admitted
from penstock.engine.credential_renewal import Credentials
from penstock.engine.open_sources import Sources
from penstock.engine.transfer.upload_parts import as_assumed, part_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.core.model import Entry, SourceChecksum
    from penstock.dataset.context import Context
    from penstock.dataset.run import Run
    from penstock.sources.port import Source

T = TypeVar("T")

TRIES = 5  # tries of one query, at most
SILENT = 60.0  # seconds without an answer after which a source is not queried again


class GiantChecksums:
    """Queries the sources that the run froze, with their frozen options, opened for the first giant.

    A source that cannot be queried, or whose object was replaced since the copy, counts as one without a
    checksum; publish warns and goes on. After SILENT seconds without an answer a source is not queried again:
    there may be thousands of giants. Raises FailedError where credentials are refused and cannot be renewed:
    with others the source might state a checksum.
    """

    def __init__(self, context: Context, run: Run) -> None:
        self._context, self._dataset = context, run.dataset
        self._config = run.config.dataset
        self._policy = run.config.verify.source_checksum
        self._opened: tuple[Credentials, Sources] | None = None
        self._silent: dict[int, TransientError] = {}

    def __call__(self, entry: Entry) -> Sequence[SourceChecksum]:
        """Return the object's own checksums; () if the source states none."""
        stated = self._asked(entry, lambda source: source.checksum(entry))
        return admitted(stated or (), entry.token, self._policy)

    def as_assumed(self, entry: Entry, checksum: SourceChecksum) -> bool:
        """Return whether the object was uploaded in the part size assumed for this composite checksum."""
        return as_assumed(
            self._asked(entry, lambda source: part_sizes(source, entry, checksum)) or (), checksum
        )

    def _asked(self, entry: Entry, ask: Callable[[Source], T]) -> T | None:
        if self._opened is None:
            credentials = Credentials(self._config)
            self._opened = credentials, Sources(self._config, credentials.current)
        credentials, sources = self._opened
        where, began = self._config.sources[entry.source].url, time.monotonic()
        try:
            if entry.source in self._silent:
                raise self._silent[entry.source]
            with self._context.waiting(
                self._dataset, "publish", f"what {where} states of {in_quotes(entry.path)}"
            ):
                return credentials.asked(sources, entry.source, ask, TRIES, self._context.stop.wait)
        except TransientError as error:
            if time.monotonic() - began >= SILENT:
                self._silent[entry.source] = error
            text = f"{in_quotes(entry.path)}: its source's checksum cannot be queried: {error}"
        except (SourceChangedError, ObjectError) as error:
            text = f"{in_quotes(entry.path)}: nothing can prove its parts together any more: {error}"
        self._context.emit(events.Warned(self._dataset, "publish", text))
        return None
