"""Digests and proofs as rows, journals and manifests spell them, and the one place that takes them apart.
Pure.

| text                             | what it is                                                              |
|----------------------------------|-------------------------------------------------------------------------|
| `xxh3_128:<32 hex>`              | of a file's bytes, or of those of one part of a giant                   |
| `xxh3_128/<part bytes>:<32 hex>` | of a giant: XXH3 over the 16-byte digests of its parts, in order        |
| `parts/<part bytes>:<32 hex>`    | the same in a journal, of a file that was copied in parts and is none   |
|                                  | of the plan's giants: verify reads it and makes its own digest          |
| `sha256:<64 hex>` and others     | further digests of the whole file, if configured                        |
| `<grade> <checksum>`             | a `Proof`                                                               |

Rows keep the texts, since a shard has hundreds of thousands of them; what needs a part of one parses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

XXH3 = "xxh3_128"
PLAIN = f"{XXH3}:"
"""What the digest of a file or of one part begins with."""
PARTS = "parts"
"""In place of the algorithm of a giant's digest: of a file that was copied in parts."""
IN_PARTS = f"{PARTS}/"
STRONG_CHECKSUM = "^(md5|sha1|sha256|sha512|xxh3_128):full:[0-9a-f]+$"
"""A pattern: the checksums (`core.model.SourceChecksum`) by which two files of the same size are known to
hold the same bytes, whatever their names. A CRC of 32 or 64 bits does not do among a million files."""
DIGEST_BYTES = 16
"""Bytes of one digest in `Record.parts`."""


class Digest(NamedTuple):
    """`str(digest)` is the text in a row."""

    algorithm: str
    """`xxh3_128`, `sha256`, ..., or `parts`."""
    value: str
    """Hexadecimal, lower case."""
    part_bytes: int = 0
    """Above 0: over the digests of parts of so many bytes each, but for the last."""

    def __str__(self) -> str:
        kind = f"{self.algorithm}/{self.part_bytes}" if self.part_bytes else self.algorithm
        return f"{kind}:{self.value}"

    @classmethod
    def parse(cls, text: str) -> Digest:
        """The inverse of `str(digest)`. Raises ValueError where the size of the parts is no number."""
        kind, _, value = text.partition(":")
        algorithm, _, part_bytes = kind.partition("/")
        return cls(algorithm, value, int(part_bytes or 0))


def hex_of(text: str) -> str:
    """The digest of a file or of one part by its 32 hex digits alone; others as they are."""
    return text.removeprefix(PLAIN)


def of_hex(text: str) -> str:
    """The inverse of `hex_of`."""
    return text if ":" in text else PLAIN + text


def is_plain(text: str) -> bool:
    """Whether a digest is over the bytes of a file, or of one part, themselves; else over digests of
    parts."""
    return text.startswith(PLAIN)


def is_in_parts(text: str) -> bool:
    """Whether a digest is that of a file that was copied in parts, as a journal has it."""
    return text.startswith(IN_PARTS)


def values(texts: Sequence[str], algorithm: str) -> list[str] | None:
    """The hex digits of digests that are all over all bytes and of this algorithm; None where one is not."""
    mark = f"{algorithm}:"
    if not all(text.startswith(mark) for text in texts):
        return None
    return [text[len(mark) :] for text in texts]


def value_of(digests: Iterable[Digest], algorithm: str) -> str | None:
    """The hex digits of the first that is over all bytes and of this algorithm; None where there is none."""
    return next((one.value for one in digests if one.algorithm == algorithm and not one.part_bytes), None)


def listed(text: str) -> list[Digest]:
    """The digests of a text that separates them by blanks. Raises as `Digest.parse`."""
    return list(map(Digest.parse, text.split()))


def as_giant(in_parts: str) -> str:
    """The digest of a file that was copied in parts, as that of a giant."""
    return str(Digest.parse(in_parts)._replace(algorithm=XXH3))


def as_in_parts(tree: Digest) -> str:
    """The inverse of `as_giant`."""
    return str(tree._replace(algorithm=PARTS))


def part_of(parts: bytes, number: int) -> bytes:
    """The raw digest of part `number`, from 0, out of `Record.parts`."""
    return parts[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]


class Proof(NamedTuple):
    """What a checksum of the source proved of a row, or what it proves once verify has read the row."""

    grade: str
    """One of `core.grades.SOURCE_GRADES`."""
    checksum: str
    """`str(SourceChecksum)`."""

    def __str__(self) -> str:
        return f"{self.grade} {self.checksum}"

    @classmethod
    def parse(cls, text: str) -> Proof:
        """The inverse of `str(proof)`."""
        grade, _, checksum = text.partition(" ")
        return cls(grade, checksum)


def proof_text(checksum: str, owed: Proof | None) -> str:
    """How journals and plans spell the proof of a copied row: the source checksum that held
    (`Copied.source_proof`), or with its grade the one that only verify can compare (`Copied.owed`)."""
    return checksum if owed is None else str(owed)


def proof_of(text: str) -> tuple[str, Proof | None]:
    """The inverse of `proof_text`."""
    return ("", Proof.parse(text)) if " " in text else (text, None)
