"""Reads documents of earlier versions, and refuses those of later ones by name.

| what a document has                       | how it is read                                 |
|-------------------------------------------|------------------------------------------------|
| the format that this version writes       | as it is                                       |
| a lower format                            | a field that is missing has its default        |
| a field that this version does not know   | without it                                     |
| a higher format                           | not at all: `NewerFormatError`                 |

Every kind of document begins at format 1. An added field needs a default, which says what documents without
it meant. A change that earlier versions would misread needs a higher number.
"""

from __future__ import annotations

import penstock
from penstock.core.errors import NewerFormatError, OlderVersionError


def refuse_unreleased(what: str, where: object, by: str) -> None:
    """Raise OlderVersionError for documents of versions before 1.0: their formats had other meanings."""
    if by.startswith("0."):
        raise OlderVersionError(
            f"{what} is of a penstock before 1.0",
            where=str(where),
            why=f"penstock {by} wrote it, and nothing was changed",
            hint="its owner moves the dataset aside, and stages it anew by `penstock run`, or makes a "
            "release of its files by `penstock adopt --seal`",
        )


def refuse_newer(what: str, number: object, newest: int, where: object, *, by: str = "") -> None:
    """Raise NewerFormatError if the format `number` is above `newest`. `what` names the kind of document for
    people; `by` is the version that wrote it, if known."""
    if isinstance(number, int) and number > newest:
        raise NewerFormatError(
            f"{what} is of a newer format than this penstock reads",
            where=str(where),
            why=f"it has format {number}, penstock {penstock.__version__} reads up to {newest}",
            hint=f"a newer penstock is needed: use {_wrote(by)}, or a later one; nothing was changed",
        )


def _wrote(by: str) -> str:
    return f"{by}, which wrote it" if by else "the one that wrote it"
