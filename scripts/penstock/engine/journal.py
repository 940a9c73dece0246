"""A shard's journal, which records the rows (files, or parts of giants) that are copied and durable. The
next attempt replays it into `CopiedRows`, packed columns in memory, and copies only the other rows.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from array import array
from collections.abc import Container, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from penstock.core import typed_json
from penstock.core.errors import FailedError, refuse_newer
from penstock.core.model import DIGEST_BYTES, Copied, hex_of, of_hex
from penstock.core.row_codec import (
    BY_NAME,
    JOURNAL,
    PART,
    arranged,
    body_of,
    copied_of,
    file_format,
    line,
    part_of,
    pin_of,
)
from penstock.engine.tasks import DROPPED
from penstock.fs import small_files
from penstock.fs.safe_open import storage_error

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from penstock.core.model import Pin
    from penstock.engine.tasks import Unfinished


# The copied rows of a shard with their digests and proofs, in packed columns in memory.
#
# A shard has some 500,000 rows, and a `Copied` with its strings takes 430 bytes. In these columns a row takes
# 16 bytes for the digest, its proof's text and 15 bytes more. Rare rows (another version than planned, a
# digest of parts, an object that is gone) are kept as `Copied` objects.

_ABSENT, _PACKED, _ODD = 0, 1, 2
_CODES = {"int64": "q", "double": "d"}
# The array type code of each column of numbers.
_NUMBERS = {
    name: _CODES[column.kind.stored]
    for name in Copied._fields
    if name != "row" and (column := BY_NAME.get(name)) and not column.kind.text
}
_OWN = ("row", "digest", "source_proof", "pin")
# fields that many rows have in common
_ALIKE = tuple(name for name in Copied._fields if name not in (*_OWN, *_NUMBERS))
_alike = attrgetter(*_ALIKE)
_copied = arranged(Copied, (*_OWN, *_ALIKE, *_NUMBERS))


class _Links:
    """The rows that `CopiedRows.links` returns. A linked row is always packed."""

    def __init__(self, kinds: bytearray, alike: array[int], flags: bytes) -> None:
        self._kinds, self._alike, self._flags = kinds, alike, flags

    def __contains__(self, row: object) -> bool:
        return (
            isinstance(row, int)
            and row < len(self._kinds)
            and self._kinds[row] == _PACKED
            and bool(self._flags[self._alike[row]])
        )


class CopiedRows(Mapping[int, Copied]):
    """Maps a row's number to its `Copied`. Numbers should be dense: an unused number takes a row's space."""

    def __init__(self) -> None:
        self._kinds = bytearray()
        self._digests = bytearray()
        self._alike = array("I")  # for each row the index in `_combinations`, the distinct `_ALIKE` values
        self._starts, self._lengths = array("Q"), array("H")
        self._proofs = bytearray()
        self._combinations: list[tuple[object, ...]] = []
        self._places: dict[tuple[object, ...], int] = {}
        self._numbers: dict[str, array[Any]] = {name: array(code) for name, code in _NUMBERS.items()}
        self._odd: dict[int, Copied] = {}
        self._count = 0

    def add(self, record: Copied) -> None:
        """Set the row's record, which replaces any earlier record of the row."""
        row = record.row
        if row >= len(self._kinds):
            # Grow the columns by half, since rows arrive in any order.
            more = max(row + 1, 3 * len(self._kinds) // 2) - len(self._kinds)
            self._kinds += bytes(more)
            self._digests += bytes(more * DIGEST_BYTES)
            for column in (self._alike, self._starts, self._lengths, *self._numbers.values()):
                column.frombytes(bytes(more * column.itemsize))
        self._count += self._kinds[row] == _ABSENT
        digest, proof = hex_of(record.digest), record.source_proof.encode()
        if len(digest) != 2 * DIGEST_BYTES or record.pin is not None or len(proof) > 0xFFFF:
            self._kinds[row] = _ODD
            self._odd[row] = record
            return
        if self._kinds[row] == _ODD:
            del self._odd[row]
        alike = _alike(record)
        number = self._places.get(alike)
        if number is None:
            number = self._places[alike] = len(self._combinations)
            self._combinations.append(alike)
        self._kinds[row] = _PACKED
        self._digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES] = bytes.fromhex(digest)
        self._alike[row] = number
        self._starts[row], self._lengths[row] = len(self._proofs), len(proof)
        self._proofs += proof
        for name, kept in self._numbers.items():
            kept[row] = getattr(record, name)

    def drop(self, row: int) -> None:
        """Remove the row's record, if any."""
        if row in self:
            self._odd.pop(row, None)
            self._kinds[row] = _ABSENT
            self._count -= 1

    def odd(self) -> Mapping[int, Copied]:
        """Return the rows with another version than planned, a digest of parts, or an object that is gone."""
        return self._odd

    def columns(self, rows: Sequence[int], names: Sequence[str]) -> dict[str, list[Any]]:
        """Return these fields as lists in the order of `rows`, which must all have records.

        A `Copied` for each row would cost far more. `names` come from `digest`, `source_proof`, `_ALIKE`.
        """
        if self._odd:
            return {name: [getattr(self[row], name) for row in rows] for name in names}
        columns: dict[str, list[Any]] = {}
        alike = [self._combinations[self._alike[row]] for row in rows]
        for name in names:
            if name == "digest":
                size, digests = DIGEST_BYTES, self._digests
                columns[name] = [of_hex(digests[row * size : (row + 1) * size].hex()) for row in rows]
            elif name == "source_proof":
                text, starts, lengths = self._proofs.decode(), self._starts, self._lengths
                if not text.isascii():
                    columns[name] = [self[row].source_proof for row in rows]
                    continue
                columns[name] = [text[starts[row] : starts[row] + lengths[row]] for row in rows]
            else:
                place = _ALIKE.index(name)
                columns[name] = [combination[place] for combination in alike]
        return columns

    def links(self, *, untouched: bool = False) -> Container[int]:
        """Return the rows linked from the base release. If `untouched` is set, return only the rows whose
        ctime before the link was accounted for."""
        linked, staging, touched = map(_ALIKE.index, ("linked", "staging", "touched"))
        flags = bytes(
            bool(combination[linked])
            and not combination[staging]
            and not (untouched and combination[touched])
            for combination in self._combinations
        )
        return _Links(self._kinds, self._alike, flags) if any(flags) else ()

    def __getitem__(self, row: int) -> Copied:
        kind = self._kinds[row] if 0 <= row < len(self._kinds) else _ABSENT
        if kind == _ABSENT:
            raise KeyError(row)
        if kind == _ODD:
            return self._odd[row]
        digest = of_hex(self._digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES].hex())
        start = self._starts[row]
        proof = self._proofs[start : start + self._lengths[row]].decode()
        numbers = [kept[row] for kept in self._numbers.values()]
        return _copied((row, digest, proof, None, *self._combinations[self._alike[row]], *numbers))

    def __contains__(self, row: object) -> bool:
        return isinstance(row, int) and 0 <= row < len(self._kinds) and self._kinds[row] != _ABSENT

    def __iter__(self) -> Iterator[int]:
        return (row for row, kind in enumerate(self._kinds) if kind != _ABSENT)

    def __len__(self) -> int:
        return self._count


# The run's folder `journal/<shard>/` has a file for each attempt, and only that attempt writes it. The file's
# first line names format, run, shard, attempt and host, and each further line is about a row. All lines have
# the form `crc32 SP json LF`, with the CRC of the JSON's bytes in 8 hex digits. A row's line is written only
# after the row's bytes are durable.
#
# | line                             | meaning                                                       |
# |----------------------------------|---------------------------------------------------------------|
# | `[row, digest, grade, proof]`    | the row is copied                                             |
# | `[row, digest, grade, proof,     | the row's file was already on the target; an unknown writer   |
# | writer's host, staging's run]`   | is ""; without a run, the file is linked from the release     |
# | `["amend", row, [size, token,    | this attempt's later records of the row are of this version,  |
# | modified_ns, version, checksum]]`| not of the planned version                                    |
# | `["gone", row]`                  | the object left the source, and staging has no file for it    |
# | `["whole", row]`, `["void", row]`| a giant's object changed: its first row now is the whole      |
# |                                  | object, and its other rows are void                           |
# | `["part", row, ...]`             | a part of the row is in its temporary file (`PartLine`), or   |
# |                                  | that file was made or removed, or a file copied in order has  |
# |                                  | come this far; counts until the row's own line                |
# | `{"bad": row, "attempt": ...}`   | that attempt's records of the row do not count; if it has     |
# |                                  | `"contradicted": true`, the parts contradicted their source   |
#
# Attempts can overlap and record different versions of a row. The version in staging is certain only if all
# records of the row agree in digest and version. Otherwise none of them counts, and the row is copied again,
# which replaces the file in staging.
#
# An attempt's journal ends at its first bad line, which is a torn end or a hole left by a power cut. A
# journal of another shard is an error, and so is a bad line in a file written by `invalidate` or `join`.

FORMAT = file_format(JOURNAL)  # the format of journals that this version writes; a newer format is an error
SUFFIX = ".journal"
TOGETHER = 1024  # lines read at a time
GONE = "gone"  # takes the place of a digest if the row's object left its source
AMEND, WHOLE, VOID = "amend", "whole", "void"  # kinds of lines: see the table above
# name prefixes of the journals that `invalidate` and `join` write; attempts write all others
_FIRST = ("bad-", f"{WHOLE}-")


def amend_line(row: int, pin: Pin) -> str:
    """Return the line that precedes a row's own line if another version than planned was copied."""
    return line([AMEND, row, pin])


def gone_line(row: int) -> str:
    """Return the line for a row whose object left its source."""
    return line([GONE, row])


class Journal:
    """Writes one attempt's file, which the constructor makes. Lines that are appended but not yet synced may
    be lost, but are never wrong.

    The constructor raises errors according to `safe_open.storage_error`.
    """

    def __init__(self, folder: Path, *, shard_digest: str, run: str, attempt: str, host: str) -> None:
        # A requeued job's attempt has the same name again, so random digits make it unique.
        attempt = f"{attempt}-{secrets.token_hex(4)}"
        self.path = folder / f"{attempt}{SUFFIX}"
        with _telling("cannot begin a journal", self.path):
            small_files.make_dirs(folder)
            self._fd = os.open(
                self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            try:
                self.append(_header(shard_digest, run, attempt, host).encode())
                self.sync()
                small_files.fsync_dir(folder)
            except BaseException:
                os.close(self._fd)
                raise

    def append(self, blob: bytes) -> None:
        """Write whole lines at the file's end. Raises OSError."""
        view = memoryview(blob)
        while view:
            view = view[os.write(self._fd, view) :]

    def sync(self) -> None:
        """Make all appended lines durable. Raises OSError."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def names(folder: Path) -> set[str]:
    """Return the names of the folder's journals, for `records_more`."""
    try:
        return {name for name in os.listdir(folder) if name.endswith(SUFFIX)}
    except FileNotFoundError:
        return set()


def records_more(folder: Path, before: set[str]) -> bool:
    """Return whether a journal not in `before` records a row or a part, which the next attempt need not copy.

    A temporary file that was only made, or was dropped, does not count. Raises the errors of `replay`.
    """
    begun: set[str] = set()
    dropped: set[str] = set()
    for name in names(folder) - before:
        if name.startswith(_FIRST):
            continue
        for value in _values(folder / name):
            if isinstance(value, dict) or value[0] == AMEND:
                continue
            if value[0] != PART:
                return True
            part = part_of(value)
            if part.number >= 0:
                begun.add(part.temporary)
            elif part.number == DROPPED:
                dropped.add(part.temporary)
    return not begun <= dropped


@contextlib.contextmanager
def _telling(what: str, path: Path) -> Iterator[None]:
    """Turn an OSError into NoSpaceError, TransientError or FailedError."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, what, str(path)) from None


def _header(shard_digest: str, run: str, attempt: str, host: str) -> str:
    return line({"journal": FORMAT, "shard": shard_digest, "run": run, "attempt": attempt, "host": host})


def replay(
    folder: Path, shard_digest: str, holes: list[str] | None = None, unfinished: Unfinished | None = None
) -> CopiedRows:
    """Return the copied rows of a shard from the journals of all attempts, without records taken back.

    | what the journals say about a row                          | result                             |
    |------------------------------------------------------------|------------------------------------|
    | attempts recorded different digests or different versions  | the row counts as not copied: the  |
    |                                                            | version on the target is unknown   |
    | attempts on several hosts recorded the same version        | `written_host` is ""               |
    | several hosts wrote its file                               | `written_host` is ""               |
    | its object is gone                                         | its digest is `GONE`               |

    It fills `unfinished` with the journals' lines about rows without a record. It appends to `holes` a
    sentence for each journal that ends at a hole. Raises FailedError for a journal of another shard, or a
    damaged journal that takes records back. Raises NewerFormatError for a newer format, and errors according
    to `safe_open.storage_error` if a journal cannot be read.
    """
    copied = CopiedRows()
    doubtful: set[int] = set()
    hosts: dict[int, set[str]] = {}
    for record in _records(folder, shard_digest, holes, unfinished, hosts):
        earlier = copied.get(record.row)
        if earlier is not None and _became(earlier) != _became(record):
            doubtful.add(record.row)
        copied.add(
            record
            if earlier is None or earlier.written_host == record.written_host
            else record._replace(written_host="")
        )
    for row in doubtful:
        copied.drop(row)
    for row, wrote in hosts.items():
        # Only now are the hosts of all journals known. Journals are not read in the order of their times.
        merged = copied.get(row)
        if merged is not None and wrote != {merged.written_host}:
            copied.add(merged._replace(written_host=""))
    if unfinished is not None:
        for row in unfinished.parts.keys() & copied.keys():
            del unfinished.parts[row]
    return copied


def settle(folder: Path, shard_digest: str, *, run: str, host: str) -> None:
    """If attempts recorded different digests or versions of a row, durably take back all its records.

    Call it before a copy, or the new copy's record would disagree with the old records. Raises the errors of
    `replay`.
    """
    if len(files(folder)) < 2:
        return
    first: dict[int, tuple[str, Pin | None]] = {}
    doubtful = {
        record.row
        for record in _records(folder, shard_digest)
        if first.setdefault(record.row, _became(record)) != _became(record)
    }
    take_back(folder, shard_digest, doubtful, run=run, host=host)


def _became(copied: Copied) -> tuple[str, Pin | None]:
    return copied.digest, copied.pin


def _records(
    folder: Path,
    shard_digest: str,
    holes: list[str] | None = None,
    unfinished: Unfinished | None = None,
    hosts: dict[int, set[str]] | None = None,
) -> Iterator[Copied]:
    """Yield all attempts' records except those taken back. If a giant was copied whole, omit the records of
    its parts.

    It adds lines about parts, and records that were taken back, to `unfinished`. To `hosts` it adds the hosts
    that wrote parts of a row.
    """
    bad: set[tuple[int, str]] = set()
    joined: dict[int, str] = {}
    for path in files(folder):
        attempt = host = ""
        pins: dict[int, Pin] = {}
        for number, value in enumerate(_values(path, holes)):
            if number == 0:
                attempt, host = _check_header(path, value, shard_digest)
            elif isinstance(value, dict):
                bad.add((value["bad"], value["attempt"]))
                if unfinished is not None:
                    unfinished.taken_back.add(value["bad"])
                    if value.get("contradicted"):
                        unfinished.contradicted.add(value["bad"])
            elif value[0] == PART:
                part = part_of(value)
                if hosts is not None and part.number >= 0:
                    hosts.setdefault(part.row, set()).add(host)
                if unfinished is not None:
                    unfinished.parts.setdefault(part.row, []).append(part)
            elif isinstance(value[0], str):
                kind, row = value[0], value[1]
                if kind == AMEND:
                    pins[row] = pin_of(value[2])
                elif kind != GONE:
                    joined[row] = kind
                elif (row, attempt) not in bad:
                    yield Copied(row, GONE, "", "", host, attempt)
            else:
                row = value[0]
                if (row, attempt) in bad or (joined and _of_a_part(joined.get(row), pins.get(row))):
                    continue
                yield copied_of(value, host, attempt, pins.get(row))


def _of_a_part(joined: str | None, pin: Pin | None) -> bool:
    """Return whether a record is about a part of a giant that is now copied whole.

    A record of the whole copy always has a `pin`, its version.
    """
    return joined == VOID or (joined == WHOLE and pin is None)


def joined(folder: Path, shard_digest: str) -> tuple[frozenset[int], frozenset[int]]:
    """Return the rows that are a whole giant, and the void rows. Raises the errors of `replay`."""
    rows: dict[str, set[int]] = {WHOLE: set(), VOID: set()}
    for path in files(folder):
        if path.name.startswith(f"{WHOLE}-"):
            for number, value in enumerate(_values(path)):
                if number == 0:
                    _check_header(path, value, shard_digest)
                else:
                    rows[value[0]].add(value[1])
    return frozenset(rows[WHOLE]), frozenset(rows[VOID])


def attempts(folder: Path) -> int:
    """Return the number of attempts that began to copy the shard. Each may have written bytes that no line
    records."""
    return sum(not path.name.startswith(_FIRST) for path in files(folder))


def files(folder: Path) -> list[Path]:
    """Return the paths of a shard's journals, sorted by name. The journals that `invalidate` and `join` wrote
    come first."""
    try:
        paths = [folder / name for name in os.listdir(folder) if name.endswith(SUFFIX)]
    except FileNotFoundError:
        return []
    return sorted(paths, key=lambda p: (not p.name.startswith(_FIRST), p.name))


def _values(path: Path, holes: list[str] | None = None) -> Iterator[Any]:
    """Yield the values of a journal's good lines, up to its first bad line.

    Omitting the records after it is safe, since their rows are copied again. If good lines follow the bad
    line, it appends a sentence to `holes`. An NFS, BeeGFS or XFS client that dies while it writes pages can
    leave such a hole. A bad line in a journal of `invalidate` or `join` raises FailedError.
    """
    bodies: list[bytes] = []
    with _telling("cannot read a journal", path), small_files.opened(path) as stream:
        for number, raw in enumerate(small_files.lines(stream), 1):
            body = body_of(raw)
            if body is None:
                if path.name.startswith(_FIRST):
                    # The caller must see the earlier lines first: their header may name another shard.
                    yield from _parsed(bodies)
                    raise _damaged(path, number)
                if holes is not None and (hole := _hole(path, number, small_files.lines(stream))):
                    holes.append(hole)
                break
            bodies.append(body)
            # The first line is parsed at once, as it names the shard of all lines.
            if len(bodies) == TOGETHER or number == 1:
                yield from _parsed(bodies)
                bodies = []
    yield from _parsed(bodies)


def _damaged(path: Path, number: int) -> FailedError:
    return FailedError(
        "a journal that takes records back is damaged",
        where=str(path),
        why=f"line {number} is not as it was written",
        hint=f"remove {path.parent.parent.parent}: `penstock run` copies this release anew",
    )


def _hole(path: Path, number: int, rest: Iterable[bytes]) -> str:
    """Describe a hole, which has good lines after the first bad line. Returns "" for a torn end."""
    lost = sum(body_of(raw) is not None for raw in rest)
    if not lost:
        return ""
    return f"line {number} of the journal {path} is damaged: the {lost} lines after it count as not written"


def _parsed(bodies: Sequence[bytes]) -> list[Any]:
    """Parse many lines with one call, which costs less than a call for each line."""
    values: list[Any] = typed_json.bounded_loads(b"[%b]" % b",".join(bodies))
    return values


def _check_header(path: Path, value: Any, shard_digest: str) -> tuple[str, str]:
    number = value.get("journal") if isinstance(value, dict) else None
    refuse_newer("a journal", number, FORMAT, path)
    if not isinstance(number, int) or number < 1:
        raise FailedError(
            "the file is not a journal", where=str(path), hint="remove it: what it recorded is copied again"
        )
    if value["shard"] != shard_digest:
        raise FailedError(
            "a journal belongs to another shard",
            where=str(path),
            why=f"it names {value['shard']}, the plan has {shard_digest}",
            hint="the run's folder was mixed with another's: remove the file, its rows are copied again",
        )
    return value["attempt"], value["host"]


def invalidate(
    folder: Path,
    shard_digest: str,
    copied: Iterable[Copied],
    *,
    run: str,
    host: str,
    contradicted: Container[int] = (),
) -> None:
    """Durably take back the records `copied`, so that the next attempt copies these rows again.

    New records of later attempts count. `contradicted` has the rows whose parts contradicted their source:
    such rows are not copied in parts again. Raises errors according to `safe_open.storage_error`.
    """
    values = [
        {"bad": c.row, "attempt": c.copy_attempt, **({"contradicted": True} if c.row in contradicted else {})}
        for c in copied
    ]
    _write(folder, "bad", shard_digest, values, run, host)


def join(
    folder: Path, shard_digest: str, whole: Iterable[int], void: Iterable[int], *, run: str, host: str
) -> None:
    """Durably note that each row in `whole` is copied as a whole giant, and that rows in `void` are void.

    Records of the giants' parts no longer count. Raises the errors of `invalidate`.
    """
    values = [[WHOLE, row] for row in whole] + [[VOID, row] for row in void]
    _write(folder, WHOLE, shard_digest, values, run, host)


def take_back(
    folder: Path,
    shard_digest: str,
    rows: Collection[int],
    *,
    run: str,
    host: str,
    contradicted: Container[int] = (),
) -> None:
    """Take back all records of these rows with `invalidate`. Raises the errors of `replay`."""
    if rows:
        records = [record for record in _records(folder, shard_digest) if record.row in rows]
        invalidate(folder, shard_digest, records, run=run, host=host, contradicted=contradicted)


def _write(folder: Path, kind: str, shard_digest: str, values: Sequence[Any], run: str, host: str) -> None:
    """Write a journal that belongs to no attempt. It is written whole or not at all."""
    if not values:
        return
    name = f"{kind}-{secrets.token_hex(8)}"
    text = _header(shard_digest, run, name, host) + "".join(map(line, values))
    path = folder / f"{name}{SUFFIX}"
    with _telling("a journal cannot be amended", path):
        small_files.make_dirs(folder)
        small_files.write_file(path, text.encode())


def clear(folder: Path) -> None:
    """Remove a shard's journals, so that all its rows are copied again. Raises OSError."""
    for path in files(folder):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
