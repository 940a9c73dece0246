"""The dataset's sources as one process (mostly a worker of an element) has them open: made when first used,
shared by its threads. Using them reads from network or disk; nothing is written.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.config.settings import DatasetConfig
    from penstock.core.model import Entry, SourceChecksum
    from penstock.sources.port import Source


class Sources:
    """The dataset's sources of one worker, made when first used, shared by its streams."""

    def __init__(self, dataset: DatasetConfig, credentials: Sequence[Any]) -> None:
        self._dataset, self._credentials = dataset, credentials
        self._lock = Lock()
        self._open: dict[int, Source] = {}
        self._checksums: dict[tuple[int, str, str], Sequence[SourceChecksum]] = {}

    def get(self, index: int) -> Source:
        from penstock.sources.registry import open_source

        with self._lock:
            if index not in self._open:
                config, credentials = self._dataset.sources[index], self._credentials[index]
                self._open[index] = open_source(config, self._dataset, credentials=credentials)
            return self._open[index]

    def checksums(self, entry: Entry) -> Sequence[SourceChecksum]:
        """The checksums that the source states of a whole giant (an object copied in parts), queried once for
        all its parts in this worker."""
        place = (entry.source, entry.key, entry.token)
        checksums = self._checksums.get(place)
        if checksums is None:
            checksums = self._checksums[place] = tuple(self.get(entry.source).checksum(entry))
        return checksums

    def renew(self, credentials: Sequence[Any]) -> None:
        """Use these credentials, one of each source, from now on, also for every reader that is open now.
        None: those of that source stay."""
        with self._lock:
            self._credentials = credentials
            for index, source in self._open.items():
                if credentials[index] is not None:
                    source.renew(credentials[index])
