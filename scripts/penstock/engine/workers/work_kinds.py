"""Makes the streams of a worker from its set-up message: copying, reading back, auditing, comparing.

Nothing that is not needed for that kind is imported.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.engine.open_sources import Sources
from penstock.engine.workers.messages import CopyWork, ReadWork, SurveyWork

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.engine.stream import Stream
    from penstock.filesystem.cold_read import ColdReader
    from penstock.storage.port import Writer

    Spend = Callable[[int], None]
    Maker = Callable[..., Stream]
    Renew = Callable[[Any], None]


def streams(work: CopyWork | ReadWork | SurveyWork, spend: Spend | None = None) -> tuple[Maker, Renew]:
    """A maker of streams, called in each stream's own thread, and what takes new credentials. `spend` waits
    for so many metadata operations on the target; None: they have no budget."""
    if isinstance(work, CopyWork):
        return _copying(work, spend)
    return _surveying(work) if isinstance(work, SurveyWork) else _reading(work)


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


def _surveying(work: SurveyWork) -> tuple[Maker, Renew]:
    from penstock.engine.reading.surveyor import Surveyor

    reader = _cold(work.data, direct=work.direct)
    sources = Sources(work.dataset, work.credentials, work.timeout)

    def make(**common: Any) -> Stream:
        return Surveyor(
            reader=reader,
            sources=sources,
            policy=work.policy,
            read_source=work.read_source,
            differed=work.differed,
            giant_bytes=work.giant_bytes,
            part_bytes=work.part_bytes,
            **common,
        )

    return make, sources.renew


def _cold(data: Path, *, direct: bool) -> Callable[[], ColdReader]:
    """Makes readers of a tree."""
    from penstock.filesystem.capabilities import facts
    from penstock.filesystem.cold_read import ColdReader
    from penstock.filesystem.safe_open import raise_limit

    # Every stream holds some dozens of files open at once; many sites' soft limit is 1,024.
    raise_limit()
    seen = facts(data)
    if not direct:
        seen = replace(seen, traits=seen.traits._replace(direct=False))
    return lambda: ColdReader(data, seen)


def _reading(work: ReadWork) -> tuple[Maker, Renew]:
    if work.audit:
        from penstock.engine.reading.auditor import Auditor as Kind
    else:
        from penstock.engine.reading.rereader import Rereader as Kind  # type: ignore[assignment]

    reader = _cold(work.data, direct=work.direct)

    def make(**common: Any) -> Stream:
        return Kind(reader=reader, digests=work.digests, whole=work.whole, **common)

    def renew(_: Any) -> None:
        """Nothing here needs credentials."""

    return make, renew
