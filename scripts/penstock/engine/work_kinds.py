"""The kinds of work of a worker process (copy, read back, survey), and the streams of each.

The parent sends each worker a pickled `Setup`, which may hold secrets. `streams` prepares the worker: it sets
the limit of open files and, for copying, the umask, and queries the tree's file system. A worker imports only
the modules that its kind of work needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.engine.stream import Sources

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

    data: Path  # staging's `data` folder
    writer: WriterOptions
    dataset: DatasetConfig
    credentials: Sequence[Any]  # the credentials of each source, as its kind resolves them
    policy: str  # the setting `verify.source_checksum`
    # Digests that verify computes of whole giants (objects whose parts are rows of several shards). A
    # source's checksum with such an algorithm is checked then.
    later: Sequence[str]
    base: Path | None  # `data` of the release whose unchanged files are linked
    way: str  # how unchanged files come into staging: `link`, `reflink` or `copy`
    stagings: Mapping[str, Abandoned]  # other runs' staging trees, by run, from which files are taken over


class ReadWork(NamedTuple):
    """Read rows back from the target."""

    data: Path  # `data` of a staging or a release
    # whether a row that differs from its digest is a result, as for an audit; if not, it is a failure
    audit: bool = False
    digests: Sequence[str] = ()  # digests to compute of each file, besides the digest compared
    whole: bool = False  # whether giants get digests of the whole file too
    direct: DirectReads = "all"  # which files are read with O_DIRECT, if the file system supports it


class SurveyWork(NamedTuple):
    """Compare rows of a tree that penstock did not write with their source."""

    data: Path
    dataset: DatasetConfig
    credentials: Sequence[Any]
    policy: str  # `CopyWork` explains dataset, credentials and policy
    read_source: bool  # whether the source is read if it states no checksum
    differed: frozenset[int]  # rows whose source is always read, since their bytes differed when last read
    giant_bytes: int  # bytes from which a whole file gets digests of its parts too
    part_bytes: int  # size of these parts except the last
    direct: DirectReads = "all"  # which files are read with O_DIRECT, if the file system supports it


class Setup(NamedTuple):
    """A worker's work, and its share of the element's streams."""

    work: CopyWork | ReadWork | SurveyWork
    limit: int | None  # bytes a second that all workers of the element together may read from the source
    attempts: int  # the most tries of a row
    # Whether a share of a network link (`host.pacing`), in shared memory, limits bytes and requests. `limit`
    # then is the upper bound.
    share: bool = False
    ops: bool = False  # whether metadata operations on the target have a budget; the rate is in shared memory
    streams: int = 1
    ahead: int = 1  # small objects that each stream prefetches
    first_slot: int = 0  # this worker's first counter in shared memory


def streams(work: CopyWork | ReadWork | SurveyWork, spend: Spend) -> tuple[Maker, Renew]:
    """Return a function that makes a stream, to be called in its thread, and a function that takes new
    credentials.

    `spend` waits until a number of metadata operations on the target is allowed. Raises OSError if a tree's
    file system cannot be queried.
    """
    if isinstance(work, CopyWork):
        return _copying(work, spend)
    return _surveying(work) if isinstance(work, SurveyWork) else _reading(work)


def _copying(work: CopyWork, spend: Spend) -> tuple[Maker, Renew]:
    from penstock.engine.copier import Copier
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
    from penstock.engine.surveyor import Surveyor

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
    """Return a function that makes a reader of the tree `data`."""
    from penstock.fs.capabilities import facts
    from penstock.fs.cold_read import ColdReader
    from penstock.fs.safe_open import raise_limit

    # Every stream keeps some dozens of files open, and many sites have a soft limit of 1,024.
    raise_limit()
    storage = facts(data)
    return lambda: ColdReader(data, storage, direct)


def _reading(work: ReadWork) -> tuple[Maker, Renew]:
    from penstock.engine.rereader import Auditor, Rereader

    reader = _cold(work.data, work.direct)

    def make(**common: Any) -> Stream:
        if work.audit:
            return Auditor(reader=reader, **common)
        return Rereader(reader=reader, digests=work.digests, whole=work.whole, **common)

    def renew(_: Any) -> None:
        """Reading needs no credentials."""

    return make, renew
