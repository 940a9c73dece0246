"""The kinds of work a worker does: from the set-up that the parent sent to streams that do rows.

Each function gives a maker of streams (called in the stream's own thread) and what takes new
credentials. Nothing that is not needed for that kind is imported.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.config.settings import DatasetConfig
    from penstock.core.model import Claim, Entry
    from penstock.engine.reading.rereader import Rereader
    from penstock.engine.workers.stream import Stream
    from penstock.sources.port import Source

    Maker = Callable[..., Stream]
    Renew = Callable[[Any], None]


class Sources:
    """The dataset's sources of one worker, made when first used, shared by its streams."""

    def __init__(self, dataset: DatasetConfig, credentials: Sequence[Any], timeout: float) -> None:
        self._dataset, self._credentials, self._timeout = dataset, credentials, timeout
        self._lock = Lock()
        self._open: dict[int, Source] = {}
        self._claims: dict[tuple[int, str, str], Sequence[Claim]] = {}

    def get(self, index: int) -> Source:
        from penstock.sources.registry import open_source

        with self._lock:
            if index not in self._open:
                self._open[index] = open_source(
                    self._dataset.sources[index],
                    self._dataset,
                    credentials=self._credentials[index],
                    timeout=self._timeout,
                )
            return self._open[index]

    def claims(self, entry: Entry) -> Sequence[Claim]:
        """A giant's own checksums, asked for once for all its parts here."""
        place = (entry.source, entry.key, entry.token)
        found = self._claims.get(place)
        if found is None:
            found = self._claims[place] = tuple(self.get(entry.source).checksum(entry))
        return found

    def renew(self, credentials: Sequence[Any]) -> None:
        """Also for every reader that is open now."""
        with self._lock:
            self._credentials = credentials
            for index, source in self._open.items():
                if credentials[index] is not None:
                    source.renew(credentials[index])


def copy(given: dict[str, Any]) -> tuple[Maker, Renew]:
    from penstock.engine.transfer.copier import Copier
    from penstock.storage.staging_writer import Writer, prepare_process

    prepare_process()
    sources = Sources(given["dataset"], given["credentials"], given["timeout"])

    def make(**common: Any) -> Stream:
        writer = Writer(given["data"], **given["writer"])
        return Copier(
            sources=sources,
            writer=writer,
            base=given["base"],
            stagings=given["stagings"],
            policy=given["policy"],
            later=given["later"],
            **common,
        )

    return make, sources.renew


def reread(given: dict[str, Any]) -> tuple[Maker, Renew]:
    from penstock.engine.reading.rereader import Rereader

    return _reading(given, Rereader)


def audit(given: dict[str, Any]) -> tuple[Maker, Renew]:
    from penstock.engine.reading.auditor import Auditor

    return _reading(given, Auditor)


def _reading(given: dict[str, Any], kind: type[Rereader]) -> tuple[Maker, Renew]:
    from penstock.filesystem.capabilities import facts
    from penstock.filesystem.cold_read import ColdReader
    from penstock.filesystem.safe_open import raise_limit

    # Every stream holds some dozens of files open at once; many sites' soft limit is 1,024.
    raise_limit()
    data = given["data"]
    seen = facts(data)

    def reader() -> ColdReader:
        return ColdReader(data, seen)

    def make(**common: Any) -> Stream:
        return kind(reader=reader, digests=given["digests"], whole=given["whole"], **common)

    def renew(_: Any) -> None:
        """Nothing here needs credentials."""

    return make, renew
