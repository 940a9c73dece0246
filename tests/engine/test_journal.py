from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.journals import link_line, row_line
from tests.target.conftest import need

from penstock.core.errors import FailedError, NewerFormatError, PenstockError
from penstock.core.model import IN_PARTS, PartLine, Pin
from penstock.core.row_codec import line, part_line
from penstock.engine import journal
from penstock.engine.tasks import Unfinished

if TYPE_CHECKING:
    from pathlib import Path

SHARD = "sha256:" + "a" * 64


def opened(folder: Path, attempt: str = "a1", shard: str = SHARD, host: str = "h1") -> journal.Journal:
    return journal.Journal(folder, shard_digest=shard, run="r", attempt=attempt, host=host)


def written(folder: Path, rows: range, attempt: str = "a1", digest: str = "0" * 32) -> Path:
    book = opened(folder, attempt)
    book.append("".join(row_line(row, digest, "size", "") for row in rows).encode())
    book.sync()
    book.close()
    return book.path


def test_what_was_written_is_replayed(tmp_path: Path) -> None:
    book = opened(tmp_path)
    book.append(row_line(7, "f" * 32, "full", "crc32c:full:00000001").encode())
    book.append(row_line(2, "xxh3_128/1048576:" + "e" * 32, "size", "").encode())
    book.close()
    copied = journal.replay(tmp_path, SHARD)
    assert sorted(copied) == [2, 7]
    assert copied[7].digest == "xxh3_128:" + "f" * 32
    assert copied[7].source_proof == "crc32c:full:00000001"
    assert copied[7].written_host == "h1"
    assert copied[2].digest == "xxh3_128/1048576:" + "e" * 32


def test_a_row_line_is_what_any_json_reader_reads() -> None:
    head, _, body = row_line(3, "a" * 32, "full", "md5:full:00").partition(" ")
    assert json.loads(body) == [3, "a" * 32, "full", "md5:full:00"]
    assert int(head, 16) == crc32(body.rstrip("\n").encode())


def test_a_row_is_recorded_once_its_bytes_are_durable_and_counts_once_the_record_is(tmp_path: Path) -> None:
    """In this order, which a power cut at a random moment rarely shows."""
    strace = need("strace")
    script = (
        "import sys; from pathlib import Path\n"
        "from penstock.engine.journal import Journal\n"
        "from penstock.engine.journal_flusher import Keeper\n"
        "from penstock.target.staging_folder import Barrier\n"
        "folder = Path(sys.argv[1])\n"
        "journal = Journal(folder, shard_digest='s', run='r', attempt='a', host='h')\n"
        "with Barrier(folder) as barrier, Keeper(journal, barrier) as keeper:\n"
        "    keeper.add(b'a row\\n')\n"
        "    keeper.close()\n"
        "print(flush=True)\n"
    )
    trace = tmp_path / "trace"
    words = ["trace=syncfs,write,fdatasync", "-f", "-qq", "-s", "9", "-o", str(trace), sys.executable, "-c"]
    subprocess.run([strace, "-e", *words, script, str(tmp_path / "shard")], check=True, capture_output=True)
    after = trace.read_text().rpartition("syncfs(")
    calls = re.findall(r'(syncfs|fdatasync|write)\(\d+(?:, "(.*?)")?', after[1] + after[2])
    made = [" ".join(call).strip() for call in calls]
    assert made[:4] == ["syncfs", r"write a row\n", "fdatasync", r"write \n"]


def test_no_folder_is_no_journal(tmp_path: Path) -> None:
    assert journal.replay(tmp_path / "none", SHARD) == {}


@given(st.integers(min_value=0))
@settings(deadline=None, max_examples=60)
def test_any_torn_end_costs_only_the_torn_line(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("torn")
    path = written(folder, range(20))
    whole = path.read_bytes()
    cut %= len(whole) + 1
    path.write_bytes(whole[:cut])
    expected = max(0, whole[:cut].count(b"\n") - 1)
    assert sorted(journal.replay(folder, SHARD)) == list(range(expected))


def test_a_tail_of_zeros_is_a_torn_end(tmp_path: Path) -> None:
    path = written(tmp_path, range(5))
    with path.open("ab") as stream:
        stream.write(bytes(4096))
    assert sorted(journal.replay(tmp_path, SHARD)) == list(range(5))


def damaged_behind_its_header(folder: Path) -> None:
    path = written(folder, range(5))
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"\n") + 12] ^= 1
    path.write_bytes(raw)


def test_an_attempts_journal_ends_at_its_first_bad_line(tmp_path: Path) -> None:
    """A hole amid the lines that were not synced: what an NFS, BeeGFS or XFS client leaves that dies."""
    path = written(tmp_path, range(3000))
    with path.open("r+b") as stream:
        stream.seek(path.stat().st_size // 4096 // 2 * 4096)
        stream.write(bytes(4096))
    whole = path.read_bytes().partition(b"\0")[0].count(b"\n") - 1
    told: list[str] = []
    assert sorted(journal.replay(tmp_path, SHARD, told)) == list(range(whole))
    assert 1000 < whole < 2000
    assert [str(path) in text for text in told] == [True]
    # What is copied again after it counts, and a torn end is nothing to tell of.
    torn = written(tmp_path, range(whole, 3000), "a2")
    torn.write_bytes(torn.read_bytes()[:-5])
    told.clear()
    assert sorted(journal.replay(tmp_path, SHARD, told)) == list(range(2999))
    assert len(told) == 1


@pytest.mark.parametrize("cut", [-1, -20, 30])
def test_what_takes_records_back_loses_no_line(tmp_path: Path, cut: int) -> None:
    """It is written whole, by a rename: a bad line there would let a bad row count."""
    written(tmp_path, range(5))
    copied = journal.replay(tmp_path, SHARD)
    journal.invalidate(tmp_path, SHARD, list(copied.values())[1:4], run="r", host="h")
    [path] = tmp_path.glob("bad-*")
    raw = path.read_bytes()
    head = raw.index(b"\n") + 1
    path.write_bytes(raw[:cut] if cut < 0 else raw[:head] + bytes(cut) + raw[head + cut :])
    with pytest.raises(FailedError, match="takes records back is damaged"):
        journal.replay(tmp_path, SHARD)


def test_whose_a_journal_is_comes_before_what_is_wrong_with_it(tmp_path: Path) -> None:
    damaged_behind_its_header(tmp_path)
    with pytest.raises(FailedError, match="another shard"):
        journal.replay(tmp_path, "sha256:other")


@pytest.mark.parametrize("rows", [1022, 1023, 1024, 2048, 3000])
def test_long_journals_are_read_whole(tmp_path: Path, rows: int) -> None:
    written(tmp_path, range(rows))
    assert sorted(journal.replay(tmp_path, SHARD)) == list(range(rows))


def test_another_shards_journal_is_refused(tmp_path: Path) -> None:
    written(tmp_path, range(2))
    with pytest.raises(FailedError, match="another shard"):
        journal.replay(tmp_path, "sha256:" + "b" * 64)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.journal").write_text(line([1, "a" * 32, "size", ""]))
    with pytest.raises(FailedError, match="not a journal"):
        journal.replay(tmp_path, SHARD)


def test_attempts_are_merged_and_names_may_come_again(tmp_path: Path) -> None:
    written(tmp_path, range(3), "a1")
    written(tmp_path, range(2, 6), "a1")
    written(tmp_path, range(6, 8), "a2")
    assert sorted(journal.replay(tmp_path, SHARD)) == list(range(8))
    assert len(os.listdir(tmp_path)) == 3


def test_two_attempts_that_disagree_prove_nothing(tmp_path: Path) -> None:
    written(tmp_path, range(3), "a1", "0" * 32)
    written(tmp_path, range(2, 4), "a2", "1" * 32)
    assert sorted(journal.replay(tmp_path, SHARD)) == [0, 1, 3]


def test_after_a_disagreement_the_next_copy_counts(tmp_path: Path) -> None:
    written(tmp_path, range(3), "a1")
    journal.settle(tmp_path, SHARD, run="r", host="h1")
    written(tmp_path, range(2), "a2", digest="1" * 32)
    written(tmp_path, range(1), "a3", digest="1" * 32)
    assert sorted(journal.replay(tmp_path, SHARD)) == [2]
    journal.settle(tmp_path, SHARD, run="r", host="h1")
    assert sorted(journal.replay(tmp_path, SHARD)) == [2]
    written(tmp_path, range(2), "a4", digest="1" * 32)
    assert sorted(journal.replay(tmp_path, SHARD)) == [0, 1, 2]


def test_what_was_taken_back_counts_again_when_it_is_copied_again(tmp_path: Path) -> None:
    written(tmp_path, range(3), "a1")
    copied = journal.replay(tmp_path, SHARD)
    journal.invalidate(tmp_path, SHARD, [copied[1]], run="r", host="h")
    assert sorted(journal.replay(tmp_path, SHARD)) == [0, 2]
    written(tmp_path, range(1, 2), "a1", "2" * 32)
    again = journal.replay(tmp_path, SHARD)
    assert sorted(again) == [0, 1, 2]
    assert again[1].digest == "xxh3_128:" + "2" * 32
    journal.invalidate(tmp_path, SHARD, [], run="r", host="h")
    assert len(os.listdir(tmp_path)) == 3


def test_clear_forgets(tmp_path: Path) -> None:
    written(tmp_path, range(3))
    journal.clear(tmp_path)
    assert journal.replay(tmp_path, SHARD) == {}


def test_what_the_system_refuses_is_told_for_people(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PenstockError, match="cannot begin a journal"):
        opened(tmp_path / "file" / "x")


def test_a_newer_journal_is_refused_by_name(tmp_path: Path) -> None:
    header = {"journal": journal.FORMAT + 1, "shard": SHARD, "run": "r", "attempt": "a", "host": "h"}
    (tmp_path / "x.journal").write_text(line(header))
    with pytest.raises(NewerFormatError, match="a journal is of a newer format") as told:
        journal.replay(tmp_path, SHARD)
    assert "newer penstock" in told.value.hint


# Rows of another version than the planned one --------------------------------------------------

NEW = Pin(7, "etag2", 9, "v2", "sha256:full:" + "0" * 64)


def amended(folder: Path, attempt: str, row: int, pin: Pin, digest: str) -> None:
    book = opened(folder, attempt)
    book.append((journal.amend_line(row, pin) + row_line(row, digest, "size", "")).encode())
    book.close()


def test_a_record_is_of_the_version_that_its_attempt_named_last(tmp_path: Path) -> None:
    book = opened(tmp_path)
    lines = [
        row_line(0, "0" * 32, "size", ""),
        journal.amend_line(1, NEW._replace(token="etag1")),
        journal.amend_line(1, NEW),
        row_line(1, "1" * 32, "size", ""),
        journal.amend_line(2, NEW),
        journal.gone_line(3),
    ]
    book.append("".join(lines).encode())
    book.close()
    copied = journal.replay(tmp_path, SHARD)
    assert {row: (one.digest.removeprefix("xxh3_128:"), one.pin) for row, one in copied.items()} == {
        0: ("0" * 32, None),
        1: ("1" * 32, NEW),
        3: (journal.GONE, None),
    }


@pytest.mark.parametrize("other", ["listed", "amended", "gone"])
def test_attempts_that_copied_different_versions_prove_nothing(tmp_path: Path, other: str) -> None:
    """One of them lies there, whichever was renamed last."""
    amended(tmp_path, "a1", 0, NEW, "1" * 32)
    if other == "listed":
        written(tmp_path, range(1), "a2", digest="1" * 32)
    elif other == "amended":
        amended(tmp_path, "a2", 0, NEW._replace(token="etag3"), "1" * 32)
    else:
        book = opened(tmp_path, "a2")
        book.append(journal.gone_line(0).encode())
        book.close()
    assert journal.replay(tmp_path, SHARD) == {}
    journal.settle(tmp_path, SHARD, run="r", host="h1")
    amended(tmp_path, "a3", 0, NEW, "1" * 32)
    assert journal.replay(tmp_path, SHARD)[0].pin == NEW


def test_attempts_that_copied_the_same_new_version_agree(tmp_path: Path) -> None:
    amended(tmp_path, "a1", 0, NEW, "1" * 32)
    amended(tmp_path, "a2", 0, NEW, "1" * 32)
    assert journal.replay(tmp_path, SHARD)[0].pin == NEW


def test_a_giant_that_is_copied_whole_forgets_its_parts(tmp_path: Path) -> None:
    written(tmp_path, range(4), "a1")
    journal.join(tmp_path, SHARD, [1], [2, 3], run="r", host="h")
    assert journal.joined(tmp_path, SHARD) == ({1}, {2, 3})
    assert sorted(journal.replay(tmp_path, SHARD)) == [0]
    # A late attempt that knows nothing of it goes on with the parts.
    written(tmp_path, range(1, 3), "a2", digest="2" * 32)
    assert sorted(journal.replay(tmp_path, SHARD)) == [0]
    amended(tmp_path, "a3", 1, NEW, "3" * 32)
    assert journal.replay(tmp_path, SHARD)[1].pin == NEW
    assert journal.attempts(tmp_path) == 3


def test_journals_of_the_first_format_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, range(3))
    head = {"journal": 1, "shard": SHARD, "run": "r", "attempt": "a1", "host": "h1"}
    path.write_bytes(line(head).encode() + path.read_bytes().partition(b"\n")[2])
    assert sorted(journal.replay(tmp_path, SHARD)) == [0, 1, 2]


# Parts of rows ---------------------------------------------------------------------------------


def part(row: int, number: int, temporary: str = ".p.0000000000000001") -> str:
    return part_line(PartLine(row, temporary, 1 << 20, number, "c" * 32, "", "", "etag"))


def test_parts_count_until_their_row_is_recorded(tmp_path: Path) -> None:
    book = opened(tmp_path)
    book.append((part(1, -1) + part(1, 0) + part(4, 2) + part(1, 1)).encode())
    book.append(row_line(4, "f" * 32, "size", "").encode())
    book.close()
    unfinished = Unfinished()
    assert sorted(journal.replay(tmp_path, SHARD, unfinished=unfinished)) == [4]
    assert [one.number for one in unfinished.parts.pop(1)] == [-1, 0, 1]
    assert not unfinished.parts
    assert not unfinished.taken_back


@pytest.mark.parametrize("names", [("a1", "a2"), ("a2", "a1")])
def test_who_wrote_a_file_is_known_only_where_one_host_wrote_all_its_parts(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    """Else the node that wrote most of it, and reads it back, would count as another one."""
    book = opened(tmp_path, names[0], host="h1")
    book.append((part(1, -1) + part(1, 0) + part(2, 0) + part(3, -1) + part(5, 0)).encode())
    book.close()
    book = opened(tmp_path, names[1], host="h2")
    whole = IN_PARTS + "1048576:" + "e" * 32
    lines = [
        part(1, 1),
        *(line([row, whole, "size", ""]) for row in (1, 2, 3)),
        part(4, 0),
        line([4, whole, "size", ""]),
        # A file copied in order has a digest over all its bytes, whoever wrote the first of them.
        part(5, 0),
        row_line(5, "f" * 32, "size", ""),
        part(6, 0),
        row_line(6, "f" * 32, "size", ""),
    ]
    lines[3:3] = [part(3, 0)]
    book.append("".join(lines).encode())
    book.close()
    hosts = {row: one.written_host for row, one in journal.replay(tmp_path, SHARD).items()}
    assert hosts == {1: "", 2: "", 3: "h2", 4: "h2", 5: "", 6: "h2"}


@pytest.mark.parametrize(
    ("numbers", "answer"),
    [([], False), ([-1], False), ([-1, 0], True), ([-1, 0, 1, -2], False), ([-1, 0, -2, None], True)],
)
def test_a_part_that_was_kept_is_progress(tmp_path: Path, numbers: list[int | None], *, answer: bool) -> None:
    """A temporary file that was only made, or was given up, is done again by the next attempt."""
    other = ".p.0000000000000002"
    book = opened(tmp_path)
    lines = [part(0, 0, other) if number is None else part(0, number) for number in numbers]
    book.append("".join(lines).encode())
    book.close()
    assert journal.records_more(tmp_path, set()) is answer
    torn = part(7, 3)[:-40] if answer else part(7, 3)[:25]
    with book.path.open("ab") as stream:
        stream.write(torn.encode())
    assert journal.records_more(tmp_path, set()) is answer


def test_who_wrote_a_file_is_not_known_where_two_hosts_recorded_it(tmp_path: Path) -> None:
    for host in ("h1", "h2"):
        book = opened(tmp_path, f"a-{host}", host=host)
        book.append(row_line(0, "f" * 32, "size", "").encode())
        book.close()
    assert journal.replay(tmp_path, SHARD)[0].written_host == ""


def test_a_row_that_was_taken_back_is_named_as_such(tmp_path: Path) -> None:
    book = opened(tmp_path)
    book.append((part(0, 0) + row_line(0, "f" * 32, "size", "")).encode())
    book.close()
    journal.invalidate(tmp_path, SHARD, [journal.replay(tmp_path, SHARD)[0]], run="r", host="h")
    unfinished = Unfinished()
    assert not journal.replay(tmp_path, SHARD, unfinished=unfinished)
    assert unfinished.taken_back == {0}
    assert len(unfinished.parts[0]) == 1


def test_a_linked_row_says_so_and_who_wrote_its_file(tmp_path: Path) -> None:
    book = opened(tmp_path)
    book.append(link_line(3, "xxh3_128:" + "a" * 32, "full", "md5:full:00", host="node7").encode())
    book.append(link_line(4, "xxh3_128:" + "b" * 32, "size", "", staging="run1").encode())
    book.append(row_line(5, "c" * 32, "size", "").encode())
    book.close()
    copied = journal.replay(tmp_path, SHARD)
    assert {row: (one.linked, one.written_host, one.staging) for row, one in copied.items()} == {
        3: (True, "node7", ""),
        4: (True, "", "run1"),
        5: (False, "h1", ""),
    }
    assert copied[3].digest == "xxh3_128:" + "a" * 32
    assert (copied[3].source_grade, copied[3].source_proof) == ("full", "md5:full:00")
