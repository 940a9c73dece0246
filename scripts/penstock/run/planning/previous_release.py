"""The release whose unchanged files a run can take: the current one, where it is comparable."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from penstock.config.settings import PermissionsConfig
from penstock.core import human
from penstock.core.errors import FailedError
from penstock.dataset import run_store, seals
from penstock.dataset.run import load
from penstock.run.planning.reuse_choice import LINK, NONE, choose
from penstock.run.planning.unchanged_rows import COLUMNS, with_reuse
from penstock.tables.listing_file import read_columns
from penstock.tables.manifest import read_columns as manifest_columns
from penstock.tables.shards import whole_files
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from penstock.dataset.run import Run
    from penstock.run.adoption.adopted_tree import AdoptedRows
    from penstock.run.planning.renamed_rows import RenamedRows
    from penstock.run.planning.takeover import TakeOver
    from penstock.run.planning.target_probe import TargetProbe
    from penstock.run.planning.unchanged_rows import ReuseRules


class UnreadableError(FailedError):
    """The release's manifest cannot be read: everything is copied instead."""


@dataclass(frozen=True)
class BaseRelease:
    release: str | None  # None: everything is copied
    why: str  # the reason if everything is fetched, else ""
    manifest: Path | None = None
    sources: dict[int, int] | None = None  # maps the release's source indices to this run's
    way: str = LINK  # how its files come into the new release (`reuse_choice`)
    differing: Sequence[str] = ()  # its keys of `permissions` with other values

    def files(
        self, listing: Path, over: TakeOver | AdoptedRows, rules: ReuseRules, renamed: RenamedRows
    ) -> Iterator[pa.RecordBatch]:
        """Yield the listing as rows of shards, with `reuse` set where a copy of the file exists.

        This release may hold it, under the same or (`renamed`) another name, or another run's staging
        (`over`). Raises UnreadableError.
        """
        rows: Iterator[pa.RecordBatch] = map(whole_files, read_columns(listing))
        if self.manifest is not None and self.sources is not None:
            free = renamed.free if renamed.gathering else None
            rows = with_reuse(rows, _records(self.manifest), rules, free)
            rows = over.over(rows) if over else rows
            return renamed.gather(rows) if renamed.gathering else renamed.mark(rows)
        return over.over(rows) if over else rows


def none(why: str) -> BaseRelease:
    return BaseRelease(None, why)


def find(run: Run, tried: TargetProbe, *, copy_unchanged: bool) -> BaseRelease:
    """Return the release that `current` names, if its files need not be fetched again.

    | what                                           | its files                          |
    |------------------------------------------------|------------------------------------|
    | plan.reuse is none, or nothing was published   | are fetched                        |
    | its run's description or manifest is not there | are fetched                        |
    | other digests asked for                        | are fetched                        |
    | it is not signed as `target.signers` asks      | are fetched                        |
    | no source in common                            | are fetched                        |
    | `--new-release` replaces it                    | are fetched                        |
    | else                                           | are as `reuse_choice.choose` says  |
    """
    if run.config.plan.reuse == NONE:
        return none("plan.reuse is none")
    layout = run.layout
    current = dataset_folders.current(layout)
    if current is None:
        return none("there is no release yet")
    manifest = layout.release(current) / "manifest.parquet"
    sealed = run_store.sealed_run(layout, current)
    if not sealed or not manifest.is_file():
        return none(f"release {current} has no seal or manifest that can be read")
    try:
        theirs = load(layout, layout.run(sealed))
        differing = _other_policy(theirs, run)
        other_digests = theirs.config.verify.digests != run.config.verify.digests
    except FailedError:
        return none(f"the run of release {current} has no description that can be read")
    if sealed in run_store.replaced(layout):
        return none(f"`--new-release` replaces release {current}, and trusts nothing of it")
    stored = seals.find(layout, current)
    if stored is None or seals.problem(layout, current, stored):
        return none(f"release {current} is not signed as target.signers asks")
    if other_digests:
        twice = f"up to {human.size(run.info.bytes)} are stored a second time"
        return none(f"release {current} has other verify.digests: {twice}")
    now = {url: index for index, url in enumerate(run.info.sources)}
    sources = {index: now[url] for index, url in enumerate(theirs.info.sources) if url in now}
    if not sources:
        return none(f"release {current} came from other sources")
    way = choose(
        run.config.plan.reuse,
        reflinks=tried.reflinks,
        links=tried.links,
        other_policy=bool(differing),
        copy_unchanged=copy_unchanged,
    )
    if way == NONE:
        return none("this file system refuses hard links between folders")
    return BaseRelease(current, "", manifest, sources, way, differing)


def _other_policy(theirs: Run, run: Run) -> list[str]:
    """Return the keys of `permissions` with different values in two runs. A linked file is one file: changing
    it would change the other release."""
    before, now = theirs.config.dataset.permissions, run.config.dataset.permissions
    keys = (field.name for field in fields(PermissionsConfig))
    return [f"permissions.{key}" for key in keys if getattr(before, key) != getattr(now, key)]


def _records(manifest: Path) -> Iterator[pa.RecordBatch]:
    try:
        yield from manifest_columns(manifest, COLUMNS)
    except FailedError as error:
        raise UnreadableError("a manifest cannot be read", where=str(manifest), why=error.why) from error
