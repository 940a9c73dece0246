"""What headers state, by the table in `s3_checksums`."""

from __future__ import annotations

import hashlib
import zlib

import pytest
from tests.contracts.source_contract import b64

from penstock.core.model import SourceChecksum
from penstock.sources.stated_checksums import s3_checksums, web_checksums

CRC = f"{zlib.crc32(b'x'):08x}"
SHA = hashlib.sha256(b"x").hexdigest()
MD5 = hashlib.md5(b"x").hexdigest()
FULL, COMPOSITE = b"FULL_OBJECT", b"COMPOSITE"


def crc(suffix: str = "", kind: bytes = b"", **more: str) -> dict[bytes, bytes]:
    headers = {b"x-amz-checksum-crc32": (b64(CRC) + suffix).encode()}
    if kind:
        headers[b"x-amz-checksum-type"] = kind
    return headers | {name.replace("_", "-").encode(): value.encode() for name, value in more.items()}


@pytest.mark.parametrize(
    ("headers", "whole", "expected"),
    [
        (crc(kind=FULL), True, [SourceChecksum("crc32", "full", CRC)]),
        (crc(kind=FULL), False, [SourceChecksum("crc32", "full", CRC)]),
        (crc("-3", COMPOSITE), True, [SourceChecksum("crc32", "composite", CRC, 3)]),
        (crc("-3", COMPOSITE), False, [SourceChecksum("crc32", "composite", CRC, 3)]),
        # GetObjectAttributes' form: the type counts, the parts come from elsewhere
        (crc(kind=COMPOSITE, x_amz_mp_parts_count="4"), True, [SourceChecksum("crc32", "composite", CRC, 4)]),
        (crc(kind=COMPOSITE), True, []),
        (crc("-3"), True, [SourceChecksum("crc32", "composite", CRC, 3)]),
        (crc(), True, [SourceChecksum("crc32", "full", CRC)]),
        (crc(), False, []),
        (crc(etag=f'"{MD5}-2"'), True, [SourceChecksum("md5", "composite", MD5, 2)]),
        ({b"x-amz-checksum-crc32": b"short", b"x-amz-checksum-type": FULL}, True, []),
        ({b"x-amz-checksum-sha256": b64(SHA).encode(), b"x-amz-checksum-type": FULL}, False, []),
        ({b"x-amz-checksum-xxhash128": b64(MD5).encode()}, True, [SourceChecksum("xxh3_128", "full", MD5)]),
        ({b"etag": f'"{MD5}"'.encode()}, True, [SourceChecksum("md5", "full", MD5)]),
        ({b"etag": f'"{MD5}"'.encode()}, False, []),
        ({b"etag": f'"{MD5[:-1]}"'.encode()}, True, []),
        ({b"etag": f'"{MD5}"'.encode(), b"x-amz-server-side-encryption": b"aws:kms"}, True, []),
        (
            {b"etag": f'"{MD5}"'.encode(), b"x-amz-server-side-encryption": b"AES256"},
            True,
            [SourceChecksum("md5", "full", MD5)],
        ),
        (
            {b"etag": f'"{MD5}"'.encode(), b"x-amz-server-side-encryption-customer-algorithm": b"AES256"},
            True,
            [],
        ),
    ],
)
def test_s3(headers: dict[bytes, bytes], whole: bool, expected: list[SourceChecksum]) -> None:
    assert s3_checksums(headers, whole=whole) == expected


def test_full_checksums_come_first() -> None:
    headers = crc(kind=FULL) | {b"etag": f'"{MD5}-9"'.encode()}
    assert [checksum.kind for checksum in s3_checksums(headers, whole=True, part_bytes=5)] == [
        "full",
        "composite",
    ]


@pytest.mark.parametrize("part_bytes", [0, 8 << 20])
def test_checksums_survive_text(part_bytes: int) -> None:
    for checksum in (
        SourceChecksum("md5", "full", MD5),
        SourceChecksum("sha256", "composite", SHA, 7, part_bytes),
    ):
        assert SourceChecksum.parse(str(checksum)) == checksum


@pytest.mark.parametrize(
    ("headers", "whole", "expected"),
    [
        ({b"repr-digest": f"sha-256=:{b64(SHA)}:".encode()}, True, [SourceChecksum("sha256", "full", SHA)]),
        ({b"digest": f"SHA-256={b64(SHA)},md5={b64(MD5)}".encode()}, True,
         [SourceChecksum("sha256", "full", SHA), SourceChecksum("md5", "full", MD5)]),
        ({b"content-md5": b64(MD5).encode()}, True, [SourceChecksum("md5", "full", MD5)]),
        ({b"content-md5": b64(MD5).encode()}, False, []),
        ({b"x-goog-hash": f"crc32c={b64(CRC)},md5={b64(MD5)}".encode()}, False,
         [SourceChecksum("crc32c", "full", CRC)]),
        ({b"content-digest": f"sha-256=:{b64(SHA)}:".encode()}, False, []),
        ({b"repr-digest": b"sha-256=:nonsense:, unixsum=1"}, True, []),
    ],
)  # fmt: skip
def test_web(headers: dict[bytes, bytes], whole: bool, expected: list[SourceChecksum]) -> None:
    assert web_checksums(headers, whole=whole) == expected
