"""`penstock diff`: compares two releases by their manifests, or a release with its sources as they are now.
What exceeds memory lies in TMPDIR."""

from __future__ import annotations

import contextlib
import stat
import tempfile
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import events
from penstock.core.errors import LOOK_AT_FILE, FindingsError, PreflightError
from penstock.core.layout import MANIFEST, SEAL
from penstock.dataset import receipts, seals
from penstock.fs import scratch
from penstock.fs.errno_map import storage_error
from penstock.fs.owners import group_number
from penstock.look.details import named, unreadable
from penstock.look.difference import KINDS, ManifestDifference
from penstock.look.judges import ByDigest, ByToken
from penstock.look.sorted_rows import BATCH, together
from penstock.look.untrusted_folder import Folder
from penstock.tables.listing_file import FORM as LISTING_FORM
from penstock.tables.manifest import FORM as MANIFEST_FORM
from penstock.tables.tables import read_batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from penstock.config.settings import PermissionsConfig
    from penstock.core.catalogue_rows import DiffCount, DiffResult
    from penstock.core.layout import DatasetLayout
    from penstock.core.seal import Seal, SealedPermissions
    from penstock.dataset.context import Context
    from penstock.listing.collection import Gathered


class Compared(NamedTuple):
    """The result of a comparison. The caller closes `difference`."""

    difference: ManifestDifference
    result: DiffResult


class _Held(NamedTuple):
    """A release whose manifest is the sealed one."""

    release: str
    seal: Seal
    manifest: Path

    def rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return together(read_batches(self.manifest, MANIFEST_FORM, batch=BATCH, names=columns))


def releases(layout: DatasetLayout, before: str, after: str | None) -> Compared:
    """Compare `before` with `after`, by default the current release. Raises ConfigError for an unknown
    release, FindingsError for a damaged seal or manifest, PreflightError, NewerFormatError, FailedError."""
    former, latter = _held(layout, before), _held(layout, after)
    judge = ByDigest()
    difference = ManifestDifference(judge.keys)
    with _closed_on_error(difference):
        difference.compare(judge, former.rows(judge.columns), latter.rows(judge.columns), str(layout.folder))
    changed = _permissions(former.seal.permissions, latter.seal.permissions)
    return Compared(difference, _result(layout, former.release, latter.release, (), difference, changed))


class Listing(NamedTuple):
    """A dataset's sources as they are now."""

    urls: Sequence[str]
    gathered: Gathered
    path: Path  # the listing's file, in TMPDIR

    def rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the order of the paths."""
        return together(read_batches(self.path, LISTING_FORM, batch=BATCH, names=columns))


@contextlib.contextmanager
def listing(context: Context, dataset: str) -> Iterator[Listing]:
    """List the dataset's sources into TMPDIR, for the block. Raises as listing."""
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
            context.emit(events.Started(dataset, "list"))
            gathered = gather(context, config, ordered(config, sources), path)
            context.emit(events.Ended(dataset, "list", {"files": gathered.files, "bytes": gathered.bytes}))
            yield Listing([source.url for source in sources], gathered, path)
    except OSError as error:
        raise storage_error(error, "the listing cannot be kept", tempfile.gettempdir()) from error


def with_source(context: Context, dataset: str, release: str | None) -> Compared:
    """Compare `release`, by default the current one, with a new listing. Raises as `releases`, and as
    listing."""
    layout = context.layout(dataset)
    held = _held(layout, release)
    with listing(context, dataset) as now:
        difference = _with_listing(layout, held, now)
    changed = _policy(held.seal.permissions, context.dataset(dataset).permissions)
    return Compared(difference, _result(layout, held.release, "", now.urls, difference, changed))


def counts(layout: DatasetLayout, now: Listing) -> tuple[str, Mapping[str, DiffCount]]:
    """Return the current release, and how a listing differs from it, by kind (`difference.KINDS`). Raises as
    `releases`."""
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
    """Describe how permissions of two releases differ, in one line."""
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
    """Describe how a release's modes and group differ from the configuration, in one line."""
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
