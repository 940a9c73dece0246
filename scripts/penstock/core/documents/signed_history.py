"""`history-signed.json`: up to where a dataset's history is signed, and the signature.

Signed are the bytes of `statement`. The file is durable before the line that it is made for, so that a line
behind what is signed is never one of a penstock that was killed.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
import json
from typing import NamedTuple

from penstock.core.documents import typed_json

FORMAT = 1


class Extent(NamedTuple):
    """A history, from its beginning."""

    bytes: int = 0
    sha256: str = ""
    """`sha256:<hex>` of these bytes."""


class SignedHistory(NamedTuple):
    dataset: str
    at: str
    """When it was signed, UTC, ISO 8601."""
    whole: Extent
    """With the line that was about to be written."""
    before: Extent
    """Without it: a penstock that was killed left this."""
    signature: str = ""
    """As `ssh-keygen -Y sign` makes it, of `statement`."""


def statement(history: SignedHistory) -> bytes:
    """What is signed: all fields but the signature, as canonical JSON with a line feed."""
    said = to_json(history)
    del said["signature"]
    return json.dumps(said, sort_keys=True, ensure_ascii=True).encode() + b"\n"


def to_json(history: SignedHistory) -> dict[str, object]:
    return typed_json.to_json(history, FORMAT)


def from_json(content: bytes, where: object) -> SignedHistory:
    """Of the file's bytes, `where` is its path. Raises NewerFormatError, and ValueError for anything
    else."""
    return typed_json.parse(SignedHistory, content, "the signature of a dataset's history", FORMAT, where)
