"""A release as Croissant 1.0 (https://docs.mlcommons.org/croissant/docs/croissant-spec.html), JSON-LD that
dataset catalogues index and mlcroissant loads. Also the media types in it, and the file beside the seal.
"""

from __future__ import annotations

import json
import re
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote_from_bytes

from penstock.core.human import is_utf8
from penstock.core.layout import CROISSANT, DATA, EMPTY_FOLDERS, MANIFEST, MANIFEST_SHA256, MANIFEST_XXH, SEAL
from penstock.core.model import listed, value_of
from penstock.dataset import seals
from penstock.fs import small_files
from penstock.tables.manifest import read_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.config.settings import DescribeConfig, PartyConfig
    from penstock.core.seal import Seal, SealedManifest
    from penstock.dataset.seals import Stored


# The media type of a file, by the ending of its name.
#
# This table replaces the machine's table (`mimetypes` reads /etc/mime.types), so that a description is equal
# on every machine. Croissant's own names for types (mlcroissant's `EncodingFormat`) are preferred.

UNKNOWN = "application/octet-stream"  # type of a file whose ending is not in the table

_BY_TYPE = {
    "application/dicom": "dcm dicom",
    "application/gzip": "gz tgz",
    "application/json": "json geojson ipynb",
    "application/jsonlines": "jsonl ndjson jsonlines",
    "application/pdf": "pdf",
    "application/vnd.apache.arrow.file": "arrow feather",
    "application/vnd.apache.orc": "orc",
    "application/vnd.apache.avro": "avro",
    "application/vnd.sqlite3": "sqlite sqlite3 db",
    "application/x-7z-compressed": "7z",
    "application/x-bzip2": "bz2",
    "application/x-hdf5": "h5 hdf5 hdf",
    "application/x-netcdf": "nc",
    "application/x-npy": "npy",
    "application/x-npz": "npz",
    "application/x-parquet": "parquet pq",
    "application/x-tar": "tar",
    "application/x-tfrecord": "tfrecord tfrecords",
    "application/x-xz": "xz",
    "application/xml": "xml",
    "application/yaml": "yaml yml",
    "application/zip": "zip",
    "application/zstd": "zst",
    "audio/flac": "flac",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg oga opus",
    "audio/wav": "wav",
    "image/bmp": "bmp",
    "image/gif": "gif",
    "image/jpeg": "jpg jpeg",
    "image/png": "png",
    "image/svg+xml": "svg",
    "image/tiff": "tif tiff",
    "image/webp": "webp",
    "text/csv": "csv",
    "text/html": "html htm",
    "text/markdown": "md",
    "text/plain": "txt log",
    "text/tab-separated-values": "tsv",
    "text/x-fasta": "fa fasta",
    "text/x-python": "py",
    "video/mp4": "mp4 m4v",
    "video/quicktime": "mov",
    "video/webm": "webm",
    "video/x-matroska": "mkv",
    "video/x-msvideo": "avi",
}
_BY_ENDING = {ending: kind for kind, endings in _BY_TYPE.items() for ending in endings.split()}


def ending_of(path: str) -> str:
    """Return the part of a file's name after its last dot, or ""."""
    stem, point, ending = path.rpartition("/")[2].rpartition(".")
    return ending if stem and point else ""


def media_type(ending: str) -> str:
    """Return the type of an ending in any case, or `UNKNOWN`."""
    return _BY_ENDING.get(ending.lower(), UNKNOWN)


class PublishedRelease(NamedTuple):
    folder: Path  # folder of the release or its staging, with `data/` and the manifests
    stored: Stored
    words: DescribeConfig


# A release as Croissant 1.0 (https://docs.mlcommons.org/croissant/docs/croissant-spec.html), JSON-LD that
# catalogues index and mlcroissant loads.
#
# It is made only from seal and manifest, so a release and a configuration always give the same document.
# Paths are relative to the release's folder, which contains `croissant.json`.
#
# | the release                                       | its files are                                       |
# |---------------------------------------------------|-----------------------------------------------------|
# | has `manifest.sha256`, and at most                | a FileObject each, with size and SHA-256 (files     |
# | MOST_FILES files                                  | without a plain SHA-256, or whose name is not UTF-8,|
# |                                                   | are named by a FileSet)                             |
# | any other                                         | a FileSet for each media type, by their endings     |
#
# A FileObject needs a checksum that others can compute, and Croissant does not know XXH3. A reader
# (mlcroissant 1.1) has the whole document in memory. Seal and manifests are always FileObjects, so the
# description leads to the proof: the seal has the manifest's digest, and the manifest has the digest of each
# file.

CONFORMS_TO = "http://mlcommons.org/croissant/1.0"
MOST_FILES = 10_000  # a larger release is described by media type, not by file
# Most endings of names that are distinguished, since unknown endings may be as many as files.
ENDINGS = 256

Json = dict[str, object]

_CONTEXT: Json = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "excludes": "cr:excludes",
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
_WILD = re.compile(r"([*?[])")
_PLAIN_ENDING = re.compile(r"[A-Za-z0-9_+-]{1,16}")
_BESIDE = {
    MANIFEST: (
        "application/x-parquet",
        "A row for each file: size, digests, where it came from, how proven.",
    ),
    MANIFEST_XXH: ("text/plain", "XXH3-128 of the files, for `xxhsum -c`."),
    MANIFEST_SHA256: ("text/plain", "SHA-256 of the files, for `sha256sum -c`."),
    EMPTY_FOLDERS: ("application/json", "The folders that hold nothing."),
}


def pieces(release: PublishedRelease) -> Iterator[str]:
    """Yield the document in pieces of ASCII, so that memory does not grow with the number of files. Raises
    FailedError for an unreadable manifest."""
    head = json.dumps(_head(release), indent=1)
    yield head.removesuffix("\n}") + ',\n "distribution": ['
    between = "\n  "
    for entry in chain(_beside(release), _data(release)):
        yield between + json.dumps(entry)
        between = ",\n  "
    yield "\n ]\n}\n"


def left_out(words: DescribeConfig, seal: Seal) -> list[str]:
    """List the missing keys of the description that Croissant requires, or that catalogues show first."""
    values = {
        "license": words.license,
        "url": words.url or _web_source(seal),
        "creators": words.creators,
        "cite_as": words.cite_as,
    }
    return [name for name, value in values.items() if not value]


def _head(release: PublishedRelease) -> Json:
    seal, words = release.stored.seal, release.words
    document: Json = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": words.name or seal.dataset,
        "description": words.description or _plain_words(seal),
        "version": version(seal),
        "datePublished": seal.sealed[:10],
        "license": _one_or_all(words.license),
        "url": words.url or _web_source(seal),
        "creator": _one_or_all([_party(creator) for creator in words.creators]),
        "publisher": _party(words.publisher) if words.publisher else None,
        "keywords": list(words.keywords),
        "citeAs": words.cite_as,
        "inLanguage": _one_or_all(words.languages),
        "isBasedOn": _one_or_all([source.url for source in seal.sources]),
    }
    return {name: value for name, value in document.items() if value}


def version(seal: Seal) -> str:
    """Return a version for Croissant, `MAJOR.MINOR.PATCH+BUILD` of Semantic Versioning. It is the seal's day
    and time, so that later releases are higher, and the release's name."""
    day, _, hour = seal.sealed.rstrip("Z").partition("T")
    build = re.sub(r"[^0-9A-Za-z.-]", "-", seal.release)
    build = ".".join(filter(None, build.split(".")))
    return f"{int(day.replace('-', '') or 0)}.{int(hour.replace(':', '') or 0)}.0+{build}"


def _plain_words(seal: Seal) -> str:
    return (
        f"Release {seal.release} of the dataset {seal.dataset}: {seal.files} files, {seal.bytes} bytes, "
        f"staged and verified by penstock {seal.penstock}."
    )


def _web_source(seal: Seal) -> str | None:
    """Return the web page of a dataset that comes from the web."""
    urls = [source.url for source in seal.sources]
    return urls[0] if len(urls) == 1 and urls[0].startswith(("https://", "http://")) else None


def _one_or_all(values: Sequence[object]) -> object:
    return values[0] if len(values) == 1 else list(values)


def _party(party: PartyConfig) -> Json:
    kind = "sc:Organization" if party.kind == "organization" else "sc:Person"
    fields = {"@type": kind, "name": party.name, "url": party.url, "email": party.email}
    return {name: value for name, value in fields.items() if value}


def _beside(release: PublishedRelease) -> Iterator[Json]:
    """Describe seal and manifests."""
    stored = release.stored
    size = (release.folder / SEAL).stat().st_size
    what = "The seal of the release: counts, digests of the manifests, evidence."
    yield {
        **_object(SEAL, "application/json", stored.digest),
        "description": what,
        "contentSize": f"{size} B",
    }
    for name, (kind, what) in _BESIDE.items():
        sealed: SealedManifest | None = stored.seal.manifests.get(name)
        if sealed is None:
            continue
        file_object = {**_object(name, kind, sealed.sha256), "description": what}
        if sealed.bytes is not None:
            file_object["contentSize"] = f"{sealed.bytes} B"
        yield file_object


def _object(path: str, kind: str, sha256: str) -> Json:
    return {
        "@type": "cr:FileObject",
        "@id": quote_from_bytes(path.encode()),
        "name": path.removeprefix(f"{DATA}/"),
        "contentUrl": path,
        "encodingFormat": kind,
        "sha256": sha256.removeprefix("sha256:"),
    }


def _data(release: PublishedRelease) -> Iterator[Json]:
    seal = release.stored.seal
    if MANIFEST_SHA256 in seal.manifests and seal.files <= MOST_FILES:
        yield from _each_file(release)
    else:
        yield from _sets(release)


def _each_file(release: PublishedRelease) -> Iterator[Json]:
    others: list[str] = []
    for files in read_files(release.folder / MANIFEST, columns=("path", "size", "digests")):
        for path, size, digests in zip(files["path"], files["size"], files["digests"], strict=True):
            sha256 = value_of(listed(digests), "sha256")
            name = f"{DATA}/{path}"
            if sha256 is None or not is_utf8(name):
                others.append(name)
                continue
            yield {**_object(name, media_type(ending_of(path)), sha256), "contentSize": f"{size} B"}
    if others:
        yield _set("files-without-sha256", [UNKNOWN], map(_exactly, others))


def _sets(release: PublishedRelease) -> Iterator[Json]:
    endings, rest = _endings(release)
    by_type: dict[str, list[str]] = {}
    for ending in sorted(endings):
        by_type.setdefault(media_type(ending), []).append(ending)
    for kind, several in sorted(by_type.items()):
        yield _set(f"files-{re.sub('[^a-z0-9]+', '-', kind)}", [kind], _globs(several))
    if rest:
        covered = list(_globs(sorted(endings)))
        others = _set("files-others", [UNKNOWN], [f"{DATA}/*", f"{DATA}/**/*"])
        yield {**others, "excludes": covered} if covered else others


def _endings(release: PublishedRelease) -> tuple[set[str], bool]:
    """Return the endings of all names, and whether some names have none of these endings."""
    endings: set[str] = set()
    rest = False
    for files in read_files(release.folder / MANIFEST, columns=("path",)):
        for ending in sorted(set(map(ending_of, files["path"])) - endings):
            if _PLAIN_ENDING.fullmatch(ending) and len(endings) < ENDINGS:
                endings.add(ending)
            else:
                rest = True
    return endings, rest


def _set(name: str, kinds: Sequence[str], includes: Iterator[str] | Sequence[str]) -> Json:
    return {
        "@type": "cr:FileSet",
        "@id": name,
        "name": name,
        "encodingFormat": _one_or_all(kinds),
        "includes": list(includes),
    }


def _globs(endings: Sequence[str]) -> Iterator[str]:
    """Yield patterns for readers whose `*` crosses folders, and for others."""
    for ending in endings:
        yield from (f"{DATA}/*.{ending}", f"{DATA}/**/*.{ending}")


def _exactly(path: str) -> str:
    """Return the pattern for a single path, with `?` for each byte that is not UTF-8."""
    return re.sub("[\udc80-\udcff]", "?", _WILD.sub(r"[\1]", path))


def write(folder: Path, words: DescribeConfig | None) -> None:
    """Write the document durably into a sealed staging, or remove it if `words` is None. Raises OSError,
    FailedError, or ValueError for a damaged seal."""
    if words is None:
        (folder / CROISSANT).unlink(missing_ok=True)
        return
    release = PublishedRelease(folder, seals.in_folder(folder), words)
    with small_files.Growing(folder / CROISSANT) as file:
        for piece in pieces(release):
            file.stream.write(piece.encode())
        file.close()
