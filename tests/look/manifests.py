"""Manifests and releases made up, of as many rows as a test wants, by the package's own writers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
from tests.support.seals import PLAIN

from penstock.core import seal as seal_document
from penstock.core.layout import MANIFEST, SEAL
from penstock.core.model import Record
from penstock.core.seal import SealedManifest, SealedSource
from penstock.tables.manifest import FORM, Files, ManifestWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from penstock.core.layout import DatasetLayout


def record(path: str, size: int, digest: str, **changes: object) -> Record:
    plain = Record(
        path=path, size=size, digest=digest, modified_ns=1, key=path, token=f"{size}-{digest}", version="",
        source=0, source_grade="size", source_proof="", storage_grade="cold", method="direct",
        written_host="n1", verified_host="n1", attempt="a", mtime_ns=1, ctime_ns=1, parts=b"", digests="",
    )  # fmt: skip
    return plain._replace(**changes)


def release(layout: DatasetLayout, name: str, records: Iterable[Record], url: str = "s3://b/p/") -> Path:
    """A sealed release of these records, in the order of their paths; it holds no data."""
    ordered = sorted(records, key=lambda one: one.path.encode("utf-8", "surrogateescape"))
    folder = layout.release(name)
    folder.mkdir(parents=True)
    with ManifestWriter(folder / MANIFEST) as writer:
        if ordered:
            writer.add(Files.of(ordered))
        digest = writer.finish()
    seal(layout, name, digest, len(ordered), sum(one.size for one in ordered), url)
    return folder


def seal(
    layout: DatasetLayout, name: str, digest: str, files: int, size: int, url: str = "s3://b/p/"
) -> None:
    told = PLAIN._replace(
        dataset=layout.dataset, release=name, files=files, bytes=size, sources=(SealedSource(url),),
        manifests={MANIFEST: SealedManifest(digest)},
    )  # fmt: skip
    (layout.release(name) / SEAL).write_text(json.dumps(seal_document.RELEASE_SEAL.to_json(told)))


def large(
    layout: DatasetLayout, name: str, rows: int, path: Callable[[int], str], version: Callable[[int], int]
) -> None:
    """A release of `rows` files of 1,000 bytes. Each one's number is mapped to its path (in ascending order)
    and to what its content is."""
    layout.release(name).mkdir(parents=True)
    constant = {
        "size": 1000, "modified_ns": 1, "version": b"", "source": 0, "source_grade": "full",
        "source_proof": "md5:full:00", "storage_grade": "cold", "method": "direct", "written_host": "n1",
        "verified_host": "n1", "attempt": "a", "mtime_ns": 1, "ctime_ns": 1, "parts": b"", "digests": "",
    }  # fmt: skip
    with ManifestWriter(layout.release(name) / MANIFEST) as writer:
        for start in range(0, rows, 1 << 16):
            numbers = range(start, min(rows, start + (1 << 16)))
            paths = [path(number).encode() for number in numbers]
            digests = [f"{version(number) * 0x9E3779B97F4A7C15 % (1 << 128):032x}" for number in numbers]
            columns = {
                "path": paths,
                "key": paths,
                "digest": [f"xxh3_128:{one}" for one in digests],
                "token": [one.encode() for one in digests],
            }
            arrays = [
                pa.array(
                    columns.get(
                        field.name,
                        [constant.get(field.name, 0)] * len(numbers),
                    ),
                    field.type,
                )
                for field in FORM.schema
            ]
            writer._table.add(pa.record_batch(arrays, schema=FORM.schema))
        digest = writer.finish()
    seal(layout, name, digest, rows, rows * 1000)
