"""The kinds of work of a worker process (copy, read back, survey), and the streams that do each.

The parent (`engine.shard_run`) makes a `Setup` and sends it once to each worker, pickled; it may hold
secrets. In the worker, `streams` then prepares that process: its limit of open files is raised, its umask is
cleared where it copies, and the file system of a tree that is read is queried. It opens no file and no
source: the streams do, in their own threads. In the worker nothing is imported that its kind of work does not
need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.engine.open_sources import Sources

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from penstock.config.settings import DatasetConfig
    from penstock.engine.stream import Stream
    from penstock.fs.capabilities import DirectReads
    from penstock.fs.cold_read import ColdReader
    from penstock.target.links import Abandoned
    from penstock.target.staging_writer import WriterOptions

    Spend = Callable[[int], None]
    Maker = Callable[..., Stream]
    Renew = Callable[[Any], None]


class CopyWork(NamedTuple):
    """Copy rows of a dataset into staging."""

    data: Path
    """Staging's `data` folder."""
    writer: WriterOptions
    dataset: DatasetConfig
    credentials: Sequence[Any]
    """Of each source, as its kind resolves them."""
    policy: str
    """`verify.source_checksum`."""
    later: Sequence[str]
    """Digests that verify will make of whole giants (objects whose parts are rows of several shards): a
    source checksum by one of them need not hold yet."""
    base: Path | None
    """`data` of the release whose unchanged files are linked."""
    way: str
    """How they come into staging: `link`, `reflink` or `copy`."""
    stagings: Mapping[str, Abandoned]
    """Stagings of other runs that files are taken over from, by run."""


class ReadWork(NamedTuple):
    """Read rows back from the target."""

    data: Path
    """The tree: `data` of a staging or a release."""
    audit: bool = False
    """Whether a row that differs from its digest is a result (an audit), or a failure (verify)."""
    digests: Sequence[str] = ()
    """Digests that are made of each file, besides the one that is compared."""
    whole: bool = False
    """Giants get digests of the whole file, too."""
    direct: DirectReads = "all"
    """What is read by O_DIRECT, where the file system's row says that it can be used."""


class SurveyWork(NamedTuple):
    """Compare rows of a tree that penstock did not write with their source."""

    data: Path
    """The tree."""
    dataset: DatasetConfig
    credentials: Sequence[Any]
    policy: str
    """These as of `CopyWork`."""
    read_source: bool
    """Whether the source is read where it states no checksum."""
    differed: frozenset[int]
    """Rows of which it always is, since their bytes differed when they were read last."""
    giant_bytes: int
    """Bytes from which a whole file gets digests of its parts, too."""
    part_bytes: int
    """Bytes of each of these parts but the last."""
    direct: DirectReads = "all"
    """As of `ReadWork`."""


class Setup(NamedTuple):
    """A worker's work, and its share of the element's streams."""

    work: CopyWork | ReadWork | SurveyWork
    limit: int | None
    """Bytes per second read from the source by all workers of the element."""
    attempts: int
    """Tries for each row."""
    share: bool = False
    """Whether bytes and requests go by a share of a network link (`host.pacing`), which is in shared memory;
    `limit` is then the most."""
    ops: bool = False
    """Whether metadata operations on the target have a budget; the rate is in the shared memory."""
    streams: int = 1
    ahead: int = 1
    """Small objects that each stream requests ahead."""
    first_slot: int = 0
    """The first of this worker's counters in the shared memory."""


def streams(work: CopyWork | ReadWork | SurveyWork, spend: Spend) -> tuple[Maker, Renew]:
    """A maker of streams, called in each stream's own thread, and a function that takes new credentials, one
    of each source. `spend` waits until so many metadata operations on the target are allowed. Raises
    OSError where the file system of a tree cannot be queried."""
    if isinstance(work, CopyWork):
        return _copying(work, spend)
    return _surveying(work) if isinstance(work, SurveyWork) else _reading(work)


def _copying(work: CopyWork, spend: Spend) -> tuple[Maker, Renew]:
    from penstock.engine.transfer.copier import Copier
    from penstock.target.staging_writer import StagingWriter, prepare_process

    prepare_process()
    sources = Sources(work.dataset, work.credentials)

    def make(**common: Any) -> Stream:
        return Copier(
            sources=sources,
            writer=StagingWriter(work.data, spend, **work.writer),
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

    reader = _cold(work.data, work.direct)
    sources = Sources(work.dataset, work.credentials)

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


def _cold(data: Path, direct: DirectReads) -> Callable[[], ColdReader]:
    """A function that makes a reader of the tree `data` with each call."""
    from penstock.fs.capabilities import facts
    from penstock.fs.cold_read import ColdReader
    from penstock.fs.safe_open import raise_limit

    # Every stream holds some dozens of files open at once; many sites' soft limit is 1,024.
    raise_limit()
    seen = facts(data)
    return lambda: ColdReader(data, seen, direct)


def _reading(work: ReadWork) -> tuple[Maker, Renew]:
    from penstock.engine.reading.rereader import Auditor, Rereader

    reader = _cold(work.data, work.direct)

    def make(**common: Any) -> Stream:
        if work.audit:
            return Auditor(reader=reader, **common)
        return Rereader(reader=reader, digests=work.digests, whole=work.whole, **common)

    def renew(_: Any) -> None:
        """Nothing here needs credentials."""

    return make, renew
