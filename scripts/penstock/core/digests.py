"""Digests and proofs as text in rows, journals and manifests, and their only parser.

| text                             | what it is                                                              |
|----------------------------------|-------------------------------------------------------------------------|
| `xxh3_128:<32 hex>`              | of a file's bytes, or of those of one part of a giant                   |
| `xxh3_128/<part bytes>:<32 hex>` | of a giant: XXH3 over the 16-byte digests of its parts, in order        |
| `parts/<part bytes>:<32 hex>`    | the same in a journal, of a file copied in parts that is not a giant of |
|                                  | the plan: verify reads it and makes its own digest                      |
| `sha256:<64 hex>` and others     | further digests of the whole file, if configured                        |
| `<grade> <checksum>`             | a `Proof`                                                               |

Rows keep the texts unparsed, since a shard has hundreds of thousands of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

XXH3 = "xxh3_128"
PLAIN = f"{XXH3}:"  # begins the digest of a file or of one part
PARTS = "parts"  # in place of the algorithm: digest of a file copied in parts
IN_PARTS = f"{PARTS}/"
# Pattern of checksums (`core.model.SourceChecksum`) that identify the bytes of files of equal size, whatever
# their names. A CRC of 32 or 64 bits is too weak for a million files.
STRONG_CHECKSUM = "^(md5|sha1|sha256|sha512|xxh3_128):full:[0-9a-f]+$"
DIGEST_BYTES = 16  # of one digest in `Record.parts`


class Digest(NamedTuple):
    """`str(digest)` is the text in a row."""

    algorithm: str  # `xxh3_128`, `sha256`, ..., or `parts`
    value: str  # hexadecimal, lower case
    part_bytes: int = 0  # above 0: over the digests of parts of this size; the last may be smaller

    def __str__(self) -> str:
        kind = f"{self.algorithm}/{self.part_bytes}" if self.part_bytes else self.algorithm
        return f"{kind}:{self.value}"

    @classmethod
    def parse(cls, text: str) -> Digest:
        """Parse `str(digest)`. Raises ValueError if the part size is no number."""
        kind, _, value = text.partition(":")
        algorithm, _, part_bytes = kind.partition("/")
        return cls(algorithm, value, int(part_bytes or 0))


def hex_of(text: str) -> str:
    """Return the 32 hex digits of a file's or a part's digest; other texts unchanged."""
    return text.removeprefix(PLAIN)


def of_hex(text: str) -> str:
    """Invert `hex_of`."""
    return text if ":" in text else PLAIN + text


def is_plain(text: str) -> bool:
    """Return whether a digest is over the bytes of a file or part themselves, not over digests of parts."""
    return text.startswith(PLAIN)


def is_in_parts(text: str) -> bool:
    """Return whether a journal's digest is of a file copied in parts."""
    return text.startswith(IN_PARTS)


def values(texts: Sequence[str], algorithm: str) -> list[str] | None:
    """Return the hex digits of the digests; None: one is of another algorithm, or over parts."""
    mark = f"{algorithm}:"
    if not all(text.startswith(mark) for text in texts):
        return None
    return [text[len(mark) :] for text in texts]


def value_of(digests: Iterable[Digest], algorithm: str) -> str | None:
    """Return the hex digits of the first digest of this algorithm over all bytes; None: none is."""
    return next(
        (digest.value for digest in digests if digest.algorithm == algorithm and not digest.part_bytes), None
    )


def listed(text: str) -> list[Digest]:
    """Parse digests separated by blanks. Raises as `Digest.parse`."""
    return list(map(Digest.parse, text.split()))


def as_giant(in_parts: str) -> str:
    """Return the digest of a file copied in parts as that of a giant."""
    return str(Digest.parse(in_parts)._replace(algorithm=XXH3))


def as_in_parts(tree: Digest) -> str:
    """Invert `as_giant`."""
    return str(tree._replace(algorithm=PARTS))


def part_of(parts: bytes, number: int) -> bytes:
    """Return the raw digest of part `number`, from 0, of `Record.parts`."""
    return parts[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]


class Proof(NamedTuple):
    """What a source checksum proved of a row, or will prove once verify has read it."""

    grade: str  # one of `core.grades.SOURCE_GRADES`
    checksum: str  # `str(SourceChecksum)`

    def __str__(self) -> str:
        return f"{self.grade} {self.checksum}"

    @classmethod
    def parse(cls, text: str) -> Proof:
        """Parse `str(proof)`."""
        grade, _, checksum = text.partition(" ")
        return cls(grade, checksum)


def proof_text(checksum: str, owed: Proof | None) -> str:
    """Return a copied row's proof as journals and plans write it: the checksum that held
    (`Copied.source_proof`), or the grade and checksum that only verify can compare (`Copied.owed`)."""
    return checksum if owed is None else str(owed)


def proof_of(text: str) -> tuple[str, Proof | None]:
    """Invert `proof_text`."""
    return ("", Proof.parse(text)) if " " in text else (text, None)
