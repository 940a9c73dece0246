"""The closing walk: listing = records = tree, in one pass over three streams in the same order.

Nothing is gathered in memory but what deviates. A giant's parts become one record here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from os import fsencode
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.model import STORAGE_GRADES, Claim, Record
from penstock.engine.checks import combine, compose, judge_giant, listed, tree_digest
from penstock.errors import FailedError, IntegrityError
from penstock.storage.walk import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from penstock.core.model import Entry
    from penstock.core.runs import PlanInfo
    from penstock.formats.records import SeenRow
    from penstock.storage.walk import Found

SHOWN = 20


class Whole(NamedTuple):
    """One file's record, and the shards that hold its rows."""

    record: Record
    shards: tuple[int, ...]


@dataclass
class Deviations:
    """What the closing walk found, `SHOWN` of each kind by name."""

    extra: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    touched: list[str] = field(default_factory=list)
    """Size, kind or times are not those that verify saw."""
    contradicted: list[str] = field(default_factory=list)
    """Giants whose parts contradict the source's own checksum."""
    wrong: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Their paths, and the shards that hold their parts: to be copied again."""
    weak: list[str] = field(default_factory=list)
    """Read back, but with less evidence than this file system can give: a page stayed in a cache."""
    shards: set[int] = field(default_factory=set)
    """Shards of what is missing, touched, contradicted or weak."""
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, text: str, shards: Iterable[int] = ()) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        named: list[str] = getattr(self, kind)
        if len(named) < SHOWN:
            named.append(text)
        self.shards.update(shards)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def lines(self) -> list[str]:
        out = []
        for kind, count in sorted(self.counts.items()):
            named: list[str] = getattr(self, kind)
            out += [f"{kind}: {text}" for text in named]
            if count > len(named):
                out.append(f"{kind}: and {count - len(named)} more")
        return out


def close(
    plan: PlanInfo,
    listing: Iterable[Sequence[Entry]],
    rows: Iterator[tuple[int, SeenRow]],
    data: Path,
    ask: Callable[[Entry], Sequence[Claim]],
    deviations: Deviations,
) -> Iterator[Whole]:
    """The records of all files, in order, each compared with its listed entry and with the tree.

    Raises FailedError when the records are not those of the listing. What deviates on the target
    is added to `deviations`; the records go on, and are good only if nothing was added.
    """
    tree = walk(data)
    found = next(tree, None)
    before, seen_files, seen_bytes = b"", 0, 0
    entries = (entry for batch in listing for entry in batch)
    for whole, entry in _paired(plan, rows, entries, ask, deviations):
        record = whole.record
        name = fsencode(record.path)
        if seen_files and name <= before:
            raise FailedError("the records are not in order", where=repr(record.path))
        before = name
        seen_files += 1
        seen_bytes += record.size
        if (record.key, record.size, record.token) != (entry.key, entry.size, entry.token):
            raise FailedError("a record is not that of the listing", where=repr(record.path))
        # The usual case first: order matters only where the two differ.
        if found is None or found.path != record.path or found.kind == "dir":
            while found is not None and _order(found) < name:
                if found.kind != "dir" or not name.startswith(_order(found)):
                    deviations.add("extra", _named(found))
                found = next(tree, None)
        if found is None or found.path != record.path or found.kind == "dir":
            deviations.add("missing", repr(record.path), whole.shards)
        else:
            why = _touched(found, record)
            if why:
                deviations.add("touched", f"{record.path!r}: {why}", whole.shards)
            found = next(tree, None)
        yield whole
    while found is not None:
        deviations.add("extra", _named(found))
        found = next(tree, None)
    if (seen_files, seen_bytes) != (plan.files, plan.bytes):
        raise FailedError(
            "the records are not those of the plan",
            why=f"{seen_files} files of {seen_bytes} bytes; planned: {plan.files} of {plan.bytes}",
        )


def _paired(
    plan: PlanInfo,
    rows: Iterator[tuple[int, SeenRow]],
    entries: Iterator[Entry],
    ask: Callable[[Entry], Sequence[Claim]],
    deviations: Deviations,
) -> Iterator[tuple[Whole, Entry]]:
    parts: list[tuple[int, SeenRow]] = []
    for shard, row in rows:
        if parts and (row.part < 0 or row.record.path != parts[0][1].record.path):
            raise FailedError("a giant's parts are not complete", where=repr(parts[0][1].record.path))
        if row.part < 0:
            yield Whole(row.record, (shard,)), _next(entries, row.record)
            continue
        if row.part != len(parts) or row.offset != sum(p.length for _, p in parts):
            raise FailedError("a giant's parts are not in order", where=repr(row.record.path))
        parts.append((shard, row))
        if row.offset + row.length == row.record.size:
            entry = _next(entries, row.record)
            shards = tuple(sorted({shard for shard, _ in parts}))
            yield Whole(_giant(plan, entry, parts, ask, deviations, shards), shards), entry
            parts = []
    if parts:
        raise FailedError("a giant's parts are not complete", where=repr(parts[0][1].record.path))
    left = next(entries, None)
    if left is not None:
        raise FailedError("a listed object has no record", where=repr(left.path))


def _next(entries: Iterator[Entry], record: Record) -> Entry:
    entry = next(entries, None)
    if entry is None or entry.path != record.path:
        missing = repr(entry.path) if entry else "nothing"
        raise FailedError("listing and records differ", where=repr(record.path), why=f"listed is {missing}")
    return entry


def _giant(
    plan: PlanInfo,
    entry: Entry,
    parts: Sequence[tuple[int, SeenRow]],
    ask: Callable[[Entry], Sequence[Claim]],
    deviations: Deviations,
    shards: tuple[int, ...],
) -> Record:
    """One record for a giant: its weakest storage grade, the last look at its times, its parts'
    digests as a tree, its parts' sums joined and compared with the object's own."""
    rows = [row for _, row in parts]
    records = [row.record for row in rows]
    digests = b"".join(bytes.fromhex(r.digest.partition(":")[2]) for r in records)
    whole = _whole_digests(
        entry, records[-1].digests, tree_digest(plan.part_bytes, digests), deviations, shards
    )
    grade, proof = "size", ""
    known = _known(rows, whole)
    try:
        if known:
            grade, proof = judge_giant(entry.key, known, (*ask(entry), *listed(entry)))
    except IntegrityError as error:
        deviations.add("contradicted", str(error), shards)
        deviations.wrong[entry.path] = shards
    weakest = min(records, key=lambda r: STORAGE_GRADES.index(r.storage_grade))
    # Verify starts when copy has ended: all parts saw the same times, or the file was touched.
    times = {(r.mtime_ns, r.ctime_ns) for r in records}
    if len(times) > 1:
        deviations.add("touched", f"{entry.path!r}: its parts were verified at different states", shards)
    return records[0]._replace(
        digest=tree_digest(plan.part_bytes, digests),
        parts=digests,
        digests=whole,
        source_grade=grade,
        source_proof=proof,
        storage_grade=weakest.storage_grade,
        method=weakest.method,
        written_host=" ".join(sorted({r.written_host for r in records})),
        verified_host=" ".join(sorted({r.verified_host for r in records})),
        attempt=records[-1].attempt,
    )


def _known(rows: Sequence[SeenRow], whole: str) -> list[Claim]:
    """What is known of all of a giant's bytes, to be compared with what its source states: its parts'
    sums from the copy, else the digests of one reading from front to end."""
    proofs = [(row.record.source_proof, row.offset, row.length) for row in rows]
    joined = combine((proof, length) for proof, _, length in proofs) or compose(proofs)
    if joined is not None:
        return [joined]
    return [Claim(name, "full", value) for name, _, value in (one.partition(":") for one in whole.split())]


def _whole_digests(
    entry: Entry, told: str, tree: str, deviations: Deviations, shards: tuple[int, ...]
) -> str:
    """What one reading from front to end gave for all of a giant, unless its parts, each read by
    itself, say otherwise."""
    digests = [one for one in told.split() if not one.startswith("xxh3_128/")]
    if digests and tree not in told.split():
        deviations.add("touched", f"{entry.path!r}: read as a whole it is not what its parts are", shards)
    return " ".join(digests)


def _order(found: Found) -> bytes:
    name = fsencode(found.path)
    return name + b"/" if found.kind == "dir" else name


def _named(found: Found) -> str:
    return f"{found.path!r} ({found.kind})"


def _touched(found: Found, record: Record) -> str:
    if found.kind != "file":
        return f"it is a {found.kind} now"
    if found.size != record.size:
        return f"it has {found.size} bytes, not {record.size}"
    if (found.mtime_ns, found.ctime_ns) != (record.mtime_ns, record.ctime_ns):
        return "it was changed or touched after verify"
    return ""
