"""Reads a source's listing from a list of keys, and queries the source for facts that the list lacks. Also
decides which keys belong to the dataset, by gitignore's patterns: `include`, then `exclude`.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from itertools import chain, groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING

from penstock.config.access_rules import Patterns
from penstock.config.source_kinds import of_url
from penstock.core.errors import ObjectError, PreflightError, SourceChangedError
from penstock.core.human import counted
from penstock.core.layout import Offenders, check_key
from penstock.core.model import Listed
from penstock.host import waits
from penstock.listing import outside_files
from penstock.sources.backoff import retrying
from penstock.sources.listing_order import BATCH, between, in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from penstock.config.settings import DatasetConfig, SourceConfig
    from penstock.dataset.context import Context
    from penstock.sources.port import Source


# Selects the keys of the dataset by gitignore's patterns.
#
# A key belongs to the dataset if a pattern of `include` matches it and no pattern of `exclude` does. `**`
# matches every key. `!pattern` cancels an earlier match in the same list.

EVERYTHING = ("**",)  # the `include` that matches every key


class Filter:
    """The patterns of one dataset. Raises ConfigError for a pattern that is invalid in gitignore."""

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        self._include = None if tuple(include) == EVERYTHING else Patterns("include", include).match
        self._exclude = Patterns("exclude", exclude).match if exclude else None
        self._takes_back = any(pattern.startswith("!") for pattern in exclude)

    @property
    def everything(self) -> bool:
        """Whether every key belongs to the dataset."""
        return self._include is None and self._exclude is None

    def accepts(self, key: str) -> bool:
        """Return whether an object's key belongs to the dataset. For folders, `wants` decides."""
        return (self._include is None or self._include(key)) and not (
            self._exclude is not None and self._exclude(key)
        )

    def wants(self, key: str) -> bool:
        """Return whether a key belongs to the dataset. For a folder (a key that ends in a slash), return
        False only if `exclude` leaves out all keys below it."""
        if key.endswith("/"):
            return self._exclude is None or self._takes_back or not self._exclude(key)
        return self.accepts(key)

    def keep(self, batch: Sequence[Listed]) -> Sequence[Listed]:
        """Return the dataset's objects in `batch`; `batch` itself if the filter accepts every key."""
        if self.everything:
            return batch
        accepts = self.accepts
        return [listed for listed in batch if accepts(listed.key)]


# Reads a source's listing from a list of keys.
#
# The objects are sorted by the bytes of their keys, without repetition, in bounded memory, whatever the order
# of the list. No key is dropped without a message:
#
# | the key is                                           | then                                            |
# |------------------------------------------------------|-------------------------------------------------|
# | listed several times, without a contradiction        | merged, and counted                             |
# | listed several times, with several sizes or versions | rejected; the error names it                    |
# | not at the source                                    | rejected; the error names it                    |
# | of another size or version at the source             | rejected; the error names it                    |
# | listed with its size and version                     | accepted; only folder sources are queried       |

AT_ONCE = 32  # number of concurrent queries to a source


class KeyList:
    """A `listers.StatedLister` of one source. `scratch`: a folder for fetched and sorted files."""

    def __init__(
        self, context: Context, dataset: DatasetConfig, config: SourceConfig, source: Source, scratch: Path
    ) -> None:
        self._config, self._source, self._scratch = config, source, scratch
        self._files, self._name = outside_files.opened(context, dataset, config, config.list_from or "")
        self._where = self._files.where(self._name)
        self._attempts, self._stop = context.config.engine.attempts, context.stop
        self._filter = Filter(dataset.include, dataset.exclude)
        self._sums = Filter(dataset.checksums, ()) if dataset.checksums else None
        self._pinned = dataset.changed == "pinned"
        self._patterns = (dataset.include, dataset.exclude, dataset.checksums)
        self._list: outside_files.OutsideFile | None = None
        self._ignored: Counter[str] = Counter()
        self._refused = Offenders()

    @property
    def ignored(self) -> Mapping[str, int]:
        return self._ignored

    def note(self) -> str:
        """Describe the list in one sentence, and query the source for its first key. Raises PreflightError
        for an unreadable or empty list."""
        first = next((row for batch in self._rows() for row in batch), None)
        if first is None:
            raise PreflightError(
                "the list of keys is empty",
                where=self._where,
                hint="give a list with at least one key, or leave it out",
            )
        if self._lacking(first):
            with self._asking() as ask:
                self._answer(first, ask)
            return f"listed by the keys of {self._where}; the source is asked for what it does not state"
        return f"listed by the keys of {self._where}, with sizes and versions"

    @property
    def refused(self) -> int:
        """The number of keys rejected so far. A listing that lacks rejected keys must not be resumed."""
        return self._refused.total

    def identity(self) -> str:
        """Return a text that identifies, with the source, which objects are listed."""
        self._fetch()
        assert self._list is not None
        return f"{self._list.md5} {self._list.size} {self._patterns}"

    def list(self) -> Iterator[Sequence[Listed]]:
        return self.list_between(b"", None)

    def list_between(self, after: bytes, upto: bytes | None) -> Iterator[Sequence[Listed]]:
        self._ignored.clear()
        self._refused = Offenders()
        with self._asking() as ask, waits.threads(AT_ONCE, "asking") as pool:
            rows_in_order = between(in_order(self._wanted(), folder=self._scratch), after, upto)
            merged = self._merged(rows_in_order)
            while rows := list(islice(merged, BATCH)):
                self._stop.check()
                batch = []
                for row, answer in zip(rows, pool.map(lambda row: self._answer(row, ask), rows), strict=True):
                    if isinstance(answer, Listed):
                        batch.append(answer)
                    else:
                        self._refused.add(row.key, answer)
                if batch:
                    yield batch
        if self._refused.total:
            raise PreflightError(
                f"{counted(self._refused.total, 'key')} of the list cannot be staged",
                where=self._where,
                why="\n  " + "\n  ".join(self._refused.lines()),
                hint="correct the list; its keys are relative to the source, byte for byte",
            )

    def _fetch(self) -> Path:
        if self._list is None:
            self._list = self._files.fetch(self._name, self._scratch / "keys")
        if self._list is None:
            raise PreflightError(
                "there is no list of keys", where=self._where, hint="correct `list_from` of the source"
            )
        return self._list.path

    def _rows(self) -> Iterator[Sequence[Listed]]:
        """Yield the list's rows in the list's order, with the source's URL removed from keys."""
        from penstock.tables.stated_lists import read_keys

        path = self._fetch()
        top = self._source.url if self._source.url.endswith("/") else f"{self._source.url}/"
        tops = tuple({top, top.removeprefix("file://")})
        for batch in read_keys(path, self._where):
            if any(row.key.startswith(tops) for row in batch):
                yield [_below(row, tops) for row in batch]
            else:
                yield batch

    def _wanted(self) -> Iterator[Sequence[Listed]]:
        """Yield the rows that belong to the dataset, since the source is only queried for these."""
        for batch in self._rows():
            self._stop.check()
            kept = self._filter.keep(batch)
            self._ignored["filtered"] += len(batch) - len(kept)
            if self._sums is not None and len(kept) < len(batch):
                kept = [*kept, *self._sums.keep([row for row in batch if not self._filter.accepts(row.key)])]
            yield kept

    def _merged(self, batches: Iterator[Sequence[Listed]]) -> Iterator[Listed]:
        for key, group in groupby(chain.from_iterable(batches), attrgetter("key")):
            first, *others = group
            for row in others:
                self._ignored["named twice"] += 1
                joint = joined(first, row)
                if joint is None:
                    self._refused.add(key, f"is listed twice, and differs: {_told(first)}; {_told(row)}")
                    break
                first = joint
            else:
                yield first

    def _asking(self) -> AbstractContextManager[Callable[[str], Listed | None]]:
        if self._source.asking is not None:
            return self._source.asking()
        list_one = self._source.list_one
        return nullcontext(lambda key: retrying(lambda: list_one(key), self._attempts, self._stop.wait))

    def _lacking(self, row: Listed) -> bool:
        """Return whether the source must be queried. A folder source always must be, since a list cannot
        state penstock's token for a file."""
        if self._pinned and not row.version:
            return True
        return row.size < 0 or not row.token or not of_url(self._config.url).pins

    def _answer(self, row: Listed, ask: Callable[[str], Listed | None]) -> Listed | str:
        """Return the object of a row, or the reason why the row is rejected."""
        if not self._lacking(row):
            return row
        if reason := check_key(row.key):
            return reason
        try:
            listed = ask(row.key)
        except (ObjectError, SourceChangedError) as error:
            return error.reason
        if listed is None:
            return "is not at the source"
        if row.size not in (-1, listed.size):
            return f"has {listed.size:,} bytes at the source, and {row.size:,} in the list"
        if row.token not in ("", listed.token):
            return f"has the version {listed.token} at the source, and {row.token} in the list"
        return listed._replace(checksum=row.checksum) if row.checksum else listed


def joined(former: Listed, latter: Listed) -> Listed | None:
    """Merge two rows of one key; None if they contradict each other."""
    values = []
    for field, nothing in (
        ("size", -1),
        ("token", ""),
        ("modified_ns", 0),
        ("version", ""),
        ("checksum", ""),
    ):
        first, second = getattr(former, field), getattr(latter, field)
        if first != second and nothing not in (first, second):
            return None
        values.append(second if first == nothing else first)
    return Listed(former.key, *values)


def _told(row: Listed) -> str:
    words = [f"{row.size:,} bytes" if row.size >= 0 else "no size", row.token, row.version, row.checksum]
    return ", ".join(filter(None, words))


def _below(row: Listed, tops: tuple[str, ...]) -> Listed:
    for top in tops:
        if row.key.startswith(top):
            return row._replace(key=row.key[len(top) :])
    return row
