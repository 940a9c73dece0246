"""The kinds of work a worker does: from the set-up that the parent sent to streams that do rows.

Each function gives a maker of streams (called in the stream's own thread) and what takes new
credentials. Nothing that is not needed for that kind is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.engine.open_sources import Sources

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.engine.reading.rereader import Rereader
    from penstock.engine.stream import Stream

    Maker = Callable[..., Stream]
    Renew = Callable[[Any], None]


def copy(given: dict[str, Any]) -> tuple[Maker, Renew]:
    from penstock.engine.transfer.copier import Copier
    from penstock.storage.staging_writer import StagingWriter, prepare_process

    prepare_process()
    sources = Sources(given["dataset"], given["credentials"], given["timeout"])

    def make(**common: Any) -> Stream:
        writer = StagingWriter(given["data"], **given["writer"])
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
