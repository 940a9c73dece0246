"""A release as Croissant 1.0: accepted by mlcroissant, made without reading data, the same at each making."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.commands import penstock
from tests.support.croissant_reader import CroissantReader
from tests.support.go_servers import UnavailableError
from tests.support.published import data_of, publish, published, writable
from tests.support.seals import PLAIN
from tests.support.staging_runs import context_for, tree

from penstock.config.settings import DescribeConfig, PartyConfig, VerifyConfig
from penstock.core.errors import FindingsError
from penstock.core.model import Record
from penstock.core.seal import SealedManifest
from penstock.dataset.seals import Stored
from penstock.extras import croissant
from penstock.extras.croissant import PublishedRelease, ending_of, media_type
from penstock.keep import audit_step, release_supplements
from penstock.tables.manifest import Files, ManifestWriter
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.dataset.context import Context

ODD = os.fsdecode(b"odd/\xff.jpg")
FILES = {
    "train/a.jpg": b"a picture",
    "train/b b#%?.TXT": b"another",
    "labels.csv": b"file,label\na.jpg,cat\n",
    "deep/er/\u00fc[1].txt": b"text",
    "README": b"read me",
    ODD: b"odd",
}
BOTH = VerifyConfig(digests=("xxh3_128", "sha256"))
WORDS = DescribeConfig(
    name="Pictures",
    description="Two pictures, and what they show.",
    license=("https://spdx.org/licenses/CC-BY-4.0.html",),
    url="https://data.example.org/pictures",
    creators=(PartyConfig("A. Author", email="a@example.org"), PartyConfig("An Institute", "organization")),
    publisher=PartyConfig("A Library", "organization", "https://library.example.org"),
    keywords=("images", "labels"),
    cite_as="@misc{pictures}",
    languages=("en",),
)


@pytest.fixture(scope="module")
def mlcroissant() -> Iterator[CroissantReader]:
    try:
        reader = CroissantReader()
    except UnavailableError as error:
        pytest.skip(f"mlcroissant cannot be installed: {error}")
    yield reader
    reader.close()


def document(context: Context, release: str | None = None) -> str:
    return "".join(release_supplements.describe(context, "data", release).pieces)


def with_records(text: str, folder: Path, *sets: dict[str, Any]) -> Path:
    """The document with record sets, as somebody adds them who knows what is in the files."""
    written = {**json.loads(text), "recordSet": list(sets)}
    folder.chmod(0o750)  # the copy of a release is read-only, as that is
    path = folder / "with-records.json"
    path.write_text(json.dumps(written))
    return path


def field(record: str, **source: Any) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"{record}/value",
        "name": f"{record}/value",
        "dataType": "sc:Text",
        "source": source,
    }


def record_set(name: str, **source: Any) -> dict[str, Any]:
    return {"@type": "cr:RecordSet", "@id": name, "name": name, "field": [field(name, **source)]}


def test_mlcroissant_accepts_what_publish_wrote_and_finds_the_files_by_it(
    tmp_path: Path, mlcroissant: CroissantReader
) -> None:
    source = tree(tmp_path / "source", FILES)
    with published(tmp_path, source, verify=BOTH, describe=WORDS) as context:
        folder = data_of(context).parent
        text = (folder / "croissant.json").read_text()
        assert text == document(context)
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy)
    name = "data/train/b%20b%23%25%3F.TXT"
    rows = record_set("rows", fileObject={"@id": "data/labels.csv"}, extract={"column": "label"})
    names = record_set("names", fileObject={"@id": name}, extract={"fileProperty": "fullpath"})
    found = mlcroissant.read(with_records(text, copy, rows, names), ["rows", "names"])
    assert (found["errors"], found["warnings"]) == ([], [])
    assert (found["name"], found["url"]) == ("Pictures", "https://data.example.org/pictures")
    assert found["license"] == ["https://spdx.org/licenses/CC-BY-4.0.html"]
    assert found["creators"] == ["A. Author", "An Institute"]
    data = {k: v for k, v in found["objects"].items() if k.startswith("data/")}
    assert {url: (size, sha) for url, size, sha in data.values()} == {
        f"data/{path}": (f"{len(content)} B", hashlib.sha256(content).hexdigest())
        for path, content in FILES.items()
        if path != ODD
    }
    assert name in data
    # A name that is not UTF-8 cannot stand in JSON: its pattern does.
    assert found["sets"] == {"files-without-sha256": ["data/odd/?.jpg"]}
    assert found["records"]["rows"] == [{"rows/value": "cat"}]
    assert len(found["records"]["names"]) == 1
    seal = hashlib.sha256((folder / "release.json").read_bytes()).hexdigest()
    assert found["objects"]["release.json"][2] == seal
    assert set(found["objects"]) - set(data) == {
        "release.json",
        "manifest.parquet",
        "manifest.xxh128",
        "manifest.sha256",
    }
    # Where the bytes are others, mlcroissant finds it by the document.
    damaged = copy / "data/labels.csv"
    damaged.chmod(0o600)
    damaged.write_bytes(FILES["labels.csv"].replace(b"cat", b"dog"))
    with pytest.raises(AssertionError, match="is not identical with the reference"):
        mlcroissant.read(copy / "with-records.json", ["rows"])


def test_without_sha256_mlcroissant_finds_each_file_once_by_the_sets_of_media_types(
    tmp_path: Path, mlcroissant: CroissantReader
) -> None:
    files = {path: content for path, content in FILES.items() if path.lower().endswith((".csv", ".txt"))}
    source = tree(tmp_path / "source", files)
    with published(tmp_path, source, describe=replace(WORDS, license=())) as context:
        folder = data_of(context).parent
        text = (folder / "croissant.json").read_text()
        sets = {one["@id"]: one for one in json.loads(text)["distribution"] if one["@type"] == "cr:FileSet"}
        assert {name: one["encodingFormat"] for name, one in sets.items()} == {
            "files-text-csv": "text/csv",
            "files-text-plain": "text/plain",
        }
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy)
    records = [
        record_set(f"r{at}", fileSet={"@id": name}, extract={"fileProperty": "fullpath"})
        for at, name in enumerate(sets)
    ]
    found = mlcroissant.read(with_records(text, copy, *records), [one["@id"] for one in records])
    assert found["errors"] == []
    assert all("license" in one for one in found["warnings"])
    seen = [row[f"{name}/value"] for name, rows in found["records"].items() for row in rows]
    assert sorted(seen) == sorted(f"data/{path}" for path in files)


def test_names_without_a_known_ending_are_in_a_set_that_leaves_out_the_others(tmp_path: Path) -> None:
    with published(tmp_path, tree(tmp_path / "source", FILES), describe=WORDS) as context:
        sets = {one["@id"]: one for one in json.loads(document(context))["distribution"]}
    assert sets["files-others"]["includes"] == ["data/*", "data/**/*"]
    assert set(sets["files-others"]["excludes"]) >= {"data/*.jpg", "data/**/*.TXT", "data/*.csv"}


def test_a_release_of_many_files_is_described_by_media_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(croissant, "MOST_FILES", len(FILES) - 1)
    with published(tmp_path, tree(tmp_path / "source", FILES), verify=BOTH, describe=WORDS) as context:
        ids = [one["@id"] for one in json.loads(document(context))["distribution"]]
    assert not any(one.startswith("data/") for one in ids)
    assert "files-image-jpeg" in ids


def test_the_document_is_the_same_at_each_making_and_reads_no_data(tmp_path: Path) -> None:
    with published(tmp_path, tree(tmp_path / "source", FILES), verify=BOTH, describe=WORDS) as context:
        first = document(context)
        with writable(data_of(context).parent):
            tree_removal.remove_tree(data_of(context))
        assert document(context) == first


def test_without_a_section_the_command_describes_and_publish_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tree(tmp_path / "source", FILES)
    with published(tmp_path, source, verify=BOTH) as context:
        folder = data_of(context).parent
        assert not (folder / "croissant.json").exists()
        found = release_supplements.describe(context, "data", None)
        assert found.left_out == ["license", "url", "creators", "cite_as"]
    config = tmp_path / "config.yaml"
    config.write_text(f"target: {{root: {tmp_path}/target}}\ndatasets: {{data: {{source: {source}}}}}\n")
    done = penstock("--config", config, "describe", "data")
    assert done.returncode == 0, done.stderr
    assert "catalogues ask for more" in done.stderr
    assert "`license`, `url`, `creators`" in done.stderr
    printed = penstock("--config", config, "describe", "data", folder.name)
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout == done.stdout
    assert json.loads(printed.stdout)["name"] == "data"
    assert penstock("--config", config, "describe", "data", "nothing").returncode == 2


def test_a_description_beside_the_seal_is_no_extra_and_has_the_modes_of_the_manifests(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", FILES), describe=WORDS)
    try:
        publish(context)
        mode = data_of(context).parent.joinpath("croissant.json").stat().st_mode
        assert mode & 0o777 == 0o440
        assert audit_step.run(context, "data")["status"] == "PASSED"
    finally:
        context.cluster.close()


def test_a_manifest_that_was_not_sealed_describes_nothing(tmp_path: Path) -> None:
    with published(tmp_path, tree(tmp_path / "source", FILES)) as context:
        manifest = data_of(context).parent / "manifest.parquet"
        manifest.parent.chmod(0o700)
        manifest.chmod(0o600)
        manifest.write_bytes(manifest.read_bytes() + b" ")
        with pytest.raises(FindingsError, match="not the one that was sealed"):
            release_supplements.describe(context, "data", None)


@pytest.mark.parametrize(
    ("release", "version"),
    [
        ("20260314-5f0c2a91", "20260314.80509.0+20260314-5f0c2a91"),
        ("v2.0_final", "20260314.80509.0+v2.0-final"),
        ("a..b.", "20260314.80509.0+a.b"),
    ],
)
def test_the_version_is_semantic_and_rises_with_time(release: str, version: str) -> None:
    assert croissant.version(PLAIN._replace(release=release, sealed="2026-03-14T08:05:09Z")) == version


@pytest.mark.parametrize(
    ("path", "ending", "kind"),
    [
        ("a/b.jpg", "jpg", "image/jpeg"),
        ("a.tar.GZ", "GZ", "application/gzip"),
        ("a.b/c", "", "application/octet-stream"),
        (".hidden", "", "application/octet-stream"),
        ("x.", "", "application/octet-stream"),
        ("x.weird", "weird", "application/octet-stream"),
    ],
)
def test_media_types_follow_the_ending(path: str, ending: str, kind: str) -> None:
    assert (ending_of(path), media_type(ending)) == (ending, kind)


def test_memory_does_not_grow_with_the_files(tmp_path: Path) -> None:
    """90,000 names with endings of their own take 0.3 MB more than 30,000, at most."""

    def peak(count: int) -> int:
        folder = tmp_path / str(count)
        folder.mkdir()
        with ManifestWriter(folder / "manifest.parquet") as writer:
            for start in range(0, count, 1000):
                one = (
                    "",
                    "xxh3_128:" + "0" * 32,
                    1,
                    "k",
                    "t",
                    "",
                    0,
                    "",
                    "",
                    "cold",
                    "direct",
                    "",
                    "",
                    "",
                    1,
                    1,
                )
                rows = [Record(f"f{at:07d}.e{at}", 1, *one[1:]) for at in range(start, start + 1000)]
                writer.add(Files.of(rows))
            digest = writer.finish()
        (folder / "release.json").write_text("{}")
        seal = PLAIN._replace(files=count, manifests={"manifest.parquet": SealedManifest(digest)})
        release = PublishedRelease(folder, Stored(seal, digest), WORDS)
        list(croissant.pieces(release))
        tracemalloc.start()
        for _ in croissant.pieces(release):
            pass
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    small = peak(30_000)
    assert peak(90_000) < small + 300_000
