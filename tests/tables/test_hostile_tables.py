"""Parquet files that are made to harm their reader end in an error, and take bounded memory."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.core.errors import FailedError
from penstock.core.row_codec import MANIFEST, file_format
from penstock.core.seal import SealedManifest
from penstock.dataset import receipts
from penstock.fs.small_files import NotPlainError
from penstock.tables import manifest
from penstock.tables.tables import KIND

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LONG = b"x" * (1 << 20)
ROWS = 65_536
ABOUT = {KIND: f"{MANIFEST} {file_format(MANIFEST)}".encode()}


def _write(path: Path, column: pa.Array, **about: bytes) -> None:
    table = pa.table({"path": column})
    with pq.ParquetWriter(path, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({**ABOUT, **about})


def dictionary(path: Path) -> None:
    """64 GiB of names once they are decoded, in 50 KB."""
    _write(path, pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int32()), pa.array([LONG])))


def footer(path: Path) -> None:
    """Its metadata alone are more than a reader may take."""
    _write(path, pa.array([b"a"]), more=LONG * 200)


def rows(path: Path) -> None:
    """Two million rows, by a footer that was changed: its thrift varints of 65,536 are the largest
    ones of their length."""
    _write(path, pa.array([b"a"] * ROWS))
    path.write_bytes(path.read_bytes().replace(b"\x80\x80\x08", b"\xfe\xff\x7f"))


def sparse(path: Path) -> None:
    _write(path, pa.array([b"a"]))
    os.truncate(path, 1 << 40)


def fifo(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("make", [dictionary, footer, rows, sparse, fifo])
def test_a_manifest_that_is_made_to_harm_is_damage(make: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "manifest.parquet"
    make(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(FailedError, match="cannot be read"):
        list(manifest.read_columns(path, ["path"]))
    with pytest.raises(FailedError, match="cannot be read"):
        list(manifest.some_paths(path, 32))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, resource.getrlimit(resource.RLIMIT_DATA)
    assert after[0] - before[0] < 250 << 10
    assert after[1] == before[1]


def test_a_hole_of_a_terabyte_is_not_hashed(tmp_path: Path) -> None:
    path = tmp_path / "manifest.parquet"
    sparse(path)
    assert not receipts.is_sealed(path, SealedManifest(sha256="sha256:0", bytes=1))
    with pytest.raises(NotPlainError, match="a hole"):
        receipts.file_digest(path)
