"""The checksums that a source states: in the headers of an answer, and in checksum files beside the data,
made by coreutils, BSD or `openssl dgst`.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import os
import posixpath
import re
from typing import TYPE_CHECKING

from penstock.core.errors import ObjectError, TransientError
from penstock.core.human import in_quotes
from penstock.core.model import Entry, SourceChecksum
from penstock.sources.http_values import decimal
from penstock.sources.port import reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.core.model import Listed
    from penstock.sources.port import Source


# Reads an object's checksums from an answer's headers.
#
# A *full* checksum is computed from the object's bytes, a *composite* checksum from the checksums of its
# parts (S3's multipart uploads). `x-amz-checksum-type` distinguishes them better than the value's form, since
# GetObjectAttributes omits the suffix `-N`; but some stores omit the type. Stores write base64 of big-endian
# bytes, and penstock lower-case hex. Undecodable values are left out.

# The algorithms, strong and cheap ones first, since the engine takes the first algorithm that it can compute.
S3_HEADERS = {
    b"x-amz-checksum-crc64nvme": ("crc64nvme", 8),
    b"x-amz-checksum-crc32c": ("crc32c", 4),
    b"x-amz-checksum-crc32": ("crc32", 4),
    b"x-amz-checksum-xxhash128": ("xxh3_128", 16),
    b"x-amz-checksum-xxhash64": ("xxh64", 8),
    b"x-amz-checksum-sha256": ("sha256", 32),
    b"x-amz-checksum-sha1": ("sha1", 20),
    b"x-amz-checksum-sha512": ("sha512", 64),
    b"x-amz-checksum-md5": ("md5", 16),
}
_S3_ORDER = tuple(S3_HEADERS)
_S3_NAMES = frozenset(S3_HEADERS)
# algorithms for which the checksums of consecutive ranges can be combined to the checksum of the whole
COMBINE = frozenset({"crc64nvme", "crc32c", "crc32"})
_MD5 = re.compile(r"[0-9a-fA-F]{32}")
_MULTIPART = re.compile(r"([0-9a-fA-F]{32})-([1-9][0-9]{0,4})")
_DIGEST_NAMES = {
    "sha-256": ("sha256", 32),
    "sha-512": ("sha512", 64),
    "sha": ("sha1", 20),
    "md5": ("md5", 16),
    "crc32c": ("crc32c", 4),
}


def decode(value: str, size: int) -> str | None:
    """Decode base64 of exactly `size` bytes into hex; None for any other text."""
    try:
        raw = base64.b64decode(value.encode("latin-1"), validate=True)
    except (ValueError, binascii.Error):
        return None
    return raw.hex() if len(raw) == size else None


def s3_checksums(headers: Mapping[bytes, bytes], *, whole: bool, part_bytes: int = 0) -> list[SourceChecksum]:
    """Return the checksums in S3's answer to a GET or HEAD. Full ones come first, and within a kind the
    cheapest.

    If `whole`, the answer is of the whole object. `part_bytes` is the size of the object's parts, 0 if
    unknown.

    | type header | value ends in -N | the answer | becomes |
    |---|---|---|---|
    | FULL_OBJECT | - | whole | full |
    | FULL_OBJECT | - | a range | full, if checksums of ranges combine |
    | COMPOSITE | - | any | composite |
    | none | yes | any | composite |
    | none | no | whole, etag without -N | full |
    | none | no | any other | nothing |
    """
    kind = headers.get(b"x-amz-checksum-type", b"").upper()
    etag = headers.get(b"etag", b"").strip(b'"').decode("latin-1")
    multipart = _MULTIPART.fullmatch(etag)
    full: list[SourceChecksum] = []
    composite: list[SourceChecksum] = []
    names = _S3_NAMES.intersection(headers)
    for name in names if len(names) < 2 else sorted(names, key=_S3_ORDER.index):
        algorithm, size = S3_HEADERS[name]
        text, _, suffix = headers[name].decode("latin-1").partition("-")
        value = decode(text, size)
        if value is None:
            continue
        if kind == b"COMPOSITE" or (not kind and suffix):
            parts = decimal(suffix) or decimal(headers.get(b"x-amz-mp-parts-count", b"").decode("latin-1"))
            parts = parts or (int(multipart[2]) if multipart else 0)
            if parts:
                composite.append(SourceChecksum(algorithm, "composite", value, parts, part_bytes))
        elif kind == b"FULL_OBJECT":
            if whole or algorithm in COMBINE:
                full.append(SourceChecksum(algorithm, "full", value))
        elif whole and not kind and not multipart:
            full.append(SourceChecksum(algorithm, "full", value))
    if _etag_is_md5(headers):
        if multipart:
            composite.append(
                SourceChecksum("md5", "composite", multipart[1].lower(), int(multipart[2]), part_bytes)
            )
        elif whole and _MD5.fullmatch(etag):
            full.append(SourceChecksum("md5", "full", etag.lower()))
    return full + composite


def _etag_is_md5(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether the etag is an MD5: only of objects without encryption or with SSE-S3 (AWS,
    "Object")."""
    encrypted = headers.get(b"x-amz-server-side-encryption", b"AES256")
    return encrypted == b"AES256" and b"x-amz-server-side-encryption-customer-algorithm" not in headers


def google_checksums(text: str) -> list[SourceChecksum]:
    """Parse the header x-goog-hash; keep its order. Its checksums are of the whole object, whatever the
    answer's range."""
    checksums: list[SourceChecksum] = []
    for item in text.split(","):
        label, _, stated = item.strip().partition("=")
        value = decode(stated, {"crc32c": 4, "md5": 16}.get(label, 0))
        if value:
            checksums.append(SourceChecksum(label, "full", value))
    return checksums


def web_checksums(headers: Mapping[bytes, bytes], *, whole: bool) -> list[SourceChecksum]:
    """Return a web server's checksums: Repr-Digest and Digest (of all bytes), Content-Digest and Content-MD5
    (of a whole answer), and Google's x-goog-hash."""
    checksums: dict[str, SourceChecksum] = {}

    def state(algorithm: str, value: str | None) -> None:
        if value is not None and (whole or algorithm in COMBINE):
            checksums.setdefault(algorithm, SourceChecksum(algorithm, "full", value))

    for name in (b"repr-digest", b"digest", *((b"content-digest",) if whole else ())):
        for item in headers.get(name, b"").decode("latin-1").split(","):
            label, _, text = item.strip().partition("=")
            digest = _DIGEST_NAMES.get(label.strip().lower())
            if digest:
                state(digest[0], decode(text.strip().strip(":"), digest[1]))
    for checksum in google_checksums(headers.get(b"x-goog-hash", b"").decode("latin-1")):
        state(checksum.algorithm, checksum.value)
    if whole and b"content-md5" in headers:
        state("md5", decode(headers[b"content-md5"].decode("latin-1"), 16))
    order = ("crc32c", "sha256", "sha1", "sha512", "md5")
    return sorted(checksums.values(), key=lambda checksum: order.index(checksum.algorithm))


# Parses checksum files beside the data, made by coreutils, BSD or `openssl dgst`.
#
# The accepted lines and names are those of `sha256sum -c` (coreutils, `split_3`):
#
#     <hex>  <name>     <hex> *<name>      a blank, then a blank or `*`
#     <hex> <name>      <hex>TAB<name>     "BSD reversed": all lines of a file, or none
#     SHA256 (<name>) = <hex>              BSD, `--tag`, and openssl: `SHA2-256(<name>)= <hex>`
#
# Blanks and tabs may precede a line, and a carriage return may end it. A leading backslash marks an escaped
# name. Hexadecimal digits may be in upper or lower case.

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
