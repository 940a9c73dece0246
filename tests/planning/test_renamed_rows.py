"""Which new rows are known by their checksums as files of the current release."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import pytest
from tests.planning.test_unchanged_rows import RULES, entry, manifest, pages, record

from penstock.run import previous_release, target_findings
from penstock.run.previous_release import RenamedRows, with_reuse
from penstock.run.target_findings import HeldFiles
from penstock.tables.run_tables import as_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penstock.core.model import Entry, Record
    from penstock.run.previous_release import ReuseRules

MD5, OTHER_MD5 = "0123456789abcdef" * 2, "f" * 32
SHA = f"sha256:full:{hashlib.sha256(b'x').hexdigest()}"
XXH = "ab" * 16


def unread(path: bytes, size: int) -> str:
    return ""


def compared(
    mine: Sequence[Entry],
    theirs: Sequence[Record],
    rules: ReuseRules = RULES,
    md5_of: Callable[[bytes, int], str] = unread,
) -> list[Entry]:
    """The rows of a second pass."""
    renamed = RenamedRows(rules)
    list(renamed.gather(with_reuse(pages(mine), manifest(theirs), rules, renamed.free)))
    renamed.match(md5_of)
    again = renamed.mark(with_reuse(pages(mine), manifest(theirs), rules))
    return [row for batch in again for row in as_rows(batch)]


def proven(path: str, checksum: str, grade: str = "full", **changes: object) -> Record:
    return record(path, token="old", source_proof=checksum, source_grade=grade, **changes)


@pytest.mark.parametrize(
    ("mine", "theirs", "known"),
    [
        (entry("new", checksum=SHA), proven("old", SHA), True),
        (entry("new", checksum=f"xxh3_128:full:{XXH}"), record("old", digest=f"xxh3_128:{XXH}"), True),
        (entry("new", token=MD5), proven("old", f"md5:full:{MD5}", "etag-md5"), True),
        (entry("new", token=MD5), proven("old", f"md5:full:{MD5}"), True),
        # Stated again of another version of the same key.
        (entry("a", token=MD5, version="2"), proven("a", f"md5:full:{MD5}", "etag-md5", version="1"), True),
        (entry("new", checksum=SHA, size=11), proven("old", SHA), False),
        (entry("new", token=MD5), proven("old", f"md5:full:{OTHER_MD5}", "etag-md5"), False),
        # An etag that nothing proved to be an MD5.
        (entry("new", token=MD5), record("old", token=MD5), False),
        (entry("new", checksum="crc32c:full:0a0b0c0d"), proven("old", "crc32c:full:0a0b0c0d"), False),
        (
            entry("new", checksum=f"sha256:composite:{XXH * 2}-2/8"),
            proven("old", f"sha256:composite:{XXH * 2}-2/8", "composite"),
            False,
        ),
        (entry("new", token=f"{MD5}-2"), proven("old", f"md5:full:{MD5}"), False),
        # Size and time alone.
        (entry("new"), record("old"), False),
        (entry("new", size=1000, checksum=SHA), proven("old", SHA, size=1000), False),
        (entry("new", size=0, checksum=SHA), proven("old", SHA, size=0), False),
    ],
)
def test_each_row_of_the_table(mine: Entry, theirs: Record, known: bool) -> None:
    (row,) = compared([mine], [theirs])
    assert (row.reuse is not None, row.held_as) == (known, theirs.path if known else "")
    if row.reuse:
        assert row.reuse[:3] == (theirs.digest, theirs.source_grade, theirs.source_proof)


def test_a_row_of_another_time_has_none_so_that_it_becomes_a_file_of_its_own() -> None:
    rows = [entry("n1", checksum=SHA), entry("n2", checksum=SHA, modified_ns=99)]
    held = [proven("o1", SHA), proven("o2", SHA)]
    first, second = compared(rows, held)
    assert [row.reuse and row.reuse.mtime_ns for row in (first, second)] == [7, None]
    assert {first.held_as, second.held_as} == {"o1", "o2"}
    same = compared(rows, held, RULES._replace(keep_mtime=False))
    assert [row.reuse and row.reuse.mtime_ns for row in same] == [7, 7]


def test_a_file_of_the_release_is_taken_once_and_none_that_is_unchanged() -> None:
    mine = [entry("a"), entry("n1", checksum=SHA), entry("n2", checksum=SHA), entry("z")]
    theirs = [record("a")._replace(source_proof=SHA, source_grade="full"), proven("o1", SHA)]
    rows = compared(mine, theirs)
    assert [row.held_as for row in rows] == ["", "o1", "", ""]
    assert [row.reuse is not None for row in rows] == [True, True, False, False]


def test_where_a_proof_is_required_the_own_digest_is_none() -> None:
    rules = RULES._replace(proven=True)
    (row,) = compared(
        [entry("new", checksum=f"xxh3_128:full:{XXH}")], [record("old", digest=f"xxh3_128:{XXH}")], rules
    )
    assert not row.reuse


def test_of_many_rows_each_is_found_in_its_batch() -> None:
    def checksum(number: int) -> str:
        return f"sha256:full:{hashlib.sha256(str(number).encode()).hexdigest()}"

    mine = [entry(f"new/{n:04d}", checksum=checksum(n)) for n in range(0, 500, 3)]
    theirs = [proven(f"old/{n:04d}", checksum(n)) for n in range(500)]
    rows = compared(mine, theirs)
    assert [(row.path, row.held_as) for row in rows] == [
        (f"new/{n:04d}", f"old/{n:04d}") for n in range(0, 500, 3)
    ]


def test_more_than_is_kept_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(previous_release, "MOST", 3)
    mine = [entry(f"n{n}", checksum=SHA) for n in range(4)]
    renamed = RenamedRows(RULES)
    list(renamed.gather(with_reuse(pages(mine), manifest([proven("o", SHA)]), RULES, renamed.free)))
    assert (renamed.match(unread), renamed.too_many, renamed.files) == (False, True, 0)


CRC = "crc64nvme:full:" + "0" * 16


def test_an_etag_that_no_read_proved_is_an_md5_where_the_file_has_it() -> None:
    """A store that states a CRC of each object: the etag was not computed when the file was fetched."""
    asked = []

    def md5_of(path: bytes, size: int) -> str:
        asked.append(path)
        return MD5 if path == b"o1" else OTHER_MD5

    held = [record(f"o{n}", token=MD5, source_proof=CRC, source_grade="full") for n in (0, 1)]
    others = [record("o2", token=OTHER_MD5, source_proof=CRC), record("o3", token="1-2-3", source_proof=CRC)]
    new = [entry("n0", token=MD5), entry("n1", token=MD5), entry("n2", token="1-2-3")]
    rows = compared(new, [*held, *others], md5_of=md5_of)
    assert [(row.path, row.held_as) for row in rows] == [("n0", ""), ("n1", "o1"), ("n2", "")]
    assert asked == [b"o0", b"o1"]
    # What a checksum proves is not read.
    asked.clear()
    (row,) = compared([entry("n", token=MD5)], [proven("o", f"md5:full:{MD5}")], md5_of=md5_of)
    assert (row.held_as, asked) == ("o", [])


def test_files_are_read_where_they_lie(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b").write_bytes(b"bytes" * 1000)
    (tmp_path / "a/link").symlink_to("b")
    (tmp_path / "stub").touch()
    os.truncate(tmp_path / "stub", 5000)
    held = HeldFiles(tmp_path, lambda: None)
    assert held.md5(b"a/b", 5000) == hashlib.md5(b"bytes" * 1000).hexdigest()
    for path, size in ((b"a/b", 4999), (b"a/link", 5000), (b"stub", 5000), (b"a", 4096), (b"none", 1)):
        assert held.md5(path, size) == "", path
    assert held.md5(b"a/b", target_findings.MOST) == ""
