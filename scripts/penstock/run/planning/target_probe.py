"""The probe of a target, as plan uses it: what stops a run, what people should know, what elements read.

It tries the file system in hidden folders of the dataset and of `releases`, which are gone afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import run_documents
from penstock.core.errors import PreflightError
from penstock.core.events import sentence
from penstock.core.run_documents import PROBE_REPORT
from penstock.dataset import documents
from penstock.fs.capabilities import facts
from penstock.fs.probe_judgement import (
    acls,
    differences,
    links_work,
    reflinks_work,
)
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.core.events import CheckResult
    from penstock.dataset.run import Run


class TargetProbe:
    """A probe of a run's target; the caller holds the dataset's lock."""

    def __init__(self, run: Run) -> None:
        self._folder = run.folder
        self._report = dataset_folders.probe(run.layout)
        self._at = str(run.layout.folder)
        store = facts(run.layout.folder)
        entries = run.config.dataset.permissions.acl
        # Where the target differs from the table of file systems, or from the dataset's ACL.
        self.results: Sequence[CheckResult] = [
            *acls(self._report, len(entries), store.traits.acls),
            *differences(store, self._report),
        ]

    @property
    def links(self) -> bool:
        return links_work(self._report)

    @property
    def reflinks(self) -> bool:
        return reflinks_work(self._report)

    @property
    def holes(self) -> bool:
        """Whether a file with holes takes less than its size."""
        return self._report["holes"].answer == run_documents.YES

    @property
    def link_cost(self) -> str:
        """What calls on a linked file take here; "" if not measured."""
        return str(self._report.link_cost) if self._report.link_cost else ""

    @property
    def rates(self) -> Mapping[str, float]:
        return self._report.rates

    @property
    def keeps_inodes(self) -> bool:
        return not self._report.refused("inode_stable")

    def check(self) -> None:
        stops = [result for result in self.results if result.verdict == "stop"]
        if stops:
            raise PreflightError(
                "no release can be staged on the target's file system",
                where=self._at,
                why="; ".join(f"{result.about}: {result.found}" for result in stops),
                hint="; ".join(dict.fromkeys(result.mend for result in stops)),
            )

    def keep(self) -> None:
        """Write `probe.json`, which elements read instead of probing again. Raises OSError."""
        documents.write(PROBE_REPORT, self._folder.probe, self._report)

    def sentences(self) -> list[str]:
        return [sentence(result) for result in self.results if result.verdict == "warning"]
