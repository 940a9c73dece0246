"""The seal as a document: the bytes that are written, and what is no seal."""

from __future__ import annotations

import json

import pytest

from penstock.core import seal as document
from penstock.core.errors import NewerFormatError
from penstock.core.seal import (
    SEALED_FIELDS,
    Amount,
    Seal,
    SealedAmendment,
    SealedEvidence,
    SealedManifest,
    SealedPermissions,
    SealedReadDelay,
    SealedRecords,
    SealedSource,
)

SEAL = Seal(
    dataset="data",
    release="v1",
    run="0123456789abcdef",
    sealed="2026-01-02T03:04:05Z",
    penstock="1.0.0",
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
    records=SealedRecords("sha256:bb", 3, SEALED_FIELDS),
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
    "penstock": "1.0.0",
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
LISTS = ("sources", "include", "exclude")
FOLLOWED = {"listing": "sha256:ff", "changed": 1, "gone": 2, "from": "a", "until": "b"}


def read(raw: object) -> Seal:
    return document.RELEASE_SEAL.from_json(json.dumps(raw).encode(), "release.json")


def test_it_is_written_as_ever_and_read_back() -> None:
    written = document.RELEASE_SEAL.to_json(SEAL)
    assert json.loads(json.dumps(written)) == WRITTEN
    assert document.RELEASE_SEAL.to_json(read(WRITTEN)) == written
    followed = SEAL._replace(amended=SealedAmendment("sha256:ff", 1, 2, "a", "b"))
    written = document.RELEASE_SEAL.to_json(followed)
    assert {name: written[name] for name in ("format", "snapshot", "amended")} == {
        "format": 1,
        "snapshot": False,
        "amended": FOLLOWED,
    }
    assert read(written) == followed._replace(**{name: getattr(read(WRITTEN), name) for name in LISTS})


def test_how_soon_files_were_read_back_is_kept_and_older_seals_say_nothing_of_it() -> None:
    assert read(WRITTEN).evidence.read_after is None
    stated = SEAL._replace(evidence=SEAL.evidence._replace(read_after=SealedReadDelay(180, 2460, 7)))
    written = json.loads(json.dumps(document.RELEASE_SEAL.to_json(stated)))
    assert written["evidence"]["read_after"] == {"least": 180, "median": 2460, "soon": 7}
    assert read(written).evidence == stated.evidence


def test_a_field_of_later_versions_is_passed_over() -> None:
    assert read({**WRITTEN, "later": {"deep": [1]}}) == read(WRITTEN)


def test_a_newer_format_is_refused_by_name() -> None:
    with pytest.raises(NewerFormatError, match="a release's seal is of a newer format") as told:
        read({**WRITTEN, "format": 99, "penstock": "9.9.9"})
    assert told.value.where == "release.json"
    assert "format 99" in told.value.why
    assert "use 9.9.9, which wrote it, or a later one" in told.value.hint


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[]"])
def test_what_is_no_json_object_is_no_seal(content: bytes) -> None:
    with pytest.raises(ValueError, match="no JSON"):
        document.RELEASE_SEAL.from_json(content, "release.json")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"files": "3"}, "`files`: it is no whole number"),
        ({"run": 3}, "`run`: it is no text"),
        ({"run": None}, "`run` is missing"),
        ({"manifests": []}, "`manifests`: it is no JSON object"),
        ({"manifests": {}}, "does not seal manifest.parquet"),
        ({"manifests": {"manifest.parquet": 1}}, "`manifests`: `manifest.parquet`: it is no JSON object"),
        ({"sources": {}}, "`sources`: it is no list"),
        ({"include": [1]}, "`include`: it is no text"),
        ({"records": [1]}, "`records`: it is no JSON object"),
        ({"records": {"root": "sha256:bb", "count": 3}}, "`records`: `fields` is missing"),
        ({"format": "1"}, "`format` is no whole number"),
        ({"format": None}, "`format` is no whole number"),
    ],
)
def test_what_is_no_seal_is_damaged(wrong: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read({**WRITTEN, **wrong})


def test_s19_names_of_owner_and_group_stand_where_they_are_known() -> None:
    """S19."""
    known = SEAL.permissions._replace(user="anna", group="")
    written = document.RELEASE_SEAL.to_json(SEAL._replace(permissions=known))
    permissions = written["permissions"]
    assert isinstance(permissions, dict)
    assert (permissions["user"], "group" in permissions) == ("anna", False)
    assert document.RELEASE_SEAL.from_json(json.dumps(written).encode(), "").permissions == known
