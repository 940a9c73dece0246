"""The secrets of a dataset's sources, resolved and renewed for all workers of a shard."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.config.settings import DatasetConfig

RENEW_BEFORE = 300.0
"""Seconds before their end from which temporary credentials are renewed."""
RENEW_PAUSE = 15.0
"""Seconds between two attempts to renew."""


class Credentials:
    """Resolved once, in the workers' parent, for all workers. Temporary credentials are resolved again before
    they end, or when a store refuses them as expired."""

    def __init__(self, dataset: DatasetConfig) -> None:
        self._dataset = dataset
        self._tried = time.monotonic()
        self.current = self._resolve()

    def _resolve(self) -> list[Any]:
        from penstock.sources.registry import credentials

        return [credentials(source) for source in self._dataset.sources]

    def renew(self, expired: bool) -> bool:
        """Resolve again where that is due; `expired` when a store refused the present ones. True when the
        credentials changed."""
        from penstock.sources.registry import expires

        ends = [end for end in map(expires, self.current) if end is not None]
        if not expired and (not ends or min(ends) - time.time() > RENEW_BEFORE):
            return False
        if time.monotonic() - self._tried < RENEW_PAUSE:
            return False
        self._tried = time.monotonic()
        before, self.current = self.current, self._resolve()
        return self.current != before
