"""Reads one shard back from the target, compares it with its journal, writes its records.

Nothing is claimed that was not seen: each record says how the caches were passed, on which host, and
which host had written the row. A row that is missing or differs is a failure, its journal line is taken
back so that the next copy makes it anew, and the shard's records do not appear.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.core.digests import IN_PARTS, Expected, Proof, as_giant
from penstock.core.grades import source_rank
from penstock.core.model import expecting
from penstock.engine.records import journal
from penstock.engine.records.amendments import Amendments, lies
from penstock.engine.shard_run import PoolRun
from penstock.engine.tasks import Failure, Outcome
from penstock.engine.workers.messages import ReadWork
from penstock.errors import FailedError
from penstock.filesystem.errno_map import printable

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from penstock.config.settings import VerifyConfig
    from penstock.core.model import Copied, Entry
    from penstock.engine.batch import Batch
    from penstock.engine.tasks import BatchAnswer, Report, RereadTask, StopCheck

_NONE = (b"", "")
COLD_STREAMS = 4
"""Streams of each worker at first: a cold read is mostly waiting, but small files wait together."""
METHODS = ("unread", "cached", "dropped", "direct")


def storage_grade(method: str, written_host: str, host: str) -> str:
    """How strongly a row is proven to be stored.

    | method          | read where it was written, or that is not known | elsewhere         |
    |-----------------|-------------------------------------------------|-------------------|
    | unread          | written                                         | written           |
    | cached          | reread                                          | reread            |
    | dropped, direct | cold                                            | cold-other-node   |
    """
    if method == "unread":
        return "written"
    if method == "cached":
        return "reread"
    return "cold" if written_host in ("", host) else "cold-other-node"


def to_be_read(verify: VerifyConfig, path: str, source_grade: str) -> bool:
    """The policy `verify.reread`; a sample is the same whoever takes it, and whenever."""
    if verify.reread == "unproven":
        return source_grade != "full"
    if verify.reread == "sample":
        digest = hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=8).digest()
        return int.from_bytes(digest) < verify.sample * 2.0**64
    return True


def reread_shard(task: RereadTask, report: Report, stop: StopCheck) -> Outcome:
    """Read back every row that is linked or that the policy names, look at the times of the others, and
    write `task.records` when no row failed. A linked row is also compared with the checksum that its source
    states now, where its file does not bring along that it held.

    Raises InterruptedRunError after a tidy stop and FailedError for what concerns more than a row.
    """
    outcome = Outcome()
    # The limit is on what is read from the source.
    run = PoolRun(outcome, replace(task.engine, limit=None), task.shard, report)
    try:
        _reread(task, run, stop)
    finally:
        run.close()
    return outcome


class _ReadRows:
    """What the workers saw, by row, in a few flat arrays: 17 bytes a row."""

    def __init__(self, rows: int) -> None:
        self.methods = bytearray(rows)
        self.mtimes = array("q", bytes(8 * rows))
        self.ctimes = array("q", bytes(8 * rows))
        self.further: dict[int, tuple[bytes, str]] = {}
        self.proofs: dict[int, tuple[str, str]] = {}
        """Source grade and proof of linked rows whose source states another checksum than it did."""

    def add(self, found: Iterable[tuple[int, str, int, int, bytes, str, str]]) -> None:
        code, methods, mtimes, ctimes = METHODS.index, self.methods, self.mtimes, self.ctimes
        for row, method, mtime, ctime, parts, digests, proof in found:
            methods[row], mtimes[row], ctimes[row] = code(method), mtime, ctime
            if parts or digests:
                self.further[row] = parts, digests
            if proof:
                self.proofs[row] = Proof.parse(proof)


def _reread(task: RereadTask, run: PoolRun, stop: StopCheck) -> None:
    outcome = run.outcome
    from penstock.engine.batches import batches
    from penstock.formats.shards import read_shard

    if not task.data.is_dir():
        raise FailedError("the folder to read back is not there", where=str(task.data))
    copied = journal.replay(task.journals, task.shard.digest)
    changes = Amendments.read(task.journals, task.shard.digest, copied)
    seen = _ReadRows(task.shard.rows)
    absent: set[int] = set()
    rows = sum(map(lies, copied.values()))
    missing = task.shard.rows - len(copied) - len(changes.voids)
    if missing:
        outcome.failures.append(Failure(str(task.journals), f"{missing} rows were not copied yet", 1, True))
    bad = _not_gone(task, changes, outcome)
    contradicted: set[int] = set()
    if rows:
        verify = task.verify
        whole = verify.whole_file_digest
        work = ReadWork(task.data, digests=verify.digests, whole=whole)
        # A cold read waits for the device, on this machine or over a network.
        run.start(work, rows=rows, total=task.shard.bytes, local=False, each=COLD_STREAMS)

        def take(_: Batch, answer: BatchAnswer) -> None:
            seen.add(answer.results)
            run.fail(answer.failures)
            bad.extend(one.row for one in answer.failures)
            contradicted.update(one.row for one in answer.failures if one.failure.contradicts)
            outcome.linked_failures += [
                one.failure for one in answer.failures if _from_release(copied[one.row])
            ]
            outcome.files += answer.rows
            outcome.bytes += answer.bytes
            outcome.retries += answer.retries

        wanted = _wanted(changes.rows(read_shard(task.rows)), copied, task, absent)
        try:
            run.go(batches(wanted, absent, rows, outcome.workers), take, _nothing, stop)
        finally:
            _take_back(task, bad, _in_parts(contradicted, copied))
    else:
        _take_back(task, bad)
    outcome.amended, outcome.gone, outcome.left_out = changes.changed, changes.gone, task.shard.rows - rows
    if not outcome.failures:
        _write(task, copied, changes, seen, outcome)


def _not_gone(task: RereadTask, changes: Amendments, outcome: Outcome) -> list[int]:
    """Rows whose object is gone, and in whose place something lies all the same: a late attempt wrote it."""
    from penstock.formats.shards import read_shard

    if not changes.gone:
        return []
    found = []
    numbered = enumerate(entry for group in read_shard(task.rows) for entry in group)
    for row, entry in numbered:
        if row in changes.pins and changes.pins[row] is None and os.path.lexists(task.data / entry.path):
            why = "its object left the source, and something lies in its place"
            outcome.failures.append(Failure(printable(entry.path), why, 1, True))
            found.append(row)
    return found


def _in_parts(rows: Iterable[int], copied: Mapping[int, Copied]) -> frozenset[int]:
    """Those that were copied in parts."""
    return frozenset(row for row in rows if copied[row].digest.startswith(IN_PARTS))


def _take_back(task: RereadTask, bad: Sequence[int], contradicted: Container[int] = ()) -> None:
    """Of attempts that ran at once each may have recorded such a row. `contradicted`: by their source."""
    journal.take_back(
        task.journals,
        task.shard.digest,
        frozenset(bad),
        run=task.run,
        host=task.host,
        contradicted=contradicted,
    )


def _from_release(known: Copied) -> bool:
    return known.linked and not known.staging


def _nothing() -> None:
    return None


def _stronger(one: tuple[str, str], other: tuple[str, str]) -> tuple[str, str]:
    """The better of two pairs of a source grade and a proof; the first of equals."""
    return one if source_rank(one[0]) >= source_rank(other[0]) else other


def _wanted(
    shard: Iterable[Sequence[Entry]], copied: Mapping[int, Copied], task: RereadTask, absent: set[int]
) -> Iterator[list[Any]]:
    """The rows with the digest that each must have, "" where it need not be read. Rows that no
    journal has are noted in `absent` before their group is handed on."""
    verify = task.verify
    # Of attempts that followed their source, one may have written another version than was recorded.
    every = task.follow and journal.attempts(task.journals) > 1
    row = 0
    for group in shard:
        rows: list[Any] = []
        for entry in group:
            known = copied.get(row)
            if known is None or not lies(known):
                absent.add(row)
                rows.append(entry)
            elif known.digest.startswith(IN_PARTS):
                # Whatever the policy is: only reading it makes its own digest known.
                owed = known.proof if Proof.owed(known.proof) else ""
                expected = Expected(as_giant(known.digest), in_parts=True, owed=owed)
                rows.append(expecting(entry, str(expected), entry.checksum))
            # Journals of the first format do not say which rows are linked: any that could be.
            elif (
                (linked := known.linked or entry.reuse != "")
                or every
                or known.pin is not None
                or to_be_read(verify, entry.path, known.grade)
            ):
                # Bytes that came by the wire were compared with it then.
                claim = entry.checksum if linked and known.proof != entry.checksum else ""
                rows.append(expecting(entry, known.digest, claim))
            else:
                rows.append(expecting(entry, "", entry.checksum))
            row += 1
        yield rows


def _settled(known: Copied, digests: str) -> tuple[str, str, str, str]:
    """(digest, source grade, proof, further digests) of a row: of one that was copied in parts as they are
    now that all of it was read."""
    if not known.digest.startswith(IN_PARTS):
        return known.digest, known.grade, known.proof, digests
    whole, _, further = digests.partition(" ")
    proven = Proof.owed(known.proof) or (known.grade, known.proof)
    return (whole, *proven, further)


def _write(
    task: RereadTask, copied: Mapping[int, Copied], changes: Amendments, seen: _ReadRows, outcome: Outcome
) -> None:
    from penstock.formats.records import extend_shard
    from penstock.formats.shards import numbered

    host = task.host
    grades, passed = Counter[str](), Counter[str]()

    def columns(rows: Sequence[int]) -> Mapping[str, Sequence[object]]:
        count = len(rows)
        known = [copied[row] for row in rows]
        methods = [METHODS[code] for code in map(seen.methods.__getitem__, rows)]
        written = [one.host for one in known]
        # Few combinations: the table is asked once for each.
        table = {pair: storage_grade(*pair, host) for pair in set(zip(methods, written, strict=True))}
        stored = [table[pair] for pair in zip(methods, written, strict=True)]
        grades.update(stored)
        passed.update(methods)
        further = [seen.further.get(row, _NONE) for row in rows] if seen.further else [_NONE] * count
        settled = [_settled(one, digests) for one, (_, digests) in zip(known, further, strict=True)]
        for place, row in enumerate(rows) if seen.proofs else ():
            if row in seen.proofs:
                digest, *proven, more = settled[place]
                settled[place] = (digest, *_stronger(seen.proofs[row], (proven[0], proven[1])), more)
        return {
            "digest": [digest for digest, _, _, _ in settled],
            "source_grade": [grade for _, grade, _, _ in settled],
            "source_proof": [proof for _, _, proof, _ in settled],
            "storage_grade": stored,
            "method": methods,
            "written_host": written,
            "verified_host": [host] * count,
            "attempt": [task.attempt] * count,
            "mtime_ns": [seen.mtimes[row] for row in rows],
            "ctime_ns": [seen.ctimes[row] for row in rows],
            "parts": [parts for parts, _ in further],
            "digests": [digests for _, _, _, digests in settled],
        }

    extend_shard(task.records, changes.columns(numbered(task.rows)), columns)
    outcome.grades = dict(grades)
    outcome.methods = {name: passed[name] for name in METHODS if passed[name]}
