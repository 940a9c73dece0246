"""How a plan's files spread over the target's stores, metadata and quotas.

The file system vendor's commands, if any, and the kernel's quotas say it. Only `stripe` changes anything: the
layout of the empty staging folder (the tree in which the release grows).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.errors import NoSpaceError
from penstock.fs import quotas, store_checks
from penstock.fs.placement import SizeClasses
from penstock.fs.quotas import owner_of_new

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.config.settings import TargetConfig
    from penstock.core.dataset_documents import StillToWrite
    from penstock.core.events import CheckResult
    from penstock.core.layout import DatasetLayout
    from penstock.jobs.forecast import Totals


class TargetStores:
    """The stores of one dataset's target: first `check`, before anything is made, then `stripe`. `gid`: the
    files' group; None: the folder's where it is setgid, else the process's."""

    def __init__(self, layout: DatasetLayout, target: TargetConfig, gid: int | None) -> None:
        self._layout, self._target, self._gid = layout, target, gid
        self._checks = store_checks.PlanChecks([])
        self._others: Sequence[StillToWrite] = ()

    @property
    def pool(self) -> str:
        """The files' storage pool, by `check`; "": not known."""
        return self._checks.pool

    @property
    def chunk_files(self) -> int:
        """The files' chunk files (BeeGFS's stripes), by the last of `check` and `stripe`; 0: not known."""
        return self._checks.chunk_files

    @property
    def gid(self) -> int:
        return owner_of_new(self._layout.releases, None, self._gid)[1]

    @property
    def sizes(self) -> SizeClasses | None:
        """New counters by size for the files to copy; None without the vendor's commands."""
        needed = store_checks.has_tools(self._layout.root, self._target.filesystem)
        return SizeClasses() if needed else None

    def check(self, totals: Totals, others: Sequence[StillToWrite] = ()) -> list[CheckResult]:
        """Check that these files fit beside what `others` will still write, striped as configured. Returns a
        result for each check. Raises NoSpaceError where the files do not fit."""
        self._others = others
        self._checks = store_checks.check_plan(
            self._layout.releases,
            totals.to_place or SizeClasses(),
            totals.folders,
            gid=self._gid,
            wish=self._target.striping,
            named=self._target.filesystem,
            others=others,
        )
        counted = quotas.of_new_files(self._layout.releases, None, self._gid)
        results = [
            *quotas.check(counted, totals.blocks, totals.new_inodes, others),
            *self._checks.results,
        ]
        self._refuse(results)
        return results

    def stripe(self, data: Path, totals: Totals) -> list[CheckResult]:
        """Set the striping chosen by `check` on the empty staging folder `data`.

        If the file system refuses it, check that the files fit with the folder's own striping. Raises
        NoSpaceError where they do not.
        """
        checks = self._checks
        results = store_checks.stripe(data, checks.targets, checks.chunk, named=self._target.filesystem)
        if any(result.verdict != "ok" for result in results):
            sizes = totals.to_place or SizeClasses()
            as_given = store_checks.check_plan(
                data,
                sizes,
                totals.folders,
                gid=self._gid,
                named=self._target.filesystem,
                others=self._others,
            )
            self._refuse(as_given.results)
            self._checks = as_given
        return results

    def _refuse(self, results: list[CheckResult]) -> None:
        stops = [result for result in results if result.verdict == "stop"]
        if stops:
            raise NoSpaceError(
                "the target cannot take this run",
                where=str(self._layout.root),
                why="; ".join(f"{result.about}: {result.found}" for result in stops),
                hint="; ".join(dict.fromkeys(result.mend for result in stops)) + "; nothing was copied",
            )
