"""Digests and proofs as texts, and what they hold."""

from __future__ import annotations

import pytest

from penstock.core.grades import is_proven, source_rank, storage_rank
from penstock.core.model import (
    Digest,
    Proof,
    SourceChecksum,
    as_giant,
    as_in_parts,
    listed,
    part_of,
    proof_of,
    proof_text,
    value_of,
    values,
)

HEX = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        (f"xxh3_128:{HEX}", Digest("xxh3_128", HEX)),
        (f"xxh3_128/1048576:{HEX}", Digest("xxh3_128", HEX, 1048576)),
        (f"parts/1048576:{HEX}", Digest("parts", HEX, 1048576)),
        ("sha256:00", Digest("sha256", "00")),
    ],
)
def test_a_digest_is_its_text(text: str, digest: Digest) -> None:
    assert Digest.parse(text) == digest
    assert str(digest) == text


def test_a_size_of_parts_is_a_number() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        Digest.parse("xxh3_128/many:00")


def test_a_file_copied_in_parts_has_a_digest_of_its_own_kind() -> None:
    giant = f"xxh3_128/16:{HEX}"
    assert as_in_parts(Digest.parse(giant)) == f"parts/16:{HEX}"
    assert as_giant(f"parts/16:{HEX}") == giant


def test_the_digest_of_each_part() -> None:
    parts = bytes(range(48))
    assert [part_of(parts, number) for number in range(4)] == [parts[:16], parts[16:32], parts[32:], b""]


def test_a_proof_that_is_owed_names_its_grade() -> None:
    checksum = str(SourceChecksum("md5", "full", "00"))
    proof = Proof("etag-md5", checksum)
    assert Proof.parse(str(proof)) == proof
    assert proof_of(proof_text("", proof)) == ("", proof)
    # A checksum that held already, and nothing at all.
    assert proof_of(checksum) == (checksum, None)
    assert proof_of("") == ("", None)


def test_grades_have_an_order() -> None:
    assert source_rank("size") < source_rank("etag-md5") < source_rank("composite") < source_rank("full")
    assert storage_rank("written") < storage_rank("reread") < storage_rank("cold")
    assert [is_proven(grade) for grade in ("", "size", "etag-md5", "full")] == [False, False, True, True]


def test_the_digests_of_one_algorithm_over_all_bytes() -> None:
    assert values([f"xxh3_128:{HEX}", "xxh3_128:00"], "xxh3_128") == [HEX, "00"]
    assert values([f"xxh3_128:{HEX}", "xxh3_128/16:00"], "xxh3_128") is None
    assert value_of(listed("xxh3_128/16:00 sha256:11 xxh3_128:22"), "xxh3_128") == "22"
    assert value_of(listed("xxh3_128/16:00"), "xxh3_128") is None
