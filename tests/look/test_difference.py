"""Two listings compared: against a comparison by dictionaries, on random input; and in bounded memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.look.manifests import large, record, release
from tests.support.commands import ROOT

from penstock.core.catalogue_rows import DiffRow
from penstock.core.errors import FailedError
from penstock.core.layout import DatasetLayout
from penstock.core.seal import SealedSource
from penstock.look import difference, release_comparison
from penstock.look.difference import LISTED, ManifestDifference
from penstock.look.release_comparison import ByDigest, ByToken
from penstock.tables import row_streams

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

Files = dict[bytes, tuple[int, str]]
"""Path to size and digest."""

PATHS = st.binary(min_size=1, max_size=4).filter(lambda one: b"\0" not in one)
DIGESTS = [f"xxh3_128:{number * 37 % 256:032x}" for number in range(6)]
SIZES = {digest: number // 2 for number, digest in enumerate(DIGESTS)}
CONTENT = st.sampled_from(DIGESTS).map(lambda digest: (SIZES[digest], digest))
FILES = st.dictionaries(PATHS, CONTENT, max_size=40)


def batches(files: Files, rows: int) -> Iterator[pa.RecordBatch]:
    paths = sorted(files)
    for start in range(0, len(paths), rows):
        some = paths[start : start + rows]
        yield pa.record_batch(
            [
                pa.array(some, pa.binary()),
                pa.array([files[one][0] for one in some], pa.int64()),
                pa.array([files[one][1] for one in some], pa.string()),
                pa.array([""] * len(some), pa.string()),
            ],
            list(ByDigest.columns),
        )


def naive(before: Files, after: Files) -> dict[str, list[DiffRow]]:
    """The same by dictionaries: renamed files are paired in the order of their paths."""
    removed, added = sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())
    waiting: dict[tuple[int, str], list[bytes]] = defaultdict(list)
    for path in removed:
        waiting[before[path]].append(path)
    found: dict[str, list[DiffRow]] = {kind: [] for kind in LISTED}
    for path in added:
        if waiting[after[path]]:
            size, was = after[path][0], waiting[after[path]].pop(0)
            found["renamed"].append(DiffRow("renamed", path, was, size, size))
        else:
            found["added"].append(DiffRow("added", path, None, after[path][0], None))
    left = {path for paths in waiting.values() for path in paths}
    found["removed"] = [
        DiffRow("removed", path, None, None, before[path][0]) for path in removed if path in left
    ]
    found["changed"] = [
        DiffRow("changed", path, None, after[path][0], before[path][0])
        for path in sorted(before.keys() & after.keys())
        if before[path] != after[path]
    ]
    return found


@settings(max_examples=300, deadline=None)
@given(FILES, FILES, st.integers(1, 7), st.integers(1, 7))
def test_it_finds_what_a_comparison_by_dictionaries_finds(
    before: Files, after: Files, one: int, two: int
) -> None:
    with ManifestDifference(ByDigest.keys) as found:
        found.compare(ByDigest(), batches(before, one), batches(after, two), "here")
        expected = naive(before, after)
        assert {kind: list(found.rows(kind)) for kind in LISTED} == expected
        for kind, rows in expected.items():
            count = found.counts[kind]
            assert count.files == len(rows)
            assert count.bytes_before == sum(row.bytes_before or 0 for row in rows)
            now = [row.bytes_before if kind == "removed" else row.bytes for row in rows]
            assert count.bytes == sum(size or 0 for size in now)
        same = [path for path in before.keys() & after.keys() if before[path] == after[path]]
        assert found.counts["unchanged"].files == len(same)
        assert found.equal == (before == after)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(DIGESTS), max_size=40), st.lists(st.sampled_from(DIGESTS), max_size=40))
def test_it_is_the_same_on_disk_and_in_many_passes(removed: list[str], added: list[str]) -> None:
    def few(name: str, digests: list[str]) -> Files:
        return {b"%s/%03d" % (name.encode(), number): (SIZES[one], one) for number, one in enumerate(digests)}

    before, after = few("a", removed), few("b", added)
    chunk, most = row_streams.CHUNK, difference.PASS
    row_streams.CHUNK, difference.PASS = 4, 5
    try:
        with ManifestDifference(ByDigest.keys, in_memory=8) as found:
            found.compare(ByDigest(), batches(before, 3), batches(after, 3), "here")
            pairs = difference.paired(found.rows_of["removed"], found.rows_of["added"], ByDigest.keys, 5)
            assert pairs.count == len(naive(before, after)["renamed"])
            rows = {kind: list(found.rows(kind)) for kind in LISTED}
    finally:
        row_streams.CHUNK, difference.PASS = chunk, most
    assert rows == naive(before, after)


def test_a_manifest_out_of_order_is_an_error() -> None:
    good, bad = {b"a": (1, "x:1"), b"c": (1, "x:1")}, {b"b": (1, "x:1")}
    with ManifestDifference(ByDigest.keys) as found, pytest.raises(FailedError, match="order of their paths"):
        found.compare(ByDigest(), [*batches(good, 5), *batches(bad, 5)], batches(good, 5), "here")
    turned = next(batches(good, 5)).take([1, 0])
    with ManifestDifference(ByDigest.keys) as found, pytest.raises(FailedError, match="order of their paths"):
        found.compare(ByDigest(), batches(good, 5), [turned], "here")


WHOLE, PARTS = f"xxh3_128:{1:032x}", f"xxh3_128/1048576:{2:032x}"


@pytest.mark.parametrize(
    ("one", "two", "kind"),
    [
        ((9, WHOLE, ""), (9, WHOLE, ""), "unchanged"),
        ((9, WHOLE, ""), (9, f"xxh3_128:{3:032x}", ""), "changed"),
        ((9, WHOLE, ""), (8, WHOLE, ""), "changed"),
        ((9, WHOLE, ""), (8, PARTS, ""), "changed"),
        ((9, WHOLE, ""), (9, PARTS, ""), "unproven"),
        ((9, WHOLE, "sha256:aa"), (9, PARTS, "sha256:aa"), "unchanged"),
        ((9, WHOLE, "sha256:aa"), (9, PARTS, "md5:bb sha256:ab"), "changed"),
        ((9, WHOLE, "sha256:aa"), (9, PARTS, "md5:bb"), "unproven"),
        ((9, PARTS, ""), (9, PARTS, ""), "unchanged"),
    ],
)
def test_how_two_digests_compare(
    one: tuple[int, str, str], two: tuple[int, str, str], kind: str, tmp_path: Path
) -> None:
    layout = DatasetLayout(tmp_path, "data")
    for name, (size, digest, digests) in (("a", one), ("b", two)):
        release(layout, name, [record("x", size, digest, digests=digests), record("y", 1, "xxh3_128:00")])
    with release_comparison.releases(layout, "a", "b").difference as found:
        counts = {name: count.files for name, count in found.counts.items() if count.files}
    assert counts == ({"unchanged": 2} if kind == "unchanged" else {"unchanged": 1, kind: 1})


MD5, OTHER = "0123456789abcdef0123456789abcdef", "f123456789abcdef0123456789abcdef"
OWN = "a" * 32
"""The digest that each file of `held` has."""
MULTIPART = f"{MD5}-12"
S3, GCS = "s3://b/p/", "gs://b/p/"


def listed(rows: Mapping[str, tuple[int, str, str]]) -> pa.RecordBatch:
    """Of a source now: path to size, token and stated checksum."""
    paths = sorted(rows)
    columns = [
        pa.array([one.encode() for one in paths], pa.binary()),
        pa.array([rows[one][0] for one in paths], pa.int64()),
        pa.array([rows[one][1].encode() for one in paths], pa.binary()),
        pa.array([0] * len(paths), pa.int64()),
        pa.array([rows[one][2].encode() for one in paths], pa.binary()),
    ]
    return pa.record_batch(columns, list(ByToken.listed))


def held(rows: Mapping[str, tuple[int, str, str, str]]) -> pa.RecordBatch:
    """Of a release: path to size, token, proof of the source and further digests."""
    paths = sorted(rows)
    columns = [
        pa.array([one.encode() for one in paths], pa.binary()),
        pa.array([rows[one][0] for one in paths], pa.int64()),
        pa.array([rows[one][1].encode() for one in paths], pa.binary()),
        pa.array([0] * len(paths), pa.int32()),
        pa.array([rows[one][2] for one in paths], pa.string()),
        pa.array([rows[one][3] for one in paths], pa.string()),
        pa.array([f"xxh3_128:{OWN}" for _ in paths], pa.string()),
    ]
    return pa.record_batch(columns, list(ByToken.columns))


@pytest.mark.parametrize(
    ("url", "mine", "theirs", "kind"),
    [
        (S3, (9, MD5, "", ""), (9, MD5, ""), "unchanged"),
        (S3, (9, MD5, "", ""), (9, OTHER, ""), "changed"),
        (S3, (9, MD5, "", ""), (8, MD5, ""), "changed"),
        (S3, (9, "", "", ""), (9, "", ""), "unproven"),
        (S3, (9, "", "", ""), (8, "", ""), "changed"),
        (GCS, (9, "1", f"md5:full:{MD5}", ""), (9, "2", f"md5:full:{MD5}"), "unchanged"),
        (GCS, (9, "1", f"md5:full:{MD5}", ""), (9, "2", f"md5:full:{OTHER}"), "changed"),
        (GCS, (9, "1", "", "sha256:ab"), (9, "", "sha256:full:ab"), "unchanged"),
        (GCS, (9, "1", "crc32c:full:ab", ""), (9, "2", "crc32c:full:ab"), "changed"),
    ],
)
def test_how_a_path_compares_with_its_source(
    url: str, mine: tuple[int, str, str, str], theirs: tuple[int, str, str], kind: str
) -> None:
    judge = ByToken([SealedSource(url)], [url])
    with ManifestDifference(judge.keys) as found:
        found.compare(judge, [held({"x": mine})], [listed({"x": theirs})], "here")
        assert {name for name, count in found.counts.items() if count.files} == {kind}


@pytest.mark.parametrize(
    ("url", "mine", "theirs", "proven"),
    [
        (S3, (9, MD5, "", ""), (9, MD5, ""), True),
        (S3, (9, MULTIPART, "", ""), (9, MULTIPART, ""), True),
        (S3, (9, MULTIPART, "", ""), (9, f"{MD5}-13", ""), False),
        (S3, (9, MD5, "", ""), (8, MD5, ""), False),
        (GCS, (9, MD5, "", ""), (9, MD5, ""), False),
        ("file:///x", (9, "9-1-2-3", "", ""), (9, "9-1-2-3", ""), False),
        (GCS, (9, "1", f"md5:full:{MD5}", ""), (9, "2", f"md5:full:{MD5}"), True),
        (GCS, (9, "1", "", f"sha256:{MD5}"), (9, "2", f"sha256:full:{MD5}"), True),
        (GCS, (9, "1", "crc32c:full:abcdef12", ""), (9, "2", "crc32c:full:abcdef12"), False),
        (GCS, (9, "1", f"md5:full:{MD5}", ""), (9, MD5, ""), True),
        (GCS, (9, "1", f"sha1:full:{MD5}", ""), (9, MD5, ""), False),
        (GCS, (9, "1", "", ""), (9, "2", f"xxh3_128:full:{OWN}"), True),
        (GCS, (9, "1", "", ""), (9, "2", f"md5:full:{OWN}"), False),
        (S3, (9, "", "", ""), (9, "", ""), False),
    ],
)
def test_which_renames_at_a_source_are_proven(
    url: str, mine: tuple[int, str, str, str], theirs: tuple[int, str, str], *, proven: bool
) -> None:
    judge = ByToken([SealedSource(url)], [url])
    with ManifestDifference(judge.keys) as found:
        found.compare(judge, [held({"old": mine})], [listed({"new": theirs})], "here")
        kinds = {name: count.files for name, count in found.counts.items() if count.files}
    assert kinds == ({"renamed": 1} if proven else {"removed": 1, "added": 1})


def test_what_a_source_states_need_not_be_utf_8() -> None:
    judge = ByToken([SealedSource(S3)], [S3])
    odd = pa.array([b"\xff\xfe"], pa.binary())
    now = listed({"new": (9, "x", "")})
    for name in ("token", "checksum"):
        now = now.set_column(now.schema.get_field_index(name), name, odd)
    with ManifestDifference(judge.keys) as found:
        found.compare(judge, [held({"old": (9, MD5, "", "")})], [now], "here")
        assert (found.counts["removed"].files, found.counts["added"].files) == (1, 1)


def test_another_source_of_the_same_token_proves_nothing_by_itself() -> None:
    judge = ByToken([SealedSource("https://one/")], ["https://two/"])
    with ManifestDifference(judge.keys) as found:
        found.compare(judge, [held({"x": (9, "tag", "", "")})], [listed({"x": (9, "tag", "")})], "here")
        assert found.counts["changed"].files == 1


MEASURED = """
import sys
from pathlib import Path
from penstock.look import release_comparison
from penstock.core.layout import DatasetLayout
from penstock.host.kernel_facts import peak_memory
layout = DatasetLayout(Path(sys.argv[1]), "data")
with release_comparison.releases(layout, sys.argv[2], sys.argv[3]).difference as difference:
    kinds = ("unchanged", "changed", "renamed", "removed", "added")
    print(*(difference.counts[kind].files for kind in kinds))
print(peak_memory("self"))
"""


def peak(layout: DatasetLayout, *releases: str) -> tuple[list[int], int]:
    """The counts of a comparison in a process of its own, and the most memory that it had, in MiB."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(layout.root), *releases],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    counts, memory = done.stdout.splitlines()
    return [int(one) for one in counts.split()], int(memory) >> 20


def test_memory_does_not_grow_with_what_is_unchanged(tmp_path: Path) -> None:
    """One in 1,000 changed and one in 100 renamed, of 10^4 and of 10^5 files."""
    seen = {}
    for rows in (10_000, 100_000):
        layout = DatasetLayout(tmp_path / str(rows), "data")
        large(layout, "a", rows, lambda i: f"n{i // 1000:06d}/{i:09d}.jpeg", lambda i: i + 1)
        large(
            layout, "b", rows,
            lambda i: f"n{i // 1000:06d}/{i:09d}.jp{'g' if i % 100 == 0 else 'eg'}",
            lambda i: i + 10**12 if i % 1000 == 7 else i + 1,
        )  # fmt: skip
        counts, seen[rows] = peak(layout, "a", "b")
        assert counts == [rows - rows // 1000 - rows // 100, rows // 1000, rows // 100, 0, 0]
    # Two batches of 65,536 rows on each side: no more comes to it however many there are.
    assert seen[100_000] - seen[10_000] < 80, seen
    assert seen[100_000] < 260, seen


def test_what_does_not_fit_into_memory_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    files = {b"%06d" % number: (1, f"xxh3_128:{number:032x}") for number in range(200_000)}
    with ManifestDifference(ByDigest.keys, in_memory=1) as found:
        found.compare(ByDigest(), batches(files, 65_536), iter(()), "here")
        assert os.listdir(tmp_path) == []
        assert sum(1 for _ in found.rows("removed")) == 200_000
