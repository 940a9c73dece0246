"""Documents on disk that other versions of penstock wrote: older ones are read, newer ones refused by name.

| what a document has                       | how it is read                                 |
|-------------------------------------------|------------------------------------------------|
| the format that this version writes       | as it is                                       |
| an older format, or none                  | a field that is missing has its default        |
| a field that this version does not know   | without it                                     |
| a newer format                            | not at all: `NewerFormatError`                 |

So a field that is added later needs a default that says what older documents meant, and a change that
older versions would misread needs a higher number.
"""

from __future__ import annotations

import penstock
from penstock.errors import NewerFormatError


def refuse_newer(what: str, found: object, newest: int, where: object, *, by: str = "") -> None:
    """Raises NewerFormatError where a document says that its format, `found`, is above `newest`. `what`
    names the kind of document for people, `where` is its path, `by` the version of penstock that wrote it,
    where the document says that."""
    if isinstance(found, int) and found > newest:
        raise NewerFormatError(
            f"{what} is of a newer format than this penstock reads",
            where=str(where),
            why=f"it has format {found}, penstock {penstock.__version__} reads up to {newest}",
            hint=f"a newer penstock is needed: use {_wrote(by)}, or a later one; nothing was changed",
        )


def _wrote(by: str) -> str:
    return f"{by}, which wrote it" if by else "the one that wrote it"
