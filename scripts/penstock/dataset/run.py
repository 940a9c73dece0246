"""A run: the documents of list and plan, its frozen configuration, and the paths of its state and staging.
Each document is read when first needed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.config.serialization import RunConfig
from penstock.core.errors import PreflightError
from penstock.core.layout import DATA
from penstock.core.run_documents import PLAN, PROBE_REPORT, RUN, ProbeReport
from penstock.dataset import documents

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from penstock.core.layout import DatasetLayout, RunLayout
    from penstock.core.run_documents import PlanInfo, RunInfo, ShardInfo


@dataclass(frozen=True)
class Run:
    """A run as its documents describe it."""

    layout: DatasetLayout  # the dataset's paths, according to the present configuration
    info: RunInfo
    folder: RunLayout  # the run's paths below `runs/`, or below `audits/` for an audit

    @property
    def id(self) -> str:
        return self.info.run

    @property
    def dataset(self) -> str:
        return self.info.dataset

    @property
    def release(self) -> str:
        return self.info.release

    @cached_property
    def config(self) -> RunConfig:
        """The configuration that list froze. Raises ConfigError or FailedError as `RunConfig` does."""
        return RunConfig(self.info.config, self.folder.run_file)

    @cached_property
    def plan(self) -> PlanInfo:
        """The plan. Raises PreflightError if it does not exist yet, FailedError if it is damaged. After the
        plan is made again, a new `Run` is needed."""
        return read_plan(self.folder)

    @cached_property
    def probe(self) -> ProbeReport:
        """Plan's measurements of the target's file system; an empty report if plan made none. Raises
        FailedError if the report is damaged."""
        hint = "remove it: then the table of file systems counts alone"
        return documents.find(PROBE_REPORT, self.folder.probe, hint) or ProbeReport()

    @cached_property
    def shards(self) -> Mapping[int, ShardInfo]:
        """The plan's shards, by index. Raises as `plan`."""
        return self.plan.by_index()

    @cached_property
    def indices(self) -> Sequence[int]:
        """The indices of `shards`, in the plan's order."""
        return tuple(self.shards)

    @property
    def staging(self) -> Path:
        """The release under construction; it exists from plan to publish."""
        return self.layout.staging(self.release)

    @property
    def data(self) -> Path:
        """The files in `staging`."""
        return self.staging / DATA


def load(layout: DatasetLayout, folder: RunLayout) -> Run:
    """Load the run of this folder. Raises FailedError if its description is missing or damaged."""
    return Run(layout, read_run(folder), folder)


def read_run(folder: RunLayout) -> RunInfo:
    """Read `run.json` of a run's folder. Raises FailedError if it is missing or damaged."""
    return documents.need(RUN, folder.run_file, f"remove {folder.folder}: `penstock run` makes it anew")


def read_plan(folder: RunLayout) -> PlanInfo:
    """Read `plan.json` of a run's folder. Raises PreflightError if it is missing, FailedError if damaged."""
    plan = documents.find(PLAN, folder.plan, "list again, which drops a damaged plan, and plan again")
    if plan is None:
        raise PreflightError(
            "the run has not been planned yet",
            where=str(folder.folder),
            hint="run `penstock step plan` first",
        )
    return plan
