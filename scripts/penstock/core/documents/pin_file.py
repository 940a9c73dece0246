"""`pins/<name>`: a reader declares that it reads a release, so that the release is not removed."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.

from collections.abc import Mapping
from typing import NamedTuple

from penstock.core.documents import typed_json
from penstock.core.documents.typed_json import Document


class PinFile(NamedTuple):
    """The release that is read, the reader, and how the end of the reading is recognised."""

    release: str
    at: str  # UTC, ISO 8601: when it was placed
    user: str = ""
    host: str = ""
    boot: str = ""
    namespace: str = ""  # of the process numbers, as in a lock
    pid: int = 0
    start: str = ""  # in the kernel's ticks
    program: str = ""  # name of that process's program
    job: str = ""  # the job's number, if the kernel proves that the reader is in it
    cluster: str = ""
    restart: str = ""


class LastPin(NamedTuple):
    """The last reader that pinned a release."""

    uid: int
    at: float  # seconds since the epoch, by the file system's clock


class LastPins(NamedTuple):
    """`last-pins.json` in the dataset's folder: what gc keeps of pins that it removes."""

    releases: Mapping[str, LastPin]


PIN = Document(PinFile, "a pin")
LAST_PINS = Document(LastPins, "who pinned releases last")


def from_json(raw: object) -> PinFile:
    """Return the pin of parsed JSON; of a newer format `release` and `at` alone. Raises ValueError."""
    if not isinstance(raw, dict) or not isinstance(raw.get("format"), int):
        raise ValueError("it is no pin")
    if newer(raw):
        raw = {name: raw.get(name) for name in ("release", "at")}
    return typed_json.read(PinFile, raw)


def newer(raw: object) -> int:
    """Return the format of a newer version's pin; else 0."""
    number = raw.get("format") if isinstance(raw, dict) else None
    return number if isinstance(number, int) and number > PIN.newest else 0
