"""The media type of a file, by the ending of its name.

An own table, and not that of the machine (`mimetypes` reads /etc/mime.types): the description of a release is
the same wherever it is made. Where Croissant has a name of its own for a type (mlcroissant's
`EncodingFormat`), that name stands here. Pure; `extras.croissant` calls it.
"""

from __future__ import annotations

UNKNOWN = "application/octet-stream"
"""The type of a file whose ending the table does not have."""

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
    """What stands behind the last point of a file's name, as it is written; "" without one."""
    stem, point, ending = path.rpartition("/")[2].rpartition(".")
    return ending if stem and point else ""


def media_type(ending: str) -> str:
    """By the ending, in capitals or not; `UNKNOWN` where the table has none."""
    return _BY_ENDING.get(ending.lower(), UNKNOWN)
