"""`pins/<name>`: a reader's word that it reads a release, so that the release is not removed. Pure;
`dataset.pins` reads and writes the files."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.

from collections.abc import Mapping
from typing import NamedTuple

from penstock.core.documents import typed_json
from penstock.core.documents.typed_json import Document


class PinFile(NamedTuple):
    """Which release is read, by whom, and how it is known that the reading has ended."""

    release: str
    at: str
    """UTC, ISO 8601: when it was placed."""
    user: str = ""
    host: str = ""
    boot: str = ""
    namespace: str = ""
    """Of the process numbers, as in a lock."""
    pid: int = 0
    start: str = ""
    """In the kernel's ticks."""
    program: str = ""
    """The name of that process's program."""
    job: str = ""
    """The number of the job, where the kernel proves that the reader is in it."""
    cluster: str = ""
    restart: str = ""


class LastPin(NamedTuple):
    """Who pinned a release last, and when."""

    uid: int
    at: float  # seconds since the epoch, by the file system's clock


class LastPins(NamedTuple):
    """`last-pins.json` in the dataset's folder: what gc keeps of pins that it removes."""

    releases: Mapping[str, LastPin]


PIN = Document(PinFile, "a pin")
LAST_PINS = Document(LastPins, "who pinned releases last")


def from_json(raw: object) -> PinFile:
    """The pin of a file's parsed JSON; of a newer format what each format says: `release` and `at`. Raises
    ValueError for what is no pin."""
    if not isinstance(raw, dict) or not isinstance(raw.get("format"), int):
        raise ValueError("it is no pin")
    if newer(raw):
        raw = {name: raw.get(name) for name in ("release", "at")}
    return typed_json.read(PinFile, raw)


def newer(raw: object) -> int:
    """The format of a pin that a newer version placed; else 0."""
    number = raw.get("format") if isinstance(raw, dict) else None
    return number if isinstance(number, int) and number > PIN.newest else 0
