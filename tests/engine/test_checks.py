from __future__ import annotations

import hashlib
import random
import zlib

import pytest
import xxhash
from awscrt import checksums
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import IntegrityError
from penstock.core.model import Entry, SourceChecksum
from penstock.engine.checksums import (
    RANK,
    Composite,
    Sums,
    combinable,
    combine,
    compose,
    grade_of,
    judge_at_once,
    judge_giant,
    new_sum,
    tree_digest,
)

DATA = random.Random(1).randbytes(100_000)
VALUES = {
    "crc64nvme": f"{checksums.crc64nvme(DATA):016x}",
    "crc32c": f"{checksums.crc32c(DATA):08x}",
    "crc32": f"{zlib.crc32(DATA):08x}",
    "xxh3_128": xxhash.xxh3_128_hexdigest(DATA),
    "xxh64": xxhash.xxh64_hexdigest(DATA),
    "sha256": hashlib.sha256(DATA).hexdigest(),
    "sha1": hashlib.sha1(DATA).hexdigest(),
    "sha512": hashlib.sha512(DATA).hexdigest(),
    "md5": hashlib.md5(DATA).hexdigest(),
}


def entry(**changes: object) -> Entry:
    return Entry("p", "k", len(DATA), "token", 0, length=len(DATA))._replace(**changes)  # type: ignore[arg-type]


def judged(
    one: Entry, checksums: list[SourceChecksum], data: bytes = DATA, block: int = 7_000
) -> tuple[str, str]:
    sums = Sums(one, checksums)
    view = memoryview(bytearray(data))
    for start in range(0, len(data), block):
        sums.update(view[start : start + block])
    return sums.judge()


def test_every_algorithm_has_a_rank() -> None:
    assert set(VALUES) == set(RANK)


@pytest.mark.parametrize("algorithm", sorted(VALUES))
def test_a_full_checksum_that_holds_proves(algorithm: str) -> None:
    checksum = SourceChecksum(algorithm, "full", VALUES[algorithm])
    assert judged(entry(), [checksum]) == ("full", str(checksum))


@pytest.mark.parametrize("algorithm", sorted(VALUES))
def test_a_full_checksum_that_does_not_hold_is_an_error(algorithm: str) -> None:
    checksum = SourceChecksum(algorithm, "full", VALUES[algorithm])
    with pytest.raises(IntegrityError, match=algorithm):
        judged(entry(), [checksum], DATA[:-1] + b"x")


@pytest.mark.parametrize(
    ("algorithm", "data", "proven"),
    [(RANK[0], DATA, True), (RANK[0], DATA[:-1] + b"x", False), ("sha256", DATA, False)],
)
def test_a_small_object_is_proven_at_once_where_its_cheapest_checksum_holds(
    algorithm: str, data: bytes, proven: bool
) -> None:
    checksum = SourceChecksum(algorithm, "full", VALUES[algorithm])
    found = judge_at_once(entry(), [checksum], memoryview(data))
    assert found == (("full", str(checksum)) if proven else None)


def test_known_vectors() -> None:
    vectors = {"crc64nvme": "ae8b14860a799888", "crc32c": "e3069283", "crc32": "cbf43926"}
    for name, value in vectors.items():
        one = new_sum(name)
        one.update(b"12345")
        one.update(b"6789")
        assert one.hexdigest() == value


def test_only_the_cheapest_is_computed() -> None:
    good = SourceChecksum("crc64nvme", "full", VALUES["crc64nvme"])
    wrong = SourceChecksum("md5", "full", "0" * 32)
    assert judged(entry(), [wrong, good]) == ("full", str(good))


def test_a_checksum_of_the_listing_is_always_checked() -> None:
    good = SourceChecksum("crc64nvme", "full", VALUES["crc64nvme"])
    assert judged(entry(checksum="sha256:full:" + VALUES["sha256"]), [good])[0] == "full"
    with pytest.raises(IntegrityError, match="sha256"):
        judged(entry(checksum="sha256:full:" + "0" * 64), [good])


def test_an_md5_that_is_the_etag_is_the_weaker_proof() -> None:
    checksum = SourceChecksum("md5", "full", VALUES["md5"])
    assert judged(entry(token=VALUES["md5"]), [checksum])[0] == "etag-md5"
    assert grade_of(checksum, "other") == "full"


def test_unknown_algorithms_prove_nothing() -> None:
    assert judged(entry(), [SourceChecksum("sha3", "full", "00")]) == ("size", "")
    assert not Sums(entry(), [])


@pytest.mark.parametrize("algorithm", ["crc32c", "sha256", "md5", "crc64nvme"])
@pytest.mark.parametrize("part", [10_000, 33_333, 100_000, 200_000])
def test_composites_are_computed_when_the_size_of_parts_is_known(algorithm: str, part: int) -> None:
    outer = new_sum(algorithm)
    pieces = [DATA[i : i + part] for i in range(0, len(DATA), part)]
    for piece in pieces:
        inner = new_sum(algorithm)
        inner.update(piece)
        outer.update(bytes.fromhex(inner.hexdigest()))
    checksum = SourceChecksum(algorithm, "composite", outer.hexdigest(), len(pieces), part)
    assert judged(entry(), [checksum]) == ("composite", str(checksum))
    with pytest.raises(IntegrityError):
        judged(entry(), [checksum], DATA[1:] + b"x")
    assert judged(entry(), [checksum._replace(part_bytes=0)]) == ("size", "")


def test_an_empty_object_has_its_checksums_too() -> None:
    checksum = SourceChecksum("crc32c", "full", "00000000")
    assert judged(entry(size=0), [checksum], b"") == ("full", str(checksum))
    assert Composite("md5", 10).hexdigest() == hashlib.md5(b"").hexdigest()


@given(
    st.sampled_from(["crc64nvme", "crc32c", "crc32"]),
    st.lists(st.integers(1, 40_000), min_size=1, max_size=6),
)
@settings(deadline=None, max_examples=30)
def test_crcs_of_parts_combine_to_the_whole(algorithm: str, lengths: list[int]) -> None:
    proofs, at = [], 0
    whole = [SourceChecksum(algorithm, "full", "f" * 8)]
    for number, length in enumerate(lengths):
        piece = DATA[at : at + length]
        sums = Sums(entry(part=number, offset=at, length=len(piece)), (), lambda: whole)
        sums.update(piece)
        proofs.append((sums.judge()[1], len(piece)))
        at += length
    expected = new_sum(algorithm)
    expected.update(DATA[:at])
    assert combine(proofs) == SourceChecksum(algorithm, "full", expected.hexdigest())


@given(
    st.sampled_from(["crc64nvme", "crc32c", "crc32", "md5", "sha256"]),
    st.integers(500, 40_000),
    st.integers(300, 40_000),
)
@settings(deadline=None, max_examples=20)
def test_sums_between_the_sources_cuts_join_to_its_composite(algorithm: str, theirs: int, ours: int) -> None:
    """`theirs`: bytes of the source's parts; `ours`: of the giant's."""
    composite = Composite(algorithm, theirs)
    composite.update(DATA)
    stated = SourceChecksum(algorithm, "composite", composite.hexdigest(), -(-len(DATA) // theirs), theirs)
    proofs = []
    for number, at in enumerate(range(0, len(DATA), ours)):
        piece = DATA[at : at + ours]
        sums = Sums(entry(part=number, offset=at, length=len(piece)), (), lambda: [stated])
        for start in range(0, len(piece), 7_000):
            sums.update(piece[start : start + 7_000])
        grade, proof = sums.judge()
        assert grade == "size"
        proofs.append((proof, at, len(piece)))
    if algorithm in ("md5", "sha256") and ours % theirs and ours < len(DATA):
        assert {proof for proof, _, _ in proofs} == {""}
        assert compose(proofs) is None
        return
    assert compose(proofs) == stated
    assert judge_giant("k", [stated], [stated]) == ("composite", str(stated))
    assert combine((proof, length) for proof, _, length in proofs) is None
    assert compose(proofs[1:]) != stated


def test_parts_without_crcs_or_with_different_ones_do_not_combine() -> None:
    assert combine([("crc32c:part:00000001", 4), ("", 4)]) is None
    assert combine([("crc32c:part:00000001", 4), ("crc32:part:00000001", 4)]) is None
    assert combine([("sha256:part:00", 4)]) is None
    assert combine([]) is None


def test_a_part_is_checked_against_the_checksum_of_its_range() -> None:
    checksum = SourceChecksum("crc32c", "part", VALUES["crc32c"])
    assert judged(entry(part=0), [checksum]) == ("size", "")
    with pytest.raises(IntegrityError):
        judged(entry(part=0), [checksum], DATA[:-1] + b"x")


def test_a_giant_is_judged_by_its_parts_together() -> None:
    checksum = SourceChecksum("crc32c", "full", "0000000a")
    assert combinable([SourceChecksum("md5", "full", "00"), checksum]) == checksum
    assert judge_giant("k", [checksum], [checksum]) == ("full", str(checksum))
    assert judge_giant("k", [checksum], [SourceChecksum("md5", "full", "00")]) == ("size", "")
    assert judge_giant("k", [], [checksum]) == ("size", "")
    with pytest.raises(IntegrityError):
        judge_giant("k", [checksum._replace(value="0000000b")], [checksum])


def test_the_tree_digest_names_its_part_size() -> None:
    parts = xxhash.xxh3_128_digest(b"a") + xxhash.xxh3_128_digest(b"b")
    assert str(tree_digest(1 << 20, parts)) == "xxh3_128/1048576:" + xxhash.xxh3_128_hexdigest(parts)
