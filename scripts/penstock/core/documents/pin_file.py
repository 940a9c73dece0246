"""`pins/<name>`: a reader's word that it reads a release."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.

from typing import NamedTuple

from penstock.core.documents import typed_json

FORMAT = 1


class PinFile(NamedTuple):
    """Which release is read, by whom, and how it is known that the reading has ended."""

    release: str
    at: str
    """UTC, ISO 8601: when it was placed."""
    until: str = ""
    """The end that the reader gave; "" where job or process say it."""
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


def to_json(pin: PinFile) -> dict[str, object]:
    return typed_json.to_json(pin, FORMAT)


def from_json(raw: object) -> PinFile:
    """Of a posting's value. Raises ValueError for what is none, of a newer format, too."""
    if not isinstance(raw, dict) or not isinstance(raw.get("format"), int) or raw["format"] > FORMAT:
        raise ValueError("it is no pin of a format that this version reads")
    return typed_json.read(PinFile, raw)
