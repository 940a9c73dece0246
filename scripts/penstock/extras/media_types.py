"""The media type of a file, by the ending of its name.

This table replaces the machine's (`mimetypes` reads /etc/mime.types), so that a description is the same
wherever it is made. Croissant's own names for types (mlcroissant's `EncodingFormat`) go first.
"""

from __future__ import annotations

UNKNOWN = "application/octet-stream"  # of a file whose ending is not in the table

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
    """Return what follows the last point of a file's name, or ""."""
    stem, point, ending = path.rpartition("/")[2].rpartition(".")
    return ending if stem and point else ""


def media_type(ending: str) -> str:
    """Return the type of an ending in any case, or `UNKNOWN`."""
    return _BY_ENDING.get(ending.lower(), UNKNOWN)
