from __future__ import annotations

import os
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.staging_runs import tree
from tests.support.whole_way import FILES, go, staging

from penstock.config.settings import VerifyConfig
from penstock.core import typed_json
from penstock.core.errors import FailedError
from penstock.core.model import Entry, Listed, Record, SourceChecksum
from penstock.core.run_documents import PlanInfo
from penstock.dataset import receipts, run_store
from penstock.engine.checksums import combine
from penstock.listing.evidence import beyond, required, unprovable
from penstock.run import permissions_step, publish_step, verify_step
from penstock.run.reconciliation import Deviations, close
from penstock.tables.manifest import Files, SeenRow
from penstock.tables.run_tables import ListingWriter, read_listing_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

CRC = "crc64nvme"
PART = 4


def seen(data: Path, path: str, **changes: Any) -> Record:
    stat = (data / path).lstat()
    return Record(
        path, stat.st_size, "xxh3_128:" + "0" * 32, 1, path, "t", "", 0, "size", "", "cold", "direct",
        "writer", "reader", "attempt", stat.st_mtime_ns, stat.st_ctime_ns,
    )._replace(**changes)  # fmt: skip


def entry_of(record: Record) -> Entry:
    return Entry(record.path, record.key, record.size, record.token, 1, length=record.size)


def closed(
    data: Path,
    rows: Sequence[tuple[int, SeenRow]],
    entries: Sequence[Entry],
    checksums: Sequence[SourceChecksum] = (),
) -> tuple[list[Record], Deviations]:
    size = sum(e.size for e in entries)
    plan = PlanInfo("run", "release", None, len(entries), size, 0, 0, 0, (), PART, 0)
    deviations = Deviations()
    listing = data.parent / "listing.parquet"
    with ListingWriter(listing) as writer:
        listed = [Listed(e.key, e.size, e.token, e.modified_ns, e.version, e.checksum) for e in entries]
        writer.add(listed, paths=[e.path for e in entries])
        writer.close()
    some = close(plan, read_listing_columns(listing), together(rows), data, lambda _: checksums, deviations)
    return [record for files, _ in some for record in files.records()], deviations


def together(rows: Sequence[tuple[int, SeenRow]]) -> Iterator[tuple[int, Files | list[SeenRow]]]:
    """As they are read of the shards' files."""
    for (shard, whole), run in groupby(rows, lambda one: (one[0], one[1].part < 0)):
        some = [row for _, row in run]
        yield shard, Files.of([row.record for row in some]) if whole else some


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tree(tmp_path / "data", {"a/x": b"12", "a-b": b"123", "q/r": b"4" * 10, "z": b""})


def whole(record: Record, shard: int = 0) -> tuple[int, SeenRow]:
    return shard, SeenRow(0, -1, 0, record.size, record)


PATHS = ["a-b", "a/x", "q/r", "z"]


def test_the_same_in_all_three_is_no_deviation(data: Path) -> None:
    records = [seen(data, path) for path in PATHS]
    got, deviations = closed(data, [whole(r) for r in records], [entry_of(r) for r in records])
    assert got == records
    assert not deviations


def test_every_kind_of_deviation_is_told_with_its_shard(data: Path) -> None:
    records = [seen(data, path) for path in PATHS]
    rows = [whole(r, shard) for shard, r in enumerate(records)]
    (data / "a" / "x").unlink()
    (data / "q" / "r").write_bytes(b"5" * 10)
    (data / "z").unlink()
    (data / "z").mkdir()
    (data / "0").symlink_to("z")
    (data / "zz").mkdir()
    _, deviations = closed(data, rows, [entry_of(r) for r in records])
    assert deviations.counts == {"extra": 3, "missing": 2, "touched": 1}
    assert deviations.shards == {1, 2, 3}
    text = "\n".join(deviations.lines())
    for told in ('extra: "0" (link)', 'extra: "zz" (dir)', 'missing: "a/x"', 'touched: "q/r"'):
        assert told in text


def test_long_lists_are_counted(data: Path) -> None:
    for number in range(50):
        (data / f"m{number}").touch()
    records = [seen(data, path) for path in PATHS]
    _, deviations = closed(data, [whole(r) for r in records], [entry_of(r) for r in records])
    assert deviations.counts == {"extra": 50}
    assert deviations.lines()[-1] == "extra: and 30 more"


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda rows, entries: rows.pop(), "no record"),
        (lambda rows, entries: entries.pop(), "differ"),
        (
            lambda rows, entries: entries.__setitem__(0, entries[0]._replace(token="other")),
            "its entry in the listing",
        ),
        (lambda rows, entries: (rows.reverse(), entries.reverse()), "not in order"),
    ],
)
def test_records_that_are_not_those_of_the_listing_end_it(data: Path, spoil: Any, why: str) -> None:
    records = [seen(data, path) for path in PATHS]
    rows, entries = [whole(r) for r in records], [entry_of(r) for r in records]
    spoil(rows, entries)
    with pytest.raises(FailedError, match=why):
        closed(data, rows, entries)


def giant_rows(data: Path, proofs: Sequence[str]) -> list[tuple[int, SeenRow]]:
    return [
        (
            part // 2,
            SeenRow(
                part, part, part * PART, min(PART, 10 - part * PART),
                seen(
                    data, "q/r", digest=f"xxh3_128:{part:032x}", source_proof=proofs[part],
                    storage_grade=("cold-other-node", "cold", "cold-other-node")[part],
                    written_host=f"w{part}",
                ),
            ),
        )
        for part in range(3)
    ]  # fmt: skip


def others(data: Path) -> tuple[list[tuple[int, SeenRow]], list[tuple[int, SeenRow]]]:
    return [whole(seen(data, p)) for p in ("a-b", "a/x")], [whole(seen(data, "z"), 1)]


PROOFS = [f"{CRC}:part:{value:016x}" for value in (1, 2, 3)]


def test_a_giants_parts_become_one_record_proven_by_their_combined_crc(data: Path) -> None:
    before, after = others(data)
    entries = [entry_of(seen(data, p)) for p in PATHS]
    stated = combine(zip(PROOFS, (4, 4, 2), strict=True))
    assert stated is not None
    rows = [*before, *giant_rows(data, PROOFS), *after]
    records, deviations = closed(data, rows, entries, [stated])
    assert not deviations
    giant = records[2]
    assert giant.parts == b"".join(part.to_bytes(16) for part in range(3))
    assert giant.digest.startswith(f"xxh3_128/{PART}:")
    assert (giant.source_grade, giant.source_proof) == ("full", str(stated))
    assert (giant.storage_grade, giant.written_host) == ("cold", "w0 w1 w2")
    unstated, _ = closed(data, rows, entries)
    assert unstated[2].source_grade == "size"
    unproven, _ = closed(data, [*before, *giant_rows(data, ["", *PROOFS[1:]]), *after], entries, [stated])
    assert unproven[2].source_grade == "size"


@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("change", [{"key": "other"}, {"token": "other"}, {"size": 10**6}])
def test_each_part_is_one_of_the_listed_object(data: Path, part: int, change: dict[str, Any]) -> None:
    before, after = others(data)
    rows = giant_rows(data, PROOFS)
    shard, row = rows[part]
    rows[part] = shard, row._replace(record=row.record._replace(**change))
    with pytest.raises(FailedError, match=r"differs from its entry in the listing|parts are not"):
        closed(data, [*before, *rows, *after], [entry_of(seen(data, p)) for p in PATHS])


def test_parts_that_contradict_the_source_are_named_with_their_shards(data: Path) -> None:
    before, after = others(data)
    entries = [entry_of(seen(data, p)) for p in PATHS]
    rows = [*before, *giant_rows(data, PROOFS), *after]
    _, deviations = closed(data, rows, entries, [SourceChecksum(CRC, "full", "0" * 16)])
    assert deviations.counts == {"contradicted": 1}
    assert deviations.wrong == {"q/r": (0, 1)}


def test_parts_seen_at_different_times_are_verified_again(data: Path) -> None:
    before, after = others(data)
    rows = giant_rows(data, PROOFS)
    shard, first = rows[0]
    rows[0] = shard, first._replace(record=first.record._replace(ctime_ns=1))
    _, deviations = closed(data, [*before, *rows, *after], [entry_of(seen(data, p)) for p in PATHS])
    assert set(deviations.counts) == {"touched"}
    assert deviations.shards == {0, 1}


@pytest.mark.parametrize("drop", [0, 1, 2])
def test_a_giant_with_a_part_missing_ends_it(data: Path, drop: int) -> None:
    before, after = others(data)
    rows = giant_rows(data, PROOFS)
    del rows[drop]
    with pytest.raises(FailedError, match="parts are not"):
        closed(data, [*before, *rows, *after], [entry_of(seen(data, p)) for p in PATHS])


@pytest.mark.parametrize(
    ("config", "direct", "weakest"),
    [
        (VerifyConfig(), True, "cold"),
        (VerifyConfig(), False, "reread"),
        (VerifyConfig(minimum_grade="written"), True, "written"),
        (VerifyConfig(minimum_grade="cold-other-node"), False, "cold-other-node"),
    ],
)
def test_what_is_required_of_the_evidence(config: VerifyConfig, direct: bool, weakest: str) -> None:
    assert required(config, direct=direct).minimum == weakest


@pytest.mark.parametrize(
    ("grade", "kind", "alone", "why"),
    [
        ("auto", "tmpfs", True, ""),
        ("written", "tmpfs", True, ""),
        ("reread", "tmpfs", True, ""),
        ("cold", "tmpfs", True, "caches"),
        ("cold", "fuse", False, "caches"),
        ("cold", "ext4", True, ""),
        ("cold-other-node", "ext4", True, "same machine"),
        ("cold-other-node", "beegfs", False, ""),
    ],
)
def test_grades_that_can_never_be_reached(grade: str, kind: str, alone: bool, why: str) -> None:
    told = beyond(VerifyConfig(minimum_grade=grade), kind=kind, alone=alone)
    assert why in told
    assert bool(told) == bool(why)


@pytest.mark.parametrize(
    ("checksum", "size", "stated", "giant", "later", "why"),
    [
        ("", 5, True, False, (), ""),
        ("", 5, False, False, (), "nothing states"),
        ("", 0, False, False, (), ""),
        ("sha256:full:00", 5, False, False, (), ""),
        ("crc32c:full:00", 5, False, True, (), ""),
        ("sha256:full:00", 5, False, True, (), "cannot prove sha256"),
        ("sha256:full:00", 5, False, True, ("xxh3_128", "sha256"), ""),
        ("sha256:full:00", 5, True, True, (), ""),
    ],
)
def test_files_that_can_never_be_proven(
    checksum: str, size: int, stated: bool, giant: bool, later: tuple[str, ...], why: str
) -> None:
    entry = Entry("p", "k", size, "t", 0, checksum=checksum, length=size)
    told = unprovable(entry, stated=stated, giant=giant, later=later)
    assert why in told
    assert bool(told) == bool(why)


def test_evidence_counts_by_grade_and_tells_the_weakest(data: Path) -> None:
    evidence = required(VerifyConfig(source_checksum="require"), direct=True)
    strong = [seen(data, "a-b", source_grade="full"), seen(data, "a/x", source_grade="etag-md5")]
    assert evidence.add(Files.of(strong)) == []
    empty = seen(data, "z", storage_grade="written")  # it proves itself
    weak = [seen(data, "a/x"), seen(data, "q/r", storage_grade="reread", source_grade="full"), empty]
    assert evidence.add(Files.of(weak)) == [
        ("a/x", "no checksum of its source proved it", False),
        ("q/r", "reread (direct), required is cold", False),
    ]
    kept = [seen(data, "a/x", storage_grade="reread", method="cached", source_grade="full")]
    kept.append(seen(data, "q/r", storage_grade="reread", method="cached"))
    assert [one.in_memory for one in evidence.add(Files.of(kept))] == [True, False]
    by_name = required(VerifyConfig(minimum_grade="cold"), direct=True)
    assert [one.in_memory for one in by_name.add(Files.of(kept))] == [False, False]


def test_the_seal_counts_evidence_by_grade(data: Path) -> None:
    evidence = required(VerifyConfig(source_checksum="require"), direct=True)
    evidence.add(
        Files.of(
            [
                seen(data, "a-b", source_grade="full"),
                seen(data, "a/x", source_grade="etag-md5"),
                seen(data, "a/x"),
                seen(data, "q/r", storage_grade="reread", source_grade="full"),
                seen(data, "z", storage_grade="written"),
            ]
        )
    )
    told = typed_json.plain(evidence.sealed())
    assert told["source"]["full"] == {"files": 2, "bytes": 13}
    assert told["weakest_storage"] == {"grade": "written", "files": 1, "bytes": 0}
    assert told["weakest_source"] == {"grade": "size", "files": 2, "bytes": 2}
    assert told["required_source"] == "any checksum"


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Any]:
    with staging(tmp_path, tree(tmp_path / "source", FILES)) as made:
        yield made


def test_a_giant_that_is_taken_back_is_copied_again_and_nothing_else(context: Any) -> None:
    go(context, upto="verify")
    run = run_store.open_run(context.layout("data"))
    folder, giants = run.folder, run.data
    kept = {p: (giants / p).stat().st_ino for p in FILES}
    held = [index for index in run.indices if any(r.part >= 0 for r in _rows(folder, index))]
    publish_step.take_back(run, "giant", held)
    assert permissions_step.current(run) is None
    verify_step.run(context, "data")
    again = [one for index in held if (one := receipts.element(folder, "copy", index))]
    assert sum(r.done_files for r in again) == 5
    assert sum(r.done_bytes for r in again) == len(FILES["giant"])
    assert {p: (giants / p).stat().st_ino for p in FILES} == kept
    assert go(context, after="verify")["published"]


def _rows(folder: Any, index: int) -> list[Entry]:
    from penstock.tables.run_tables import read_shard

    return [entry for batch in read_shard(folder.shard(index)) for entry in batch]


def test_the_order_is_that_of_bytes() -> None:
    assert sorted(PATHS, key=os.fsencode) == PATHS
