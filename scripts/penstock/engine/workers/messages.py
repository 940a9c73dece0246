"""The set-up message of a worker: sent once by its parent, pickled; it may hold secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from penstock.config.settings import DatasetConfig
    from penstock.storage.port import Abandoned, WriterOptions


class CopyWork(NamedTuple):
    """Copy rows of a dataset into staging."""

    data: Path
    """Staging's `data` folder."""
    writer: WriterOptions
    dataset: DatasetConfig
    credentials: Sequence[Any]
    """Of each source, as its kind resolves them."""
    timeout: float
    """Seconds without a byte before a connection counts as broken."""
    policy: str
    """`verify.source_checksum`."""
    later: Sequence[str]
    """Digests of whole giants that verify will make: a checksum by one of them need not hold yet."""
    base: Path | None
    """`data` of the release whose unchanged files are linked."""
    way: str
    """How they come into staging: `link`, `reflink` or `copy`."""
    stagings: Mapping[str, Abandoned]
    """Stagings of other runs that files are taken over from, by run."""


class ReadWork(NamedTuple):
    """Read rows back from the target."""

    data: Path
    audit: bool = False
    """Whether a row that differs from its digest is a result (an audit), or a failure (verify)."""
    digests: Sequence[str] = ()
    """Digests that are made of each file, besides the one that is compared."""
    whole: bool = False
    """Giants get digests of the whole file, too."""
    direct: bool = True
    """Whether O_DIRECT is tried, where the file system's row says that it can be used."""


class SurveyWork(NamedTuple):
    """Compare rows of a tree that penstock did not write with their source."""

    data: Path
    """The tree."""
    dataset: DatasetConfig
    credentials: Sequence[Any]
    timeout: float
    policy: str
    """These as of `CopyWork`."""
    read_source: bool
    """Whether the source is read where it states no checksum."""
    differed: frozenset[int]
    """Rows of which it always is."""
    giant_bytes: int
    part_bytes: int
    direct: bool = True
    """As of `ReadWork`."""


class Setup(NamedTuple):
    """A worker's work, and its share of the element's streams."""

    work: CopyWork | ReadWork | SurveyWork
    limit: int | None
    """Bytes per second read from the source by all workers of the element."""
    attempts: int
    """Tries for each row."""
    share: bool = False
    """Whether bytes and requests go by a share of a link (`engine.pacing`), which is in the shared memory;
    `limit` is then the most."""
    ops: bool = False
    """Whether metadata operations on the target have a budget; the rate is in the shared memory."""
    streams: int = 1
    ahead: int = 1
    """Small objects that each stream requests ahead."""
    first_slot: int = 0
    """The first of this worker's counters in the shared memory."""
