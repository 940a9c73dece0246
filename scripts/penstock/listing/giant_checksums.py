"""The checksums that the source states of a giant, queried when its parts are joined at publish.

A giant is an object of 64 GiB or more, whose parts are copied by several shards: none of them sees all of its
bytes. Sends requests to the sources, and writes nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from penstock.core import events
from penstock.core.errors import ObjectError, SourceChangedError, TransientError
from penstock.core.text import in_quotes
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

TRIES = 5
"""Tries of one query, at most."""
SILENT = 60.0
"""Seconds without an answer after which a source is not queried again."""


class GiantChecksums:
    """Queries the sources that the run froze, with the options that it froze. They are opened for the first
    giant. A source that cannot be queried, or whose object was replaced since it was copied, counts as one
    that states no checksum; a warning says so, and publish goes on. One that was silent for SILENT seconds is
    not asked again: there may be thousands of giants. Raises FailedError where the source
    refuses the credentials and there are no others: with others it would state one."""

    def __init__(self, context: Context, run: Run) -> None:
        self._context, self._dataset = context, run.dataset
        self._config = run.config.dataset
        self._policy = run.config.verify.source_checksum
        self._opened: tuple[Credentials, Sources] | None = None
        self._silent: dict[int, TransientError] = {}

    def __call__(self, entry: Entry) -> Sequence[SourceChecksum]:
        """The object's own checksums; () when the source states none."""
        found = self._asked(entry, lambda source: source.checksum(entry))
        return admitted(found or (), entry.token, self._policy)

    def as_assumed(self, entry: Entry, checksum: SourceChecksum) -> bool:
        """Whether the object was uploaded in parts of the size with which this composite checksum was
        computed."""
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
