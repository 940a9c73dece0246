"""Makes the streams of a worker from its set-up message: copying, reading back, auditing.

Nothing that is not needed for that kind is imported.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.engine.open_sources import Sources
from penstock.engine.workers.messages import CopyWork, ReadWork

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.engine.stream import Stream
    from penstock.storage.port import Writer

    Spend = Callable[[int], None]
    Maker = Callable[..., Stream]
    Renew = Callable[[Any], None]


def streams(work: CopyWork | ReadWork, spend: Spend | None = None) -> tuple[Maker, Renew]:
    """A maker of streams, called in each stream's own thread, and what takes new credentials. `spend` waits
    for so many metadata operations on the target; None: they have no budget."""
    return _copying(work, spend) if isinstance(work, CopyWork) else _reading(work)


def _copying(work: CopyWork, spend: Spend | None) -> tuple[Maker, Renew]:
    from penstock.engine.transfer.copier import Copier
    from penstock.storage.registry import open_storage

    storage = open_storage()
    storage.prepare_process()
    sources = Sources(work.dataset, work.credentials, work.timeout)

    def writer() -> Writer:
        plain = storage.writer(work.data, **work.writer)
        if spend is None:
            return plain
        return storage.paced_writer(plain, spend, keep_mtime=work.writer["keep_mtime"])

    def make(**common: Any) -> Stream:
        return Copier(
            sources=sources,
            writer=writer(),
            base=work.base,
            way=work.way,
            stagings=work.stagings,
            policy=work.policy,
            later=work.later,
            **common,
        )

    return make, sources.renew


def _reading(work: ReadWork) -> tuple[Maker, Renew]:
    from penstock.filesystem.capabilities import facts
    from penstock.filesystem.cold_read import ColdReader
    from penstock.filesystem.safe_open import raise_limit

    if work.audit:
        from penstock.engine.reading.auditor import Auditor as Kind
    else:
        from penstock.engine.reading.rereader import Rereader as Kind  # type: ignore[assignment]

    # Every stream holds some dozens of files open at once; many sites' soft limit is 1,024.
    raise_limit()
    data, seen = work.data, facts(work.data)
    if not work.direct:
        seen = replace(seen, traits=seen.traits._replace(direct=False))

    def reader() -> ColdReader:
        return ColdReader(data, seen)

    def make(**common: Any) -> Stream:
        return Kind(reader=reader, digests=work.digests, whole=work.whole, **common)

    def renew(_: Any) -> None:
        """Nothing here needs credentials."""

    return make, renew
