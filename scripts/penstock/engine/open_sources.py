"""The sources that a process (mostly a worker) has open."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.config.settings import DatasetConfig
    from penstock.core.model import Entry, SourceChecksum
    from penstock.sources.port import Source


class Sources:
    """A dataset's sources, which are opened when first used. A worker's streams share them."""

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
        """Return the checksums that the source states of a whole giant. Each worker requests them once for
        all its parts."""
        place = (entry.source, entry.key, entry.token)
        checksums = self._checksums.get(place)
        if checksums is None:
            checksums = self._checksums[place] = tuple(self.get(entry.source).checksum(entry))
        return checksums

    def renew(self, credentials: Sequence[Any]) -> None:
        """Use new credentials for all sources, including open readers. None keeps a source's credentials."""
        with self._lock:
            self._credentials = credentials
            for index, source in self._open.items():
                if credentials[index] is not None:
                    source.renew(credentials[index])
