"""Lists the objects of all sources as one stream: filtered, mapped to paths, checked, and written to the
listing. Then it adds the checksums from checksum files beside the data.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.config import source_kinds
from penstock.config.access_rules import of_file_alone, written
from penstock.core import run_steps
from penstock.core.errors import ConfigError, ObjectError, PreflightError
from penstock.core.human import counted, in_quotes, of_kinds
from penstock.core.layout import (
    STATED,
    Conflicts,
    Offenders,
    all_good,
    check_key,
)
from penstock.fs import small_files
from penstock.fs.capabilities import facts
from penstock.fs.kinds import rules_of
from penstock.listing.listers import stated
from penstock.listing.outside_lists import Filter
from penstock.sources.backoff import retrying
from penstock.sources.listing_order import DisorderError
from penstock.sources.port import Continued

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from penstock.config.settings import DatasetConfig
    from penstock.core.layout import DatasetLayout
    from penstock.core.model import Entry, Listed, SourceChecksum
    from penstock.dataset.context import Context
    from penstock.listing.listers import Lister
    from penstock.sources.port import Source
    from penstock.tables.run_tables import ListingWriter


# Puts the checksums of checksum files (`datasets.*.checksums`) into the listing, so that the copy proves each
# file in the same pass. It keeps one checksum in memory for each line of these files.


def checksums(context: Context, source: Source, files: Sequence[Listed]) -> dict[str, SourceChecksum]:
    """Return the checksums in one source's checksum files, by the key of the described object. Raises
    PreflightError for an object that is no checksum file."""
    from penstock.sources.stated_checksums import joined

    keys: list[str] = []

    def contents() -> Iterator[tuple[str, bytes]]:
        for listed in files:
            keys.append(listed.key)
            yield listed.key, _content(context, source, listed)

    try:
        return joined(contents())
    except ObjectError as error:
        raise PreflightError(
            "a checksum file cannot be used",
            where=error.where,
            why=f"{error.what} {error.why}".strip(),
            hint="to leave that file out, add to the end of `checksums` of the dataset "
            f"{written(['!' + of_file_alone(keys[-1])[0]])}",
        ) from error


def attach(
    listing: Path, result: Path, stated: dict[int, dict[str, SourceChecksum]]
) -> tuple[str, int, int, int]:
    """Write the listing again, as `result`, with the stated checksums (by the source's index, then by key).
    It removes the keys of listed objects from `stated`, so that unlisted keys stay. Returns digest, rows and
    bytes of the new listing, and the number of rows with a stated checksum.
    """
    from penstock.tables.run_tables import ListingWriter, read_listing

    lines = sum(map(len, stated.values()))
    with ListingWriter(result) as writer:
        for batch in read_listing(listing):
            for source, group in groupby(batch, attrgetter("source")):
                entries = list(group)
                by_key = stated.get(source, {})
                rows = [_listed(entry, by_key.pop(entry.key, None)) for entry in entries]
                writer.add(rows, paths=[entry.path for entry in entries], source=source)
        return (*writer.close(), lines - sum(map(len, stated.values())))


def _listed(entry: Entry, checksum: SourceChecksum | None) -> Listed:
    return entry.listed() if checksum is None else entry.listed()._replace(checksum=str(checksum))


def _content(context: Context, source: Source, listed: Listed) -> bytes:
    from penstock.sources.stated_checksums import read

    attempts, wait = context.config.engine.attempts, context.stop.wait
    return retrying(lambda: read(source, listed), attempts, wait, renew=source.renew_refused)


# Lists all sources.
#
# Each source has its own folder in the release, and no such folder contains another. So the sources are
# listed one after another, in the byte order of their folders, without a merge.

SHOWN_EVERY = 0.2  # seconds between two progress events
ADVISED = 10  # most files for which a message suggests `exclude` patterns
LARGEST = (1 << 63) - 1  # most bytes of a file, and of all files of a dataset together
UNLISTED = "names of checksum files that are not listed"  # a reason in `Gathered.ignored`
FIRST_BOUND = 12  # the histogram's first bound is 2**12 bytes; each further bound is four times as large


class Placed(NamedTuple):
    number: int  # the source's index in the configuration, from 0
    source: Source
    prefix: str  # the source's `into` and a slash, or ""


@dataclass(frozen=True)
class Gathered:
    digest: str  # the listing's digest: see `tables.run_tables`
    files: int  # number of files to be staged; `bytes` is the sum of their sizes
    bytes: int
    scanned: int  # number of objects in the sources, including omitted objects
    ignored: dict[str, int]  # number of omitted objects by reason: `filtered`, `markers`, `links`, ...
    histogram: list[list[int]]  # histogram of the files' sizes: see `histogram`
    hard_links: dict[str, int]  # numbers of hard links, as in `port.Source`
    empty_folders: list[str]  # paths of folders to keep, in byte order


def open_sources(dataset: DatasetConfig) -> list[Source]:
    """Open the dataset's sources in the configuration's order, and resolve their secrets. Raises ConfigError,
    PreflightError."""
    from penstock.sources import port

    keep = Filter(dataset.include, dataset.exclude).wants
    return [
        port.open_source(config, dataset, credentials=port.credentials(config), keep=keep)
        for config in dataset.sources
    ]


def folder_of(source: Source) -> Path | None:
    """Return the folder or file that is the source; None if the source is a store."""
    return Path(source.url.removeprefix("file://")) if source.url.startswith("file://") else None


def apart(layout: DatasetLayout, sources: Sequence[Source]) -> None:
    """Raise PreflightError if a source folder contains the dataset's folder or is inside it, since the
    release would be part of its own source."""
    mine = os.path.realpath(layout.folder)
    for source in sources:
        folder = folder_of(source)
        if folder is None:
            continue
        theirs = os.path.realpath(folder)
        if os.path.commonpath([mine, theirs]) in (mine, theirs):
            raise PreflightError(
                "source and target lie in one another",
                where=source.url,
                why=f"the dataset's folder is {mine}",
                hint="choose another `target.root`, or a source beside it",
            )


def ordered(dataset: DatasetConfig, sources: Sequence[Source]) -> list[Placed]:
    """Sort the sources by the bytes of their folders. Raises ConfigError if a folder is no valid path or
    contains another folder."""
    placed = [
        Placed(index, source, f"{config.into}/" if config.into else "")
        for index, (config, source) in enumerate(zip(dataset.sources, sources, strict=True))
    ]
    placed.sort(key=lambda place: os.fsencode(place.prefix))
    for place in placed:
        reason = check_key(place.prefix[:-1]) if place.prefix else None
        if reason:
            raise ConfigError(
                f"`into` {reason}",
                where=f"datasets.{dataset.name}",
                why=in_quotes(place.prefix[:-1]),
                hint="give `into` a relative path in normal form, such as images/train",
            )
    for outer, inner in pairwise(placed):
        if inner.prefix.startswith(outer.prefix):
            raise ConfigError(
                "two sources share a folder",
                where=f"datasets.{dataset.name}.sources",
                why=f"`into: {in_quotes(inner.prefix[:-1])}` lies in `into: {in_quotes(outer.prefix[:-1])}`",
                hint="give each source an `into` of its own; none may hold another",
            )
    return placed


class _InNoOrderError(Exception):
    """A source listed its keys out of order. It must be listed again, and sorted."""

    def __init__(self, place: Placed) -> None:
        super().__init__(place)
        self.place = place


def gather(
    context: Context, dataset: DatasetConfig, placed: Sequence[Placed], path: Path, *, resume: bool = False
) -> Gathered:
    """List all sources into the file `path`. Raises PreflightError with all rejected keys, or if no file
    remains; `path` then does not exist.

    `resume`: the listing is saved in the dataset's state and continued from there (`resumption`). The caller
    holds the dataset's lock, and removes the saved listing afterwards. If a store lists keys out of order,
    the listing starts again, with that source sorted on disk.
    """
    in_no_order: set[int] = set()
    while True:
        try:
            return _gather(context, dataset, placed, path, in_no_order, resume=resume)
        except _InNoOrderError as error:
            in_no_order.add(error.place.number)
            text = (
                f"{error.place.source.url} lists its keys in no order: it is listed anew, and sorted on disk"
            )
            context.emit(run_steps.Noted(dataset.name, "list", text))


def _gather(
    context: Context,
    dataset: DatasetConfig,
    placed: Sequence[Placed],
    path: Path,
    in_no_order: Collection[int],
    *,
    resume: bool,
) -> Gathered:
    from penstock.tables.run_tables import ListingWriter

    with ListingWriter(path) as writer:
        gathering = _Gathering(context, dataset, writer, in_no_order, resume=resume)
        for place in placed:
            gathering.gather(place, path.parent)
        gathering.judge(placed)
        gathering.tell()
        digest, files, size = writer.close()
    if dataset.checksums:
        digest, files, size = gathering.state(placed, path)
    return Gathered(
        digest,
        files,
        size,
        gathering.scanned,
        dict(gathering.ignored),
        histogram(gathering.sizes),
        dict(gathering.hard_links),
        sorted(gathering.empty_folders, key=os.fsencode),
    )


def _advice(files: Sequence[str]) -> str:
    """Return advice about keys that cannot become paths. `files`: keys that are also folders of other
    keys."""
    advice = "rename them at the source, or leave them out by `exclude` patterns"
    # Keys with control characters cannot be shown in a one-line list of patterns.
    plain = [key for key in files if key.isprintable()]
    if not plain:
        return advice
    alone = [pattern for key in plain[:ADVISED] for pattern in of_file_alone(key)]
    rest = f", and so for {len(files) - ADVISED:,} more" if len(files) > ADVISED else ""
    return (
        f"{advice}; to leave out the file and keep what is below the folder of its name, begin `exclude` "
        f"with {written(alone)}{rest}"
    )


def _untimed(url: str, count: int) -> str:
    objects = "1 object of" if count == 1 else f"{count:,} objects of"
    return f"{objects} {url} without a time in their metadata: their files get the store's time"


def histogram(sizes: Counter[int]) -> list[list[int]]:
    """Return [[upper bound in bytes, files, bytes], ...] without gaps. `sizes` has the number of files in
    slot n under the key n, and their bytes under -1 - n."""
    last = max((slot for slot in sizes if slot >= 0), default=-1)
    return [[1 << (FIRST_BOUND + 2 * i), sizes[i], sizes[-1 - i]] for i in range(last + 1)]


class _Gathering:
    def __init__(
        self,
        context: Context,
        dataset: DatasetConfig,
        writer: ListingWriter,
        in_no_order: Collection[int],
        *,
        resume: bool,
    ) -> None:
        self._context, self._dataset, self._writer, self._resume = context, dataset, writer, resume
        self._in_no_order = in_no_order
        self._filter = Filter(dataset.include, dataset.exclude)
        self._conflicts = Conflicts()
        self._offenders = Offenders()
        target = context.config.target
        self._kept_names = rules_of(facts(target.root).traits, target.filesystem).kept_names
        self._refusals: list[PreflightError] = []
        self._sums = Filter(dataset.checksums, ()) if dataset.checksums else None
        self._found: dict[int, list[Listed]] = {}
        # by source: keys of its omitted archived objects, which checksum files may name
        self._archived_keys: dict[int, set[str]] = {}
        self._kept = self._bytes = 0
        self._shown = 0.0
        self._timeless, self._first_timeless = 0, ""
        self.scanned = 0
        self.ignored: Counter[str] = Counter()
        self.hard_links: Counter[str] = Counter()
        self.empty_folders: list[str] = []
        self.sizes: Counter[int] = Counter()

    def gather(self, place: Placed, scratch: Path) -> None:
        config = self._dataset.sources[place.number]
        by_files = stated(self._context, self._dataset, config, place.source, scratch)
        lister: Lister = by_files or place.source
        try:
            if by_files is not None:
                self._context.emit(run_steps.Noted(self._dataset.name, "list", by_files.note()))
            with self._context.waiting(self._dataset.name, "list", place.source.url) as waiting:
                for batch in waiting.each(self._listed(place, lister, scratch)):
                    self._context.stop.check()
                    self._batch(place, batch)
        except DisorderError:
            if lister is place.source and place.source.list_sorted is not None:
                raise _InNoOrderError(place) from None
            raise
        except PreflightError as error:
            # A source raises at its end if it rejected items. The other sources are still listed, so that one
            # run reports all rejected items.
            self._refusals.append(error)
        for what, count in lister.ignored.items():
            if count:
                self.ignored[what] += count
        if (untimed := place.source.untimed) and by_files is None:
            self._context.emit(
                run_steps.Warned(self._dataset.name, "list", _untimed(place.source.url, untimed))
            )
        self.hard_links.update(place.source.hard_links)
        self._empty(place, place.source.empty_folders)

    def _listed(self, place: Placed, lister: Lister, scratch: Path) -> Iterator[Sequence[Listed]]:
        """List with `lister`. If it can begin at any key, resume an interrupted listing. If it has no order,
        sort on disk."""
        if place.number in self._in_no_order and place.source.list_sorted is not None:
            return place.source.list_sorted(scratch)
        if not self._resume or not isinstance(lister, Continued):
            return lister.list()
        from penstock.listing.outside_lists import KeyList
        from penstock.listing.resumption import Resumption
        from penstock.listing.resumption import place as resumable_at

        config = self._dataset.sources[place.number]
        list_identity = lister.identity() if isinstance(lister, KeyList) else ""
        identity = [place.source.url, place.source.origin, self._dataset.changed, list_identity]
        if config.times != "store":
            identity.append(config.times)
        folder = resumable_at(self._context.layout(self._dataset.name).unfinished_listing, *identity)
        return Resumption(self._context, self._dataset.name, folder, lister).batches()

    def _batch(self, place: Placed, batch: Sequence[Listed]) -> None:
        self.scanned += len(batch)
        if self._sums is not None:
            self._found.setdefault(place.number, []).extend(self._sums.keep(batch))
        kept = self._filter.keep(batch)
        if len(kept) != len(batch):
            self.ignored["filtered"] += len(batch) - len(kept)
        if self._dataset.sources[place.number].archived == "skip":
            kept = self._readable(place, kept)
        paths = self._paths(place, kept)
        if not all_good(paths, self._kept_names):
            kept = self._good(place, kept)
            paths = self._paths(place, kept)
        for path, reason in self._conflicts.add(paths):
            self._offenders.add(path, reason)
        if not kept:
            return
        if max(listed.size for listed in kept) > LARGEST or min(listed.size for listed in kept) < 0:
            for listed in kept:
                if not 0 <= listed.size <= LARGEST:
                    self._offenders.add(listed.key, f"has a size that no file has: {listed.size} bytes")
            return
        if not self._offenders.total:
            self._writer.add(kept, paths=paths, source=place.number)
        self._kept += len(kept)
        if timeless := [listed.key for listed in kept if not listed.modified_ns]:
            self._first_timeless = self._first_timeless or timeless[0]
            self._timeless += len(timeless)
        for size in [listed.size for listed in kept]:
            slot = ((size - 1).bit_length() - FIRST_BOUND + 1) // 2 if size > 1 << FIRST_BOUND else 0
            self.sizes[slot] += 1
            self.sizes[-1 - slot] += size
            self._bytes += size
        self._show()

    def _readable(self, place: Placed, batch: Sequence[Listed]) -> Sequence[Listed]:
        if not any(listed.archived for listed in batch):
            return batch
        self.ignored.update(f"archived ({listed.archived})" for listed in batch if listed.archived)
        if self._sums is not None:
            archived = self._archived_keys.setdefault(place.number, set())
            archived.update(listed.key for listed in batch if listed.archived)
        return [listed for listed in batch if not listed.archived]

    def tell(self) -> None:
        """Warn of files that get the time 1970-01-01, since the source states no time."""
        if self._timeless and self._dataset.permissions.mtime == "keep":
            files = "1 file gets" if self._timeless == 1 else f"{self._timeless:,} files get"
            text = (
                f"the source states no time of {in_quotes(self._first_timeless)}: {files} the time "
                "1970-01-01, unless `permissions.mtime: now` is set"
            )
            self._context.emit(run_steps.Warned(self._dataset.name, "list", text))

    def _empty(self, place: Placed, folders: Sequence[str]) -> None:
        for key in folders:
            if reason := check_key(place.prefix + key, self._kept_names):
                self._offenders.add(key, reason)
            else:
                self.empty_folders.append(place.prefix + key)

    def _paths(self, place: Placed, batch: Iterable[Listed]) -> list[str]:
        if not place.prefix:
            return [listed.key for listed in batch]
        return [place.prefix + listed.key for listed in batch]

    def _good(self, place: Placed, batch: Sequence[Listed]) -> list[Listed]:
        good = []
        for listed in batch:
            if listed.key == "" or listed.key.endswith("/"):
                if listed.size == 0:
                    self.ignored["markers"] += 1
                else:
                    self._offenders.add(listed.key, f"names a folder but holds {listed.size} bytes")
                continue
            reason = check_key(place.prefix + listed.key, self._kept_names)
            if reason is None:
                good.append(listed)
            else:
                self._offenders.add(listed.key, reason)
        return good

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._shown >= SHOWN_EVERY:
            self._shown = now
            self._context.emit(
                run_steps.Progressed(self._dataset.name, "list", files=self._kept, bytes=self._bytes)
            )

    def state(self, placed: Sequence[Placed], path: Path) -> tuple[str, int, int]:
        """Add the checksums of the configured checksum files to the listing at `path`. The filter may leave
        out the checksum files themselves.

        Raises PreflightError if no object is a checksum file, if the checksum files name none of the
        dataset's files, and for unlisted names:

        | a name that is not in the listing of the dataset            | the name is     |
        |-------------------------------------------------------------|-----------------|
        | does not belong to the dataset by `include` and `exclude`   | counted         |
        | is archived, with `archived: skip`                          | counted already |
        | is of a source with a list of keys (`list_from`)            | counted         |
        | any other, with `unlisted: skip`                            | counted         |
        | any other                                                   | rejected        |
        """
        from penstock.tables.run_tables import ListingWriter

        if not any(self._found.values()):
            raise PreflightError(
                "there is no checksum file",
                where=" ".join(place.source.url for place in placed),
                why=f"no key matches {', '.join(self._dataset.checksums)}",
                hint="correct `checksums` of the dataset",
            )
        stated = {
            place.number: checksums(self._context, place.source, self._found.get(place.number, ()))
            for place in placed
        }
        plain = path.with_name("listing.plain.parquet")
        small_files.rename(path, plain)
        lines = sum(map(len, stated.values()))
        digest, files, size, matched = attach(plain, path, stated)
        plain.unlink()
        with ListingWriter(path.with_name(STATED)) as writer:
            for place in placed:
                writer.add(self._found.get(place.number, ()), source=place.number)
            writer.close()
        try:
            self._judge_stated(placed, stated, matched)
        except PreflightError:
            path.unlink()
            raise
        text = f"checksum files state {lines:,} checksums, {matched:,} of them of {files:,} files listed"
        if count := self.ignored[UNLISTED]:
            text += f"; {count:,} of them of names that are not listed"
        kind = run_steps.Warned if count else run_steps.Noted
        self._context.emit(kind(self._dataset.name, "list", text))
        return digest, files, size

    def _judge_stated(
        self, placed: Sequence[Placed], unlisted: dict[int, dict[str, SourceChecksum]], matched: int
    ) -> None:
        """Count or reject names as `state` says. `unlisted`: stated checksums of unlisted keys."""
        lacking, where = Offenders(), " ".join(place.source.url for place in placed)
        for place in placed:
            archived = self._archived_keys.get(place.number, ())
            skips = self._dataset.unlisted == "skip" or self._dataset.sources[place.number].list_from
            for key in unlisted[place.number]:
                if not self._filter.accepts(key):
                    self.ignored["names of checksum files that are filtered"] += 1
                elif key not in archived and skips:
                    self.ignored[UNLISTED] += 1
                elif key not in archived:
                    lacking.add(key, "is not listed")
        if lacking.total:
            files = [listed.key for listed in chain.from_iterable(self._found.values())]
            raise PreflightError(
                f"checksum files name {counted(lacking.total, 'file')} that the source does not list; "
                "nothing was copied",
                where=where,
                why=f"in {', '.join(map(in_quotes, files[:ADVISED]))}{' ...' * (len(files) > ADVISED)}:"
                "\n  " + "\n  ".join(lacking.lines()),
                hint="if they should be there, have the source completed; what a server hides in its listing "
                "is staged by a list of keys (`list_from`); to go without them, name them in `exclude`, or "
                f"set `datasets.{self._dataset.name}.unlisted: skip`",
            )
        if not matched:
            raise PreflightError(
                "the checksum files name no file of the dataset",
                where=where,
                why=f"`checksums: {written(self._dataset.checksums)}` would prove nothing",
                hint="correct `checksums` of the dataset, or leave it out",
            )

    def judge(self, placed: Sequence[Placed]) -> None:
        """Raise PreflightError if no file is to be staged or a key was rejected."""
        where = " ".join(place.source.url for place in placed)
        if self._offenders.total:
            # Patterns match the key, which is the path without the source's folder.
            keys = [
                path.removeprefix(place.prefix)
                for path in self._conflicts.files
                for place in placed
                if path.startswith(place.prefix)
            ]
            lines = [*self._offenders.lines(), *(str(error) for error in self._refusals)]
            refused = counted(self._offenders.total, "key")
            raise PreflightError(
                f"{refused} of the source cannot become paths; nothing was copied",
                where=where,
                why="\n  " + "\n  ".join(lines),
                hint=_advice(keys),
            )
        if self._refusals:
            raise self._refusals[0]
        if not self.scanned:
            raise empty([place.source.url for place in placed])
        if not self._kept:
            left_out = ", ".join(of_kinds(dict(sorted(self.ignored.items()))))
            raise PreflightError(
                "nothing of the source belongs to the dataset",
                where=where,
                why=f"{counted(self.scanned, 'object')} seen, of which are left out: {left_out}",
                hint="check `include` and `exclude`",
            )
        if self._bytes > LARGEST:
            raise PreflightError(
                "the source holds more than a dataset can",
                where=where,
                why=f"its {counted(self._kept, 'file')} have {self._bytes:,} bytes together, holes included",
                hint="leave the largest out by `exclude`, or divide them into several datasets",
            )


def empty(urls: Sequence[str]) -> PreflightError:
    """The refusal of sources without any object."""
    folders = all(source_kinds.of_url(url) is source_kinds.FOLDER for url in urls)
    return PreflightError(
        "the source has 0 objects",
        where=" ".join(urls),
        hint="put the files there, or correct the path"
        if folders
        else "correct the bucket, container or host, or the prefix, which needs its slash at the end",
    )
