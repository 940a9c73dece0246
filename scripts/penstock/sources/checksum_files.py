"""Parses checksum files beside the data, made by coreutils, BSD or `openssl dgst`.

The accepted lines and names are those of `sha256sum -c` (coreutils, `split_3`):

    <hex>  <name>     <hex> *<name>      a blank, then a blank or `*`
    <hex> <name>      <hex>TAB<name>     "BSD reversed": all lines of a file, or none
    SHA256 (<name>) = <hex>              BSD, `--tag`, and openssl: `SHA2-256(<name>)= <hex>`

Blanks and tabs may precede a line, and a carriage return may end it. A leading backslash marks an escaped
name. Hexadecimal digits may be in upper or lower case.
"""

from __future__ import annotations

import codecs
import os
import posixpath
import re
from typing import TYPE_CHECKING

from penstock.core.errors import ObjectError, TransientError
from penstock.core.human import in_quotes
from penstock.core.model import Entry, SourceChecksum
from penstock.sources.port import reading

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.core.model import Listed
    from penstock.sources.port import Source

LARGEST = 1 << 30  # bytes in one checksum file, at most
_BY_LENGTH = {32: "md5", 40: "sha1", 64: "sha256", 128: "sha512"}
_NAMED = {
    "md5": "md5",
    "sha1": "sha1",
    "sha256": "sha256",
    "sha512": "sha512",
    "sha2256": "sha256",
    "sha2512": "sha512",
    "xxh128": "xxh3_128",
    "xxh3_128": "xxh3_128",
    "xxh64": "xxh64",
    "crc32c": "crc32c",
}
# Algorithms by preference. Cheap algorithms that also prove a giant (a file copied in parts) come first, weak
# algorithms last.
_ORDER = ("xxh3_128", "xxh64", "crc32c", "sha256", "sha512", "sha1", "md5")
_GNU = re.compile(r"[ \t]*(\\?)([0-9a-fA-F]{8,128})[ \t](.+)", re.DOTALL)
_BSD = re.compile(r"[ \t]*(\\?)([A-Za-z0-9_/-]+) ?\((.+)\)[ \t]*=[ \t]*([0-9a-fA-F]{8,128})", re.DOTALL)
_ESCAPED = re.compile(r"(?:[^\\]|\\[\\nr])+", re.DOTALL)
# Names, in lines and in the names of files, of algorithms that penstock does not compute. Some of their
# checksums are as long as those of supported algorithms.
_OTHER = re.compile(
    r"b[23]sum|blake-?[23][bs]?p?|sha-?3(?![0-9])|sha-?(?:224|384)|sha-?512[-_/]?t?(?:224|256)|shake|keccak"
    r"|xxh3(?!_128)|xxh32|crc-?32(?!c)|crc-?64|cksum|adler|ripemd|rmd-?160|whirlpool|tiger|md[24]|sm3|gost|k12|skein"
)
# {byte order mark: encoding}. Of two marks that begin alike, the longer comes first.
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_SIGNED = re.compile(
    r"\s*-----BEGIN PGP SIGNED MESSAGE-----[ \t]*\r?\n(?:[A-Za-z]+: [^\n]*\n)*[ \t]*\r?\n(.*\n)"
    r"-----BEGIN PGP SIGNATURE-----.*\n-----END PGP SIGNATURE-----\s*",
    re.DOTALL,
)
_BARE = re.compile(r"([0-9a-fA-F]{32,128})\s*")


def parse(text: str, key: str) -> dict[str, SourceChecksum]:
    """Parse the checksum file at `key` into {key of an object: checksum}.

    Names are relative to the file's own folder. A single checksum without a name is of the object whose key
    is `key` without its last suffix (`a.tar.sha256`). Raises ObjectError for an unreadable line.
    """
    folder = key.rpartition("/")[0]
    hint = _algorithm_hint(key)
    checksums: dict[str, SourceChecksum] = {}
    bare = _BARE.fullmatch(text)
    if bare and "." in key.rpartition("/")[2]:
        return {key.rpartition(".")[0]: _checksum(bare[1], hint, key)}
    reversed_form: bool | None = None
    # `splitlines` would also split at other separators, which names may contain.
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        if not line or line.startswith(("#", ";")):
            continue
        if match := _BSD.fullmatch(line):
            escaped, name, value, algorithm = match[1], match[3], match[4], _of_label(match[2], key)
        elif match := _GNU.fullmatch(line):
            escaped, name, value, algorithm = match[1], match[3], match[2], hint
            one_blank = len(name) == 1 or name[0] not in " *"
            if one_blank and reversed_form is False:
                why = f"one blank before the name, and two in lines above: {in_quotes(line[:120])}"
                raise ObjectError("not a line of this checksum file", where=key, why=why)
            # In a file of "BSD reversed" lines, a second blank is part of the name.
            reversed_form = one_blank or reversed_form is True
            if not reversed_form:
                name = name[1:]
        else:
            raise ObjectError("not a line of a checksum file", where=key, why=in_quotes(line[:120]))
        if escaped:
            if not _ESCAPED.fullmatch(name):
                why = f"a backslash that escapes nothing: {in_quotes(line[:120])}"
                raise ObjectError("not a line of a checksum file", where=key, why=why)
            name = unescape(name)
        checksums[_joined(folder, name)] = _checksum(value, algorithm, key)
    return checksums


def text_of(content: bytes, key: str) -> str:
    """Decode a checksum file as UTF-8, or as its byte order mark says. Of a clear-signed message (RFC 9580,
    7), return the signed text; the signature is not verified. Raises ObjectError if the mark does not fit.
    """
    mark = next((mark for mark in _MARKS if content.startswith(mark)), b"")
    try:
        text = content.decode(_MARKS[mark]) if mark else os.fsdecode(content)
    except UnicodeDecodeError as error:
        raise ObjectError("a checksum file whose byte order mark does not fit", where=key) from error
    signed = _SIGNED.fullmatch(text)
    return re.sub(r"^- ", "", signed[1], flags=re.MULTILINE) if signed else text


def _checksum(value: str, algorithm: str, key: str) -> SourceChecksum:
    lengths = {"xxh3_128": 32, "xxh64": 16, "crc32c": 8} | {v: k for k, v in _BY_LENGTH.items()}
    algorithm = algorithm or _BY_LENGTH.get(len(value), "")
    if not algorithm:
        raise ObjectError("a checksum of an unknown kind", where=key, why=in_quotes(value))
    if lengths[algorithm] != len(value):
        why = f"{algorithm} has {lengths[algorithm]} digits, not {len(value)}: {in_quotes(value)}"
        raise ObjectError("a checksum that is not of the kind that is named", where=key, why=why)
    return SourceChecksum(algorithm, "full", value.lower())


def _of_label(label: str, key: str) -> str:
    algorithm = _NAMED.get(label.lower()) or _NAMED.get(label.lower().replace("-", ""))
    if algorithm is None:
        raise _unknown(label, key)
    return algorithm


def _unknown(name: str, key: str) -> ObjectError:
    supported = ", ".join(dict.fromkeys(_NAMED.values()))
    return ObjectError(
        "a checksum file of a kind that is not known",
        where=key,
        why=f"{in_quotes(name)} is none of {supported}",
        hint="leave it out of `checksums`, or have one of these made",
    )


def _algorithm_hint(key: str) -> str:
    """Guess the algorithm from a name such as SHA256SUMS, md5sums.txt, a.tar.xxh128. Return "" if the name
    states none; then each checksum's length decides. Raises ObjectError for an unsupported algorithm."""
    name = key.rpartition("/")[2].lower()
    suffix = name.rpartition(".")[2].removesuffix("sums").removesuffix("sum").replace("-", "")
    if suffix in _NAMED:
        return _NAMED[suffix]
    if other := _OTHER.search(name):
        raise _unknown(other[0], key)
    return next((algorithm for label, algorithm in _NAMED.items() if label in name), "")


def unescape(name: str) -> str:
    """Undo coreutils' escaping of backslash, line feed and carriage return."""
    return re.sub(r"\\([\\nr])", lambda m: {"\\": "\\", "n": "\n", "r": "\r"}[m[1]], name)


def _joined(folder: str, name: str) -> str:
    """Return the key that a name in a checksum file of `folder` means; resolve `./a`, `b//a` and `../a`."""
    plain = not name.startswith(("./", "/")) and "//" not in name and "/." not in f"/{name}"
    if not plain:
        return posixpath.normpath(posixpath.join(folder, name))
    return f"{folder}/{name}" if folder else name


def joined(files: Iterable[tuple[str, bytes]]) -> dict[str, SourceChecksum]:
    """Merge several checksum files (key, content). If a key has checksums of several algorithms, keep the
    first in `_ORDER`. Raises ObjectError if two files contradict each other."""
    checksums: dict[str, SourceChecksum] = {}
    for key, content in files:
        for name, checksum in parse(text_of(content, key), key).items():
            earlier = checksums.get(name)
            if (
                earlier is not None
                and earlier.algorithm == checksum.algorithm
                and earlier.value != checksum.value
            ):
                raise ObjectError(
                    "two checksum files contradict each other",
                    where=key,
                    why=f"of {in_quotes(name)} one has {checksum.algorithm} {earlier.value}, "
                    f"here {checksum.value}",
                )
            if earlier is None or _ORDER.index(checksum.algorithm) < _ORDER.index(earlier.algorithm):
                checksums[name] = checksum
    return checksums


def read(source: Source, listed: Listed) -> bytes:
    """Read a checksum file into memory. Raises ObjectError if it is too large, and the source's errors."""
    if listed.size > LARGEST:
        raise ObjectError("too large for a checksum file", where=listed.key, why=f"{listed.size:,} bytes")
    entry = Entry(
        listed.key, listed.key, listed.size, listed.token, listed.modified_ns,
        version=listed.version, checksum=listed.checksum, length=listed.size,
    )  # fmt: skip
    content = bytearray(listed.size)
    view, at = memoryview(content), 0
    with reading(source, entry) as body:
        while at < len(view) and (got := body.readinto(view[at:])):
            at += got
    if at != listed.size:
        raise TransientError("a checksum file ended early", where=listed.key)
    return bytes(content)
