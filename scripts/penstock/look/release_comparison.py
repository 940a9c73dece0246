"""`penstock diff`: compares two releases of a dataset by their manifests, or a release with its sources now.
It has the rules that decide whether files of two listings have the same bytes.
"""

from __future__ import annotations

import contextlib
import stat
import tempfile
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.config.source_kinds import of_url
from penstock.core import run_steps
from penstock.core.errors import LOOK_AT_FILE, FindingsError, PreflightError
from penstock.core.layout import MANIFEST, SEAL
from penstock.core.model import PLAIN, STRONG_CHECKSUM
from penstock.core.model import listed as digests_of
from penstock.dataset import receipts, seals
from penstock.fs import scratch
from penstock.fs.owners import group_number
from penstock.fs.safe_open import storage_error
from penstock.look.details import named, unreadable
from penstock.look.difference import BATCH, KINDS, ManifestDifference, together
from penstock.look.releases import Folder
from penstock.tables.manifest import FORM as MANIFEST_FORM
from penstock.tables.run_tables import LISTING_FORM
from penstock.tables.tables import read_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.config.settings import PermissionsConfig
    from penstock.core.catalogue_rows import DiffCount, DiffResult
    from penstock.core.layout import DatasetLayout
    from penstock.core.seal import Seal, SealedPermissions, SealedSource
    from penstock.dataset.context import Context
    from penstock.listing.collection import Gathered


# Judges decide which files of two listings have the same bytes, by the digests of two manifests or by a
# source's statements.
#
# A source's token proves that a path still has the object that was copied. Few tokens prove that objects of
# different names have the same bytes. S3's etag is a digest (plain MD5, or over the parts of a multipart
# upload), but random if a customer's key is used. Azure's etags are times, Google's generations are numbers,
# a folder's token contains an inode. Other renames need a strong checksum (`model.STRONG_CHECKSUM`), in the
# source's listing or in a file beside the data. The release must have that checksum, too: as the proof of its
# copy, as a further digest, or as its own digest.

_MD5 = "^[0-9a-f]{32}$"
_ETAG = "^[0-9a-f]{32}(-[0-9]+)?$"


class ByDigest:
    """The judge of two manifests, which compares digest and size."""

    columns = ("path", "size", "digest", "digests")
    keys: Sequence[str] = ("content",)

    def unlike(self, before: pa.RecordBatch, after: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """Compare by digest and size. If one release digested a file whole and the other in parts, a further
        digest that both have decides. Without it, the file is unproven."""
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


# results for a file whose first proofs differ: bytes equal, bytes changed, unproven
_SAME, _DIFFERS, _SILENT = 0, 1, -1


def _settled(
    differ: pa.Array,
    left: pa.Array,
    before: pa.RecordBatch,
    after: pa.RecordBatch,
    compared: Callable[[pa.RecordBatch, pa.RecordBatch], pa.Array],
) -> tuple[pa.Array, pa.Array]:
    """Return which rows changed and which cannot be compared: `differ`, except that `compared` decides about
    the rows of `left`."""
    if not left.true_count:
        return differ, pa.repeat(pa.scalar(False), len(differ))
    some = compared(before.filter(left), after.filter(left))
    verdicts = pc.replace_with_mask(pc.cast(differ, pa.int8()), left, some)
    return pc.equal(verdicts, _DIFFERS), pc.equal(verdicts, _SILENT)


def _further(first: str, second: str) -> int:
    """Compare by the first algorithm for which both sides have a whole-file digest."""
    mine = {digest.algorithm: digest.value for digest in digests_of(first) if not digest.part_bytes}
    for digest in digests_of(second):
        if not digest.part_bytes and digest.algorithm in mine:
            return _SAME if mine[digest.algorithm] == digest.value else _DIFFERS
    return _SILENT


class ByToken:
    """The judge of a manifest and a listing of its sources now."""

    # columns that are read of the manifest
    columns = ("path", "size", "token", "source", "source_proof", "digests", "digest")
    listed = ("path", "size", "token", "source", "checksum")
    keys: Sequence[str] = ("etag", "checksum", "digest", "own")

    def __init__(self, sealed: Sequence[SealedSource], urls: Sequence[str]) -> None:
        """`sealed`: the release's sources. `urls`: the URLs of the listing's sources, without secrets."""
        self._urls = urls
        places = [urls.index(source.url) if source.url in urls else -1 for source in sealed]
        self._places = pa.array(places or [-1], pa.int64())
        self._digesting = pa.array([of_url(source.url).content_etags for source in sealed] or [False])
        self._digesting_now = pa.array([of_url(url).content_etags for url in urls])

    def unlike(self, before: pa.RecordBatch, after: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """Compare by token and size if both objects are from one source, else by a checksum that both sides
        state. Without a token, only a difference in size is proof."""
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
        """Judge rows of equal sizes whose tokens differ or are missing."""
        same = pa.repeat(pa.scalar(False), before.num_rows)
        for old_key, new_key in zip(self.before_keys(before), self.after_keys(after), strict=True):
            same = pc.or_(same, pc.fill_null(pc.equal(old_key, new_key), False))
        silent = pc.equal(pc.binary_length(after["token"]), 0)
        other = pc.if_else(silent, pa.scalar(_SILENT, pa.int8()), pa.scalar(_DIFFERS, pa.int8()))
        return pc.if_else(same, pa.scalar(_SAME, pa.int8()), other)

    def before_keys(self, rows: pa.RecordBatch) -> Sequence[pa.Array]:
        source = pc.cast(rows["source"], pa.int64())
        further = rows["digests"]
        # Only a file's first further digest counts, since there is rarely a second.
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
        # The tokens stay binary, since a source's token may not be UTF-8.
        token = rows["token"]
        # Only an etag that is an MD5 can match the MD5 that proved a file.
        md5 = pc.binary_join_element_wise(b"md5:full:", token, b"")
        md5 = pc.if_else(pc.match_substring_regex(token, _MD5), md5, None)
        checksum = _sized(rows["size"], pc.coalesce(_checksums(rows["checksum"]), md5))
        return [_etags(rows, digesting), checksum, checksum, checksum]


def _etags(rows: pa.RecordBatch, digesting: pa.Array) -> pa.Array:
    """Return the etags that are digests of bytes, and null in place of other etags."""
    token = rows["token"]
    fits = pc.and_(digesting, pc.match_substring_regex(token, _ETAG))
    # A key must end in hexadecimal digits, but some etags end in the number of parts.
    end = pc.binary_slice(token, 30, 32)
    text = pc.binary_join_element_wise(pc.if_else(fits, token, None), end, b" ")
    return _sized(rows["size"], text)


def _checksums(texts: pa.Array) -> pa.Array:
    """Return the checksums over all bytes by strong algorithms, and null in place of others."""
    return pc.if_else(pc.match_substring_regex(texts, STRONG_CHECKSUM), texts, None)


def _sized(sizes: pa.Array, texts: pa.Array) -> pa.Array:
    """Return `<size> <text>` for each row; null if the text is null."""
    size = pc.cast(pc.cast(sizes, pa.string()), pa.binary())
    return pc.binary_join_element_wise(size, pc.cast(texts, pa.binary()), b" ")


# `penstock diff`: rows and listings that exceed memory are in TMPDIR.


class Compared(NamedTuple):
    """The result of a comparison. The caller closes `difference`."""

    difference: ManifestDifference
    result: DiffResult


class _Held(NamedTuple):
    """A release whose manifest matches its seal."""

    release: str
    seal: Seal
    manifest: Path

    def rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return together(read_batches(self.manifest, MANIFEST_FORM, batch=BATCH, names=columns))


def releases(layout: DatasetLayout, before: str, after: str | None) -> Compared:
    """Compare `before` with `after` (None: the current release). Raises ConfigError for an unknown release,
    FindingsError for a damaged seal or manifest, PreflightError, NewerFormatError, FailedError."""
    former, latter = _held(layout, before), _held(layout, after)
    judge = ByDigest()
    difference = ManifestDifference(judge.keys)
    with _closed_on_error(difference):
        difference.compare(judge, former.rows(judge.columns), latter.rows(judge.columns), str(layout.folder))
    changed = _permissions(former.seal.permissions, latter.seal.permissions)
    return Compared(difference, _result(layout, former.release, latter.release, (), difference, changed))


class Listing(NamedTuple):
    """The present listing of a dataset's sources."""

    urls: Sequence[str]
    gathered: Gathered
    path: Path  # path of the listing's file, in TMPDIR

    def rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the order of the paths."""
        return together(read_batches(self.path, LISTING_FORM, batch=BATCH, names=columns))


@contextlib.contextmanager
def listing(context: Context, dataset: str) -> Iterator[Listing]:
    """List the dataset's sources into TMPDIR, until the block ends. Raises the errors of listing."""
    from penstock.listing.collection import apart, gather, open_sources, ordered
    from penstock.listing.listers import reach

    config, layout = context.dataset(dataset), context.layout(dataset)
    sources = open_sources(config)
    apart(layout, sources)
    for source_config, source in zip(config.sources, sources, strict=True):
        reach(source_config, source, context.waiting(dataset, "list", source.url))
    try:
        with scratch.folder() as folder:
            path = folder / "listing.parquet"
            context.emit(run_steps.Started(dataset, "list"))
            gathered = gather(context, config, ordered(config, sources), path)
            context.emit(run_steps.Ended(dataset, "list", {"files": gathered.files, "bytes": gathered.bytes}))
            yield Listing([source.url for source in sources], gathered, path)
    except OSError as error:
        raise storage_error(error, "the listing cannot be kept", tempfile.gettempdir()) from error


def with_source(context: Context, dataset: str, release: str | None) -> Compared:
    """Compare `release` (None: the current release) with a new listing. Raises as `releases`, and as
    listing."""
    layout = context.layout(dataset)
    held = _held(layout, release)
    with listing(context, dataset) as now:
        difference = _with_listing(layout, held, now)
    changed = _policy(held.seal.permissions, context.dataset(dataset).permissions)
    return Compared(difference, _result(layout, held.release, "", now.urls, difference, changed))


def counts(layout: DatasetLayout, now: Listing) -> tuple[str, Mapping[str, DiffCount]]:
    """Return the current release, and counts of a listing's differences from it, by kind
    (`difference.KINDS`). Raises as `releases`."""
    held = _held(layout, None)
    with _with_listing(layout, held, now) as difference:
        return held.release, difference.counts


def _with_listing(layout: DatasetLayout, held: _Held, now: Listing) -> ManifestDifference:
    judge = ByToken(held.seal.sources, now.urls)
    difference = ManifestDifference(judge.keys)
    with _closed_on_error(difference):
        difference.compare(judge, held.rows(judge.columns), now.rows(judge.listed), str(layout.folder))
    return difference


def _held(layout: DatasetLayout, release: str | None) -> _Held:
    try:
        with Folder(layout.folder) as folder:
            name, _ = named(folder, layout, release)
            path = f"{layout.releases.name}/{name}"
            seal = seals.of_content(folder.read(f"{path}/{SEAL}"), layout.release(name) / SEAL).seal
            if not stat.S_ISREG(folder.lstat(f"{path}/{MANIFEST}").st_mode):
                raise ValueError(f"{MANIFEST} is no plain file")
    except PermissionError as error:
        raise unreadable(layout, error) from None
    except FileNotFoundError as error:
        if not layout.folder.exists():
            raise unreadable(layout, error) from None
        raise _broken(layout, release, "its seal or its manifest is missing") from None
    except ValueError as error:
        raise _broken(layout, release, str(error)) from None
    except OSError as error:
        raise unreadable(layout, error) from None
    manifest = layout.release(name) / MANIFEST
    sealed = seal.manifests.get(MANIFEST)
    try:
        if not receipts.is_sealed(manifest, sealed):
            raise _broken(layout, name, f"{MANIFEST} is not the one that was sealed")
    except OSError as error:
        raise PreflightError(
            "a manifest cannot be read", where=str(manifest), why=str(error.strerror), hint=LOOK_AT_FILE
        ) from None
    return _Held(name, seal, manifest)


def _broken(layout: DatasetLayout, release: str | None, why: str) -> FindingsError:
    return FindingsError(
        "a release cannot be compared",
        where=str(layout.release(release) if release else layout.current),
        why=why,
        hint="`penstock audit` says what else is damaged",
    )


@contextlib.contextmanager
def _closed_on_error(difference: ManifestDifference) -> Iterator[None]:
    try:
        yield
    except BaseException:
        difference.__exit__()
        raise


def _result(
    layout: DatasetLayout,
    before: str,
    after: str,
    urls: Sequence[str],
    difference: ManifestDifference,
    permissions: str,
) -> DiffResult:
    return {
        "kind": "summary",
        "dataset": layout.dataset,
        "before": before,
        "after": after,
        "source": list(urls),
        "equal": difference.equal,
        "counts": {kind: difference.counts[kind] for kind in KINDS},
        "permissions": permissions,
    }


def _permissions(before: SealedPermissions, after: SealedPermissions) -> str:
    """Describe in one line how the permissions of two releases differ."""
    changes = [
        f"{what} {old:04o} -> {new:04o}"
        for what, old, new in (
            ("files", before.file_mode, after.file_mode),
            ("folders", before.dir_mode, after.dir_mode),
        )
        if old != new
    ]
    for what, number, name in (("group", "gid", "group"), ("owner", "uid", "user")):
        old_number, new_number = getattr(before, number), getattr(after, number)
        if old_number != new_number:
            names = (getattr(side, name) or getattr(side, number) for side in (before, after))
            changes.append(f"{what} {' -> '.join(map(str, names))}")
    changes += ["modes by path"] * (tuple(before.modes) != tuple(after.modes))
    changes += ["ACL"] * (sorted(before.acl) != sorted(after.acl))
    return ", ".join(changes)


def _policy(before: SealedPermissions, now: PermissionsConfig) -> str:
    """Describe in one line how a release's modes and group differ from the configuration."""
    changes = [
        f"{what} {old:04o} -> {new:04o}"
        for what, old, new in (
            ("files", before.file_mode, now.file_mode),
            ("folders", before.dir_mode, now.dir_mode),
        )
        if old != new
    ]
    if now.group is not None and before.gid not in (None, group_number(now.group)):
        changes.append(f"group {before.group or before.gid} -> {now.group}")
    return ", ".join(changes)
