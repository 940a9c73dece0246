"""Copies objects that changed since the listing, in further rounds (`datasets.*.changed: follow`), and
rereads the checksum files beside them.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from penstock.core.errors import ObjectError, PenstockError, SourceChangedError
from penstock.core.model import Pin
from penstock.engine import journal
from penstock.engine.stream import Sources, failure, of_row
from penstock.engine.tasks import FailedRow, Failure
from penstock.host import waits
from penstock.sources.backoff import may_retry, retrying
from penstock.sources.stated_checksums import joined, read
from penstock.target import notices
from penstock.target.staging_writer import StagingWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.core.model import Entry, Listed, SourceChecksum
    from penstock.engine.credential_renewal import Credentials
    from penstock.engine.rows_left import Amendments
    from penstock.engine.tasks import CopyTask, Outcome, StopCheck
    from penstock.target.staging_writer import WriterOptions


# Rereads the checksum files beside the data, for objects that changed since the listing.
#
# The run keeps a list of its listing's checksum files (`RunLayout.stated`). For a changed object, only
# checksum files in its folder and the folders above are read. If these are more than MANY (a sidecar for each
# object), only files whose name begins with the object's name are read.

MANY = 1000  # the most checksum files of a source that are read for its changed objects, whatever their names


def restated(
    stated: Path,
    sources: Sources,
    changed: Sequence[Entry],
    *,
    attempts: int,
    wait: Callable[[float], None],
) -> dict[tuple[int, str], SourceChecksum]:
    """Return the checksums that the files state now for these objects, by source and key.

    Retries a failed read up to `attempts` times, after `wait(seconds)`. Raises ObjectError for a file that
    cannot be read, or is no checksum file.
    """
    from penstock.tables.run_tables import read_listing  # loads pyarrow

    by_object: dict[tuple[int, str], SourceChecksum] = {}
    files = [entry for batch in read_listing(stated) for entry in batch]
    for source in {entry.source for entry in changed}:
        keys = [entry.key for entry in changed if entry.source == source]
        wanted = _of(keys, [entry.key for entry in files if entry.source == source])
        contents = ((key, data) for key in wanted for data in _content(sources, source, key, attempts, wait))
        checksums = joined(contents)
        by_object |= {(source, key): checksums[key] for key in keys if key in checksums}
    return by_object


def _of(keys: Sequence[str], files: Sequence[str]) -> list[str]:
    """Return the files that may state checksums of these keys."""
    folders = {folder for key in keys for folder in _above(key)}
    near = [key for key in files if key.rpartition("/")[0] in folders]
    if len(near) <= MANY:
        return near
    return [file for file in near if any(file.startswith(f"{key}.") for key in keys)]


def _above(key: str) -> Iterable[str]:
    while key:
        key = key.rpartition("/")[0]
        yield key


def _content(
    sources: Sources, source: int, key: str, attempts: int, wait: Callable[[float], None]
) -> Iterator[bytes]:
    """Yield the checksum file's current content, or nothing if it is gone."""

    def attempt() -> bytes | None:
        listed = sources.get(source).list_one(key)
        return None if listed is None else read(sources.get(source), listed)

    def may(error: PenstockError, tried: int) -> bool:
        return isinstance(error, SourceChangedError) or may_retry(error, tried)

    try:
        content = retrying(attempt, attempts, wait, may=may)
    except PenstockError as error:
        why = error.reason
        raise ObjectError("a checksum file cannot be read again", where=key, why=why) from error
    if content is not None:
        yield content


# Copies objects that changed since the listing, in further rounds (`datasets.*.changed: follow`).
#
# A round ends when all its rows are done, or failed because they changed. Each changed object is then listed
# again by its key. If the object exists, it is copied in the next round, pinned to the version just listed.
# If it is gone, its file is removed from staging. The journal records the pins and removals before the next
# round begins. So a file always consists of one version, and the journal says which version.
#
# A row that changes in `engine.attempts` rounds fails with an error that names it. More changes than
# `FollowLimit` end the shard.

LOOKS = 8  # objects that are listed again at a time
WAIT = 0.1  # seconds between two checks whether the engine must stop


class Following:
    """The changed objects of one attempt at one shard."""

    def __init__(
        self,
        task: CopyTask,
        outcome: Outcome,
        credentials: Credentials,
        writer: WriterOptions,
        changes: Amendments,
    ) -> None:
        """`writer` says how staging is written. `changes` has earlier attempts' changes, and is updated."""
        self._task, self._outcome, self._credentials = task, outcome, credentials
        self._sources = Sources(task.dataset, credentials.current)
        self._writer = writer
        self.waiting: dict[int, FailedRow] = {}  # rows whose object changed, for the next round
        self._rounds: dict[int, int] = {}
        self.changes = changes

    def sort(self, failures: Sequence[FailedRow]) -> list[FailedRow]:
        """Keep failed rows whose object changed for the next round, and return the other failures."""
        others = []
        for failed in failures:
            # An object that contradicts its checksum file may be newer than the checksum file.
            if failed.failure.exit_code == SourceChangedError.exit_code or (
                self._task.stated and failed.failure.contradicts
            ):
                self.waiting[failed.row] = failed
            else:
                others.append(failed)
        return others

    def check(self) -> None:
        """Raise SourceChangedError as soon as more objects changed than `CopyTask.may_change` allows."""
        most = sum(self._task.may_change)
        if len(self.waiting) > most:
            # An object that contradicts a checksum may still be the planned version.
            changed = {row for row, failed in self.waiting.items() if not failed.failure.contradicts}
            if len(changed) > most:
                self._limited(len(self.changes.pins.keys() | changed), 0)

    def round(
        self, entries: Mapping[int, Entry], fail: Callable[[list[FailedRow]], None], stop: StopCheck
    ) -> tuple[list[int], bytes]:
        """List the objects again that changed in the last round. Returns the rows of the next round, and the
        journal lines to write before it.

        Raises SourceChangedError if there are more changes than allowed, and InterruptedRunError.
        """
        while notices.standing_pause() is not None:
            stop()
            waits.pause(WAIT)
        waiting, self.waiting = self.waiting, {}
        wanted = []
        for row, failed in waiting.items():
            if entries[row].part >= 0:
                # Other elements copy the giant's other parts. So a further round of elements copies it all.
                self._outcome.split.append(row)
                fail([failed])
            elif self._rounds.get(row, 0) >= self._task.engine.attempts:
                fail([_restless(failed, self._rounds[row])])
            else:
                self._rounds[row] = self._rounds.get(row, 0) + 1
                wanted.append(row)
        lines: list[str] = []
        gone: list[int] = []
        existing: dict[int, Listed] = {}
        for row, listed in self._listed_anew(wanted, entries, stop):
            if isinstance(listed, PenstockError):
                fail([FailedRow(row, Failure(*failure(entries[row].path, listed)))])
            elif listed is None:
                gone.append(row)
                lines.append(journal.gone_line(row))
                self.changes.pins[row] = None
            else:
                existing[row] = listed
        try:
            pins = self._pins(existing, entries, stop)
        except ObjectError as error:
            fail([FailedRow(row, Failure(*failure(entries[row].path, error))) for row in existing])
            pins = {}
        for row in [
            row for row in pins if waiting[row].failure.contradicts and pins[row] == Pin.planned(entries[row])
        ]:
            # Neither the object nor its checksum changed, so another read would fail in the same way.
            fail([waiting[row]])
            del pins[row]
        self.changes.pins |= pins
        lines += [journal.amend_line(row, pin) for row, pin in pins.items()]
        self._limited(self.changes.changed, self.changes.gone)
        self._remove([entries[row].path for row in gone])
        self._outcome.files += len(gone)
        return list(pins), "".join(lines).encode()

    def _pins(
        self, objects: Mapping[int, Listed], entries: Mapping[int, Entry], stop: StopCheck
    ) -> dict[int, Pin]:
        """Pin the listed versions, with the checksums that checksum files state now. Raises ObjectError."""
        checksums = {}
        if objects and self._task.stated:

            def wait(seconds: float) -> None:
                ends = time.monotonic() + seconds
                while (left := ends - time.monotonic()) > 0:
                    stop()
                    waits.pause(min(left, WAIT))

            changed = [entries[row] for row in objects]
            checksums = restated(
                self._task.stated, self._sources, changed, attempts=self._task.engine.attempts, wait=wait
            )
        pins = {}
        for row, listed in objects.items():
            stated = checksums.get((entries[row].source, listed.key))
            checksum = listed.checksum if stated is None else str(stated)
            pins[row] = Pin(listed.size, listed.token, listed.modified_ns, listed.version, checksum)
        return pins

    def _listed_anew(
        self, rows: Sequence[int], entries: Mapping[int, Entry], stop: StopCheck
    ) -> Iterator[tuple[int, Listed | PenstockError | None]]:
        ending = threading.Event()
        with waits.threads(LOOKS, "following") as threads:
            asked = [(row, threads.submit(self._list_one, entries[row], ending)) for row in rows]
            try:
                for row, answer in asked:
                    while not answer.done():
                        stop()
                        ending.wait(WAIT)
                    yield row, answer.result()
            finally:
                ending.set()

    def _list_one(self, entry: Entry, ending: threading.Event) -> Listed | PenstockError | None:
        """Return the object's current listing, or the error of the last try."""

        attempts = self._task.engine.attempts
        try:
            return self._credentials.asked(
                self._sources, entry.source, lambda source: source.list_one(entry.key), attempts, ending.wait
            )
        except PenstockError as error:
            if of_row(error):
                return error
            raise

    def _limited(self, changed: int, gone: int) -> None:
        """Raise SourceChangedError if one of the counts exceeds `may_change`."""
        for what, count, most in zip(
            ("changed", "gone"), (changed, gone), self._task.may_change, strict=True
        ):
            if count > most:
                raise beyond(what, count, most)

    def _remove(self, paths: Sequence[str]) -> None:
        """Durably remove files, before the journal's lines are written."""
        if paths:
            with StagingWriter(self._task.data, **self._writer) as writer:
                for path in paths:
                    writer.remove(path)
                writer.settle()


def beyond(what: str, count: int, most: int) -> SourceChangedError:
    """Return the error for too many changes. `what` is a field of `FollowLimit`."""
    verb = "left the source" if what == "gone" else "changed"
    return SourceChangedError(
        "the source changes more than `changed: follow` allows",
        why=f"{count:,} files {verb} since they were listed, {most:,} may",
        hint="the same command lists the source again and keeps what did not change; leave out by `exclude` "
        "what always changes",
    )


def _restless(row: FailedRow, rounds: int) -> FailedRow:
    failed = row.failure
    if failed.exit_code != SourceChangedError.exit_code:
        return row
    reason = f"it changed again each of the {rounds} times it was read anew; `exclude` may leave it out"
    return FailedRow(row.row, Failure(failed.path, f"{failed.why} ({reason})", failed.exit_code, retry=False))
