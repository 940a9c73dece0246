"""Which run a step works on: the one that list made or met last, by a small durable file.

A run's folder is the truth; this module only finds it and reads its two documents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.model import known
from penstock.core.runs import PlanInfo, RunInfo, plan_info, run_info
from penstock.errors import FailedError, PreflightError
from penstock.storage import durable

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout, RunLayout


def point(layout: DatasetLayout, run: str) -> None:
    """Make `run` the one that later steps work on. Durable."""
    durable.write_json(layout.latest, {"run": run})


def open_run(layout: DatasetLayout) -> tuple[RunInfo, RunLayout]:
    """The run that list made or met last. Raises PreflightError when nothing was listed yet."""
    try:
        name = str(durable.read_json(layout.latest)["run"])
    except FileNotFoundError:
        raise PreflightError(
            "the source has not been listed yet",
            where=layout.dataset,
            hint=f"run `penstock list {layout.dataset}` first",
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise FailedError(
            "a state file is damaged", where=str(layout.latest), why=str(error), hint="list again"
        ) from error
    folder = layout.run(name)
    return read_run(folder), folder


def read_run(folder: RunLayout) -> RunInfo:
    """`run.json` of a run's folder. Raises FailedError when it is missing or damaged."""
    try:
        return run_info(known(RunInfo, durable.read_json(folder.run_file)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FailedError(
            "a run's description cannot be read",
            where=str(folder.run_file),
            why=str(error),
            hint="list the source again",
        ) from error


def read_plan(folder: RunLayout) -> PlanInfo:
    """`plan.json` of a run's folder. Raises PreflightError when it was not planned yet, FailedError
    when it is damaged."""
    try:
        return plan_info(known(PlanInfo, durable.read_json(folder.plan)))
    except FileNotFoundError:
        raise PreflightError(
            "the run has not been planned yet", where=str(folder.folder), hint="run `penstock plan` first"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FailedError(
            "a run's plan cannot be read",
            where=str(folder.plan),
            why=str(error),
            hint="remove this file and plan again",
        ) from error
