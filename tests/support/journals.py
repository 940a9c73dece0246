"""Lines of journals as attempts write them."""

from __future__ import annotations

from penstock.core.model import Copied, of_hex
from penstock.core.row_codec import copied_line


def row_line(row: int, digest: str, grade: str, proof: str) -> str:
    """Of a row that was copied; a plain digest by its 32 hex digits."""
    return copied_line(Copied(row, of_hex(digest), grade, proof))


def link_line(row: int, digest: str, grade: str, proof: str, *, host: str = "", staging: str = "") -> str:
    """Of a row that was linked, or taken over."""
    return copied_line(Copied(row, digest, grade, proof, host, linked=True, staging=staging))
