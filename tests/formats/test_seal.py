"""The seal as a document: the bytes that are written, and seals of other versions."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from penstock.core.documents import seal as document
from penstock.core.documents.seal import (
    Amount,
    Seal,
    SealedAmendment,
    SealedEvidence,
    SealedManifest,
    SealedPermissions,
    SealedRecords,
    SealedSource,
)
from penstock.core.seal_tree import SEALED_FIELDS
from penstock.errors import NewerFormatError

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"

SEAL = Seal(
    dataset="data",
    release="v1",
    run="0123456789abcdef",
    sealed="2026-01-02T03:04:05Z",
    penstock="0.1.0",
    files=3,
    bytes=70,
    giants=1,
    part_bytes=32,
    sources=[SealedSource("s3://bucket/", "one"), SealedSource("s3://other/")],
    listing="sha256:aa",
    include=("**",),
    exclude=("*.tmp",),
    scanned=5,
    ignored={"markers": 2},
    hard_links={"files": 2, "of": 1, "bytes": 9},
    base="v0",
    unchanged=1,
    permissions=SealedPermissions(0o440, 0o2550, 7, 1000),
    records=SealedRecords("sha256:bb", 3),
    manifests={
        "manifest.parquet": SealedManifest("sha256:cc", records=3, bytes=999),
        "empty-folders.json": SealedManifest("sha256:dd", folders=4),
        "manifest.xxh128": SealedManifest("sha256:ee", lines=2, escaped=0, left_out=1),
    },
    evidence=SealedEvidence(
        source={"full": Amount(2, 60), "size": Amount(1, 10)},
        storage={"cold": Amount(3, 70)},
        methods={"direct": Amount(3, 70)},
        required_storage="cold",
        required_source="none",
    ),
)
WRITTEN = {
    "format": 1,
    "dataset": "data",
    "release": "v1",
    "run": "0123456789abcdef",
    "sealed": "2026-01-02T03:04:05Z",
    "penstock": "0.1.0",
    "files": 3,
    "bytes": 70,
    "giants": 1,
    "part_bytes": 32,
    "sources": [{"url": "s3://bucket/", "into": "one"}, {"url": "s3://other/", "into": ""}],
    "listing": "sha256:aa",
    "include": ["**"],
    "exclude": ["*.tmp"],
    "scanned": 5,
    "ignored": {"markers": 2},
    "hard_links": {"files": 2, "of": 1, "bytes": 9},
    "base": "v0",
    "unchanged": 1,
    "permissions": {
        "file_mode": 0o440,
        "dir_mode": 0o2550,
        "octal": {"files": "0440", "folders": "2550"},
        "gid": 7,
        "uid": 1000,
    },
    "records": {"root": "sha256:bb", "count": 3, "fields": list(SEALED_FIELDS)},
    "manifests": {
        "manifest.parquet": {"sha256": "sha256:cc", "records": 3, "bytes": 999},
        "empty-folders.json": {"sha256": "sha256:dd", "folders": 4},
        "manifest.xxh128": {"sha256": "sha256:ee", "lines": 2, "escaped": 0, "left_out": 1},
    },
    "evidence": {
        "source": {"full": {"files": 2, "bytes": 60}, "size": {"files": 1, "bytes": 10}},
        "storage": {"cold": {"files": 3, "bytes": 70}},
        "methods": {"direct": {"files": 3, "bytes": 70}},
        "weakest_source": {"grade": "size", "files": 1, "bytes": 10},
        "weakest_storage": {"grade": "cold", "files": 3, "bytes": 70},
        "required_storage": "cold",
        "required_source": "none",
    },
}
"""As versions before this document wrote it."""
FOLLOWED = {"listing": "sha256:ff", "changed": 1, "gone": 2, "from": "a", "until": "b"}


def read(raw: object) -> Seal:
    return document.from_json(json.dumps(raw).encode(), "release.json")


def fixtures(commit: str) -> dict[str, bytes]:
    with tarfile.open(FIXTURES / f"{commit}.tar.gz") as held:
        names = [name for name in held.getnames() if name.endswith("/release.json")]
        files = {name: held.extractfile(name) for name in names}
        return {name: file.read() for name, file in files.items() if file is not None}


def test_it_is_written_as_ever_and_read_back() -> None:
    written = document.to_json(SEAL)
    assert json.loads(json.dumps(written)) == WRITTEN
    assert document.to_json(read(WRITTEN)) == written
    followed = Seal(amended=SealedAmendment("sha256:ff", 1, 2, "a", "b"))
    written = document.to_json(followed)
    assert {name: written[name] for name in ("format", "snapshot", "amended")} == {
        "format": 2,
        "snapshot": False,
        "amended": FOLLOWED,
    }
    assert read({"amended": FOLLOWED}).amended == followed.amended


@pytest.mark.parametrize("commit", ["32c1780", "d98f93c"])
def test_seals_of_older_versions_say_what_they_said(commit: str) -> None:
    found = fixtures(commit)
    assert len(found) >= 5
    for name, content in found.items():
        raw = json.loads(content)
        modes = raw["permissions"]
        # 32c1780 did not write the modes as people do.
        modes["octal"] = {"files": f"{modes['file_mode']:04o}", "folders": f"{modes['dir_mode']:04o}"}
        written = document.to_json(document.from_json(content, name))
        assert json.loads(json.dumps(written)) == raw


def test_a_field_that_is_missing_has_its_default_and_one_of_later_versions_is_passed_over() -> None:
    older = read({"run": "r"})
    assert older == Seal(run="r")
    assert older.records.fields == SEALED_FIELDS
    assert read({"run": "r", "later": {"deep": [1]}}) == older


def test_a_newer_format_is_refused_by_name() -> None:
    with pytest.raises(NewerFormatError, match="a release's seal is of a newer format") as told:
        read({**WRITTEN, "format": 99, "penstock": "9.9.9"})
    assert told.value.where == "release.json"
    assert "format 99" in told.value.why
    assert "use 9.9.9, which wrote it, or a later one" in told.value.hint


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[]", "no JSON object"),
        (b'{"files": "3"}', "`files`: it is no whole number"),
        (b'{"run": 3}', "`run`: it is no text"),
        (b'{"manifests": []}', "`manifests`: it is no JSON object"),
        (b'{"manifests": {"manifest.parquet": 1}}', "`manifests`: `manifest.parquet`: it is no JSON object"),
        (b'{"sources": {}}', "`sources`: it is no list"),
        (b'{"include": [1]}', "`include`: it is no text"),
        (b'{"records": [1]}', "`records`: it is no JSON object"),
        (b'{"format": "1"}', "`format` is no whole number"),
    ],
)
def test_what_is_no_seal_is_damaged(content: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        document.from_json(content, "release.json")


def test_s19_names_of_owner_and_group_stand_where_they_are_known() -> None:
    """S19."""
    known = SEAL.permissions._replace(user="anna", group="")
    written = document.to_json(SEAL._replace(permissions=known))
    permissions = written["permissions"]
    assert isinstance(permissions, dict)
    assert (permissions["user"], "group" in permissions) == ("anna", False)
    assert document.from_json(json.dumps(written).encode(), "").permissions == known
