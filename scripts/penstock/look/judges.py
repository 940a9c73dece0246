"""Judge which files of two listings hold the same bytes, by the digests of two manifests, or by what a source
states.

A source's token proves that a path's object is the one that was copied. Few tokens prove that objects of
different names hold the same bytes. S3's etag is a digest (plain MD5, or over the parts of a multipart
upload), but random with a customer's key. Azure's etags are times, Google's generations are numbers, a
folder's token names an inode. Other renames need a strong checksum (`model.STRONG_CHECKSUM`), in the
source's listing or in a file beside the data. The release must have it too: as proof of its copy, as a
further digest, or as its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.config.source_kinds import of_url
from penstock.core.model import PLAIN, STRONG_CHECKSUM
from penstock.core.model import listed as digests_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.core.seal import SealedSource

_MD5 = "^[0-9a-f]{32}$"
_ETAG = "^[0-9a-f]{32}(-[0-9]+)?$"


class ByDigest:
    """Two manifests: digest and size decide."""

    columns = ("path", "size", "digest", "digests")
    keys: Sequence[str] = ("content",)

    def unlike(self, before: pa.RecordBatch, after: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """Compare files that one release digested whole and the other in parts by a further digest that both
        have; without one they are unproven."""
        sizes = pc.not_equal(before["size"], after["size"])
        differ = pc.or_(sizes, pc.not_equal(before["digest"], after["digest"]))
        open_ = pc.and_(differ, pc.invert(sizes))
        return _settled(differ, open_, before, after, self._compared)

    def _compared(self, before: pa.RecordBatch, after: pa.RecordBatch) -> pa.Array:
        """Judge rows of equal size whose digests differ."""
        kinds = [pc.replace_substring_regex(rows["digest"], ":.*$", "") for rows in (before, after)]
        differing = pc.not_equal(*kinds)
        texts = (
            before["digests"].filter(differing).to_pylist(),
            after["digests"].filter(differing).to_pylist(),
        )
        verdicts = pa.array([_further(mine, theirs) for mine, theirs in zip(*texts, strict=True)], pa.int8())
        return pc.replace_with_mask(
            pa.repeat(pa.scalar(_DIFFERS, pa.int8()), len(differing)), differing, verdicts
        )

    def before_keys(self, rows: pa.RecordBatch) -> Sequence[pa.Array]:
        return [_sized(rows["size"], rows["digest"])]

    after_keys = before_keys


_SAME, _DIFFERS, _SILENT = 0, 1, -1  # results for a file whose first proof differs between the sides


def _settled(
    differ: pa.Array,
    left: pa.Array,
    before: pa.RecordBatch,
    after: pa.RecordBatch,
    compared: Callable[[pa.RecordBatch, pa.RecordBatch], pa.Array],
) -> tuple[pa.Array, pa.Array]:
    """Return which rows changed and which cannot be compared: `differ`, with the rows of `left` judged by
    `compared`."""
    if not left.true_count:
        return differ, pa.repeat(pa.scalar(False), len(differ))
    some = compared(before.filter(left), after.filter(left))
    verdicts = pc.replace_with_mask(pc.cast(differ, pa.int8()), left, some)
    return pc.equal(verdicts, _DIFFERS), pc.equal(verdicts, _SILENT)


def _further(first: str, second: str) -> int:
    """Compare by the first whole-file digest of an algorithm that both have."""
    mine = {digest.algorithm: digest.value for digest in digests_of(first) if not digest.part_bytes}
    for digest in digests_of(second):
        if not digest.part_bytes and digest.algorithm in mine:
            return _SAME if mine[digest.algorithm] == digest.value else _DIFFERS
    return _SILENT


class ByToken:
    """A manifest and a listing of its sources as they are now."""

    columns = ("path", "size", "token", "source", "source_proof", "digests", "digest")  # of the manifest
    listed = ("path", "size", "token", "source", "checksum")
    keys: Sequence[str] = ("etag", "checksum", "digest", "own")

    def __init__(self, sealed: Sequence[SealedSource], urls: Sequence[str]) -> None:
        """`sealed`: the release's sources; `urls`: those of the listing, without secrets."""
        self._urls = urls
        places = [urls.index(source.url) if source.url in urls else -1 for source in sealed]
        self._places = pa.array(places or [-1], pa.int64())
        self._digesting = pa.array([of_url(source.url).content_etags for source in sealed] or [False])
        self._digesting_now = pa.array([of_url(url).content_etags for url in urls])

    def unlike(self, before: pa.RecordBatch, after: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """Compare by token and size if the object has the same source, else by a checksum that both sides
        state. Without a token only a differing size proves anything."""
        sizes = pc.not_equal(before["size"], after["size"])
        place = self._places.take(pc.cast(before["source"], pa.int64()))
        stated = pc.not_equal(pc.binary_length(after["token"]), 0)
        token = pc.and_(
            pc.and_(pc.equal(before["token"], after["token"]), stated),
            pc.equal(place, pc.cast(after["source"], pa.int64())),
        )
        differ = pc.or_(sizes, pc.invert(token))
        return _settled(differ, pc.and_(differ, pc.invert(sizes)), before, after, self._compared)

    def _compared(self, before: pa.RecordBatch, after: pa.RecordBatch) -> pa.Array:
        """Judge rows of equal size whose tokens differ or are missing."""
        same = pa.repeat(pa.scalar(False), before.num_rows)
        for old_key, new_key in zip(self.before_keys(before), self.after_keys(after), strict=True):
            same = pc.or_(same, pc.fill_null(pc.equal(old_key, new_key), False))
        silent = pc.equal(pc.binary_length(after["token"]), 0)
        other = pc.if_else(silent, pa.scalar(_SILENT, pa.int8()), pa.scalar(_DIFFERS, pa.int8()))
        return pc.if_else(same, pa.scalar(_SAME, pa.int8()), other)

    def before_keys(self, rows: pa.RecordBatch) -> Sequence[pa.Array]:
        source = pc.cast(rows["source"], pa.int64())
        further = rows["digests"]
        # There is rarely more than one further digest; the first counts.
        first = pc.replace_substring_regex(pc.cast(further, pa.string()), " .*$", "")
        first = pc.replace_substring_regex(first, "^([a-z0-9_]+):", r"\1:full:")
        return [
            _etags(rows, self._digesting.take(source)),
            _sized(rows["size"], _checksums(rows["source_proof"])),
            _sized(rows["size"], _checksums(first)),
            _sized(rows["size"], _checksums(pc.replace_substring(rows["digest"], PLAIN, f"{PLAIN}full:"))),
        ]

    def after_keys(self, rows: pa.RecordBatch) -> Sequence[pa.Array]:
        digesting = self._digesting_now.take(pc.cast(rows["source"], pa.int64()))
        # Binary: a source's statement need not be UTF-8.
        token = rows["token"]
        # An etag that is an MD5 can match the MD5 that proved a file; no other etag can.
        md5 = pc.binary_join_element_wise(b"md5:full:", token, b"")
        md5 = pc.if_else(pc.match_substring_regex(token, _MD5), md5, None)
        checksum = _sized(rows["size"], pc.coalesce(_checksums(rows["checksum"]), md5))
        return [_etags(rows, digesting), checksum, checksum, checksum]


def _etags(rows: pa.RecordBatch, digesting: pa.Array) -> pa.Array:
    """Return the etags that are digests of bytes; null for others."""
    token = rows["token"]
    fits = pc.and_(digesting, pc.match_substring_regex(token, _ETAG))
    # A key must end in hexadecimal digits, even if the etag ends in its number of parts.
    end = pc.binary_slice(token, 30, 32)
    text = pc.binary_join_element_wise(pc.if_else(fits, token, None), end, b" ")
    return _sized(rows["size"], text)


def _checksums(texts: pa.Array) -> pa.Array:
    """Return the checksums of strong algorithms over all bytes; null for others."""
    return pc.if_else(pc.match_substring_regex(texts, STRONG_CHECKSUM), texts, None)


def _sized(sizes: pa.Array, texts: pa.Array) -> pa.Array:
    """Return `<size> <text>`, null if the text is."""
    size = pc.cast(pc.cast(sizes, pa.string()), pa.binary())
    return pc.binary_join_element_wise(size, pc.cast(texts, pa.binary()), b" ")
