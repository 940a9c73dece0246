"""A shard's journal: what was copied, durable, replayed by the next attempt.

One file for each attempt (one writer). The first line names the format, run, shard, attempt and
host; each further line is one row. A line is `crc32 SP json LF`, the CRC in 8 hex digits over the
JSON's bytes. A line is written only after the bytes that it speaks of are durable.

Replay accepts a torn end (whatever follows the last good line) and refuses everything else that
is not as it was written: a bad line before a good one, another shard's journal.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from typing import TYPE_CHECKING, Any
from zlib import crc32

from penstock.core.documents import refuse_newer
from penstock.core.model import Copied
from penstock.errors import FailedError
from penstock.storage import durable
from penstock.storage.failures import storage_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

FORMAT = 1
SUFFIX = ".journal"
TOGETHER = 1024
"""Lines read at a time."""
_DIGEST = "xxh3_128:"


def line(value: Any) -> str:
    """One line of a journal; without the line feed no line is whole."""
    text = json.dumps(value, separators=(",", ":"))
    return f"{crc32(text.encode()):08x} {text}\n"


def row_line(row: int, digest: str, grade: str, proof: str) -> str:
    """The same, fast, for one copied row; a plain digest is given as its 32 hex digits alone.
    All of them are words without anything to escape."""
    text = f'[{row},"{digest}","{grade}","{proof}"]'
    return f"{crc32(text.encode()):08x} {text}\n"


class Journal:
    """Writes one attempt's file. `append` then `sync`; what was not synced may be lost, never
    wrong."""

    def __init__(self, folder: Path, *, shard_digest: str, run: str, attempt: str, host: str) -> None:
        # An attempt's name may come again (a requeued job); this one never does.
        attempt = f"{attempt}-{secrets.token_hex(4)}"
        self.path = folder / f"{attempt}{SUFFIX}"
        with _telling("cannot begin a journal", self.path):
            durable.make_dirs(folder)
            self._fd = os.open(
                self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            try:
                self.append(_header(shard_digest, run, attempt, host).encode())
                self.sync()
                durable.fsync_dir(folder)
            except BaseException:
                os.close(self._fd)
                raise

    def append(self, blob: bytes) -> None:
        view = memoryview(blob)
        while view:
            view = view[os.write(self._fd, view) :]

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


@contextlib.contextmanager
def _telling(what: str, path: Path) -> Iterator[None]:
    """An operating system's error as one for people: NoSpaceError, TransientError, FailedError."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, what, str(path)) from None


def _header(shard_digest: str, run: str, attempt: str, host: str) -> str:
    return line({"journal": FORMAT, "shard": shard_digest, "run": run, "attempt": attempt, "host": host})


def replay(folder: Path, shard_digest: str) -> dict[int, Copied]:
    """Row to what became of it, over all attempts, without the rows that were invalidated since.

    A row that two attempts copied with different digests counts as not copied: what lies on the
    target is from one of them. Raises FailedError for a damaged journal or another shard's.
    """
    copied: dict[int, Copied] = {}
    doubtful: set[int] = set()
    for one in _records(folder, shard_digest):
        known = copied.get(one.row)
        if known is not None and known.digest != one.digest:
            doubtful.add(one.row)
        copied[one.row] = one
    for row in doubtful:
        copied.pop(row, None)
    return copied


def settle(folder: Path, shard_digest: str, *, run: str, host: str) -> None:
    """Durably take back all records of rows that attempts copied with different digests: what copies
    them anew would else be one more of those, for ever. To be called before a copy. Raises as `replay`."""
    if len(files(folder)) < 2:
        return
    first: dict[int, str] = {}
    doubtful = {
        one.row
        for one in _records(folder, shard_digest)
        if first.setdefault(one.row, one.digest) != one.digest
    }
    if doubtful:
        records = [one for one in _records(folder, shard_digest) if one.row in doubtful]
        invalidate(folder, shard_digest, records, run=run, host=host)


def _records(folder: Path, shard_digest: str) -> Iterator[Copied]:
    """What all attempts recorded and nobody took back."""
    bad: set[tuple[int, str]] = set()
    for path in files(folder):
        attempt = host = ""
        for number, value in enumerate(_values(path)):
            if number == 0:
                attempt, host = _check_header(path, value, shard_digest)
            elif isinstance(value, dict):
                bad.add((value["bad"], value["attempt"]))
            else:
                row, digest, grade, proof = value
                if (row, attempt) not in bad:
                    digest = digest if ":" in digest else _DIGEST + digest
                    yield Copied(row, digest, grade, proof, host, attempt)


def files(folder: Path) -> list[Path]:
    """The journals of a shard: what invalidates comes first, then by name."""
    try:
        found = [folder / name for name in os.listdir(folder) if name.endswith(SUFFIX)]
    except FileNotFoundError:
        return []
    return sorted(found, key=lambda p: (not p.name.startswith("bad-"), p.name))


def _values(path: Path) -> Iterator[Any]:
    """The good lines; stops at a torn end, raises for damage before a good line."""
    damaged = 0
    bodies: list[bytes] = []
    with _telling("cannot read a journal", path), path.open("rb") as stream:
        for number, raw in enumerate(stream, 1):
            body = raw[9:-1]
            good = raw[-1:] == b"\n" and raw[8:9] == b" " and raw[:8] == b"%08x" % crc32(body)
            if not good:
                damaged = damaged or number
                continue
            if damaged:
                raise FailedError(
                    "a journal is damaged",
                    where=str(path),
                    why=f"line {damaged} is not as it was written, and whole lines follow it",
                    hint="remove this file: what it recorded is copied again",
                )
            bodies.append(body)
            # The first one says whose the others are.
            if len(bodies) == TOGETHER or number == 1:
                yield from _parsed(bodies)
                bodies = []
    yield from _parsed(bodies)


def _parsed(bodies: Sequence[bytes]) -> list[Any]:
    """Values of many lines by one call: a call for each costs more than its reading."""
    values: list[Any] = json.loads(b"[%b]" % b",".join(bodies))
    return values


def _check_header(path: Path, value: Any, shard_digest: str) -> tuple[str, str]:
    number = value.get("journal") if isinstance(value, dict) else None
    refuse_newer("a journal", number, FORMAT, path)
    if not isinstance(number, int) or number < 1:
        raise FailedError(
            "it is not a journal", where=str(path), hint="remove it: what it recorded is copied again"
        )
    if value["shard"] != shard_digest:
        raise FailedError(
            "a journal belongs to another shard",
            where=str(path),
            why=f"it names {value['shard']}, the plan has {shard_digest}",
            hint="the run's folder was mixed with another's: remove the file, its rows are copied again",
        )
    return value["attempt"], value["host"]


def invalidate(folder: Path, shard_digest: str, copied: Iterable[Copied], *, run: str, host: str) -> None:
    """Durably take back records: the next copy makes these rows anew. What a later attempt
    copies counts again."""
    lines = [line({"bad": c.row, "attempt": c.attempt}) for c in copied]
    if not lines:
        return
    name = f"bad-{secrets.token_hex(8)}"
    text = _header(shard_digest, run, name, host) + "".join(lines)
    path = folder / f"{name}{SUFFIX}"
    with _telling("cannot take a journal's records back", path):
        durable.make_dirs(folder)
        durable.write_file(path, text.encode())


def clear(folder: Path) -> None:
    """Forget a shard's journals: all of it is copied anew."""
    for path in files(folder):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
