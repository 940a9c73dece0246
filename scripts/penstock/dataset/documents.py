"""Reads and writes the JSON documents of a dataset's state, with one set of rules and messages for all kinds.
A `Run` reads those of list and plan when first needed, and has its frozen configuration and its paths.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from penstock.config.serialization import RunConfig
from penstock.core import dataset_documents
from penstock.core.element_documents import ELEMENT_OUTCOME
from penstock.core.errors import STATE_ANEW, FailedError, PreflightError
from penstock.core.layout import DATA
from penstock.core.run_documents import PLAN, PROBE_REPORT, RUN, ProbeReport
from penstock.fs import small_files
from penstock.fs.safe_open import storage_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from penstock.core.dataset_documents import AdoptedTree
    from penstock.core.element_documents import ElementOutcome
    from penstock.core.layout import DatasetLayout, RunLayout
    from penstock.core.run_documents import PlanInfo, RunInfo, ShardInfo
    from penstock.core.typed_json import Document


# Reads and writes the JSON documents of a dataset's state, with one set of rules and messages for all kinds.
# Among them are the outcomes of a run's elements, and the mark of a run that adopts a tree.

# Reads and writes the JSON documents of a dataset's state (`typed_json.Document`), with errors for people.
#
# | the file has              | `load`            | `find_whole` | `find`      | `need`      |
# |---------------------------|-------------------|--------------|-------------|-------------|
# | a whole document          | it                | it           | it          | it          |
# | (it does not exist)       | FileNotFoundError | None         | None        | FailedError |
# | a damaged document        | ValueError        | None         | FailedError | FailedError |
# | (it cannot be read)       | OSError           | FailedError  | FailedError | FailedError |
# | another version's format  | NewerFormatError or OlderVersionError                        |

T = TypeVar("T")


def load(kind: Document[T], path: Path) -> T:
    """Read a document, with the results and errors of the table above."""
    return kind.from_json(small_files.read(path), path)


def find_whole(kind: Document[T], path: Path) -> T | None:
    """Read a document that can be made again, so damage counts as missing: see the table above."""
    try:
        return load(kind, path)
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        raise _unreadable(kind, path, error, STATE_ANEW) from error


def find(kind: Document[T], path: Path, hint: str = STATE_ANEW) -> T | None:
    """Read a document according to the table above. `hint` says what to do if it is damaged."""
    try:
        return load(kind, path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _unreadable(kind, path, error, hint) from error


def need(kind: Document[T], path: Path, hint: str = STATE_ANEW) -> T:
    """Read a document that must exist, according to the table above."""
    try:
        return load(kind, path)
    except (OSError, ValueError) as error:
        raise _unreadable(kind, path, error, hint) from error


def _unreadable(kind: Document[T], path: Path, error: Exception, hint: str) -> FailedError:
    return FailedError(f"{kind.what} cannot be read", where=str(path), why=str(error), hint=hint)


def write(kind: Document[T], path: Path, document: T) -> None:
    """Write a document durably, with missing folders above it. Raises the errors of
    `safe_open.storage_error`, such as NoSpaceError on a full target."""
    try:
        small_files.make_dirs(path.parent)
        small_files.write_json(path, kind.to_json(document))
    except OSError as error:
        raise storage_error(error, f"{kind.what} cannot be written", str(path)) from error


def create(kind: Document[T], path: Path, document: T) -> bool:
    """Write as `write` does, but return False if the file exists. If several processes try, one succeeds."""
    try:
        small_files.make_dirs(path.parent)
        return small_files.create_file(path, small_files.json_line(kind.to_json(document)))
    except OSError as error:
        raise storage_error(error, f"{kind.what} cannot be written", str(path)) from error


# Outcomes: why an element ended without a receipt, and whether a retry may help. The element writes
# `outcomes/<step>/<index>.<generation>.json`; the controller reads it. Each claim of a shard has its own
# file. So a frozen worker whose shard another worker took overwrites nothing (`jobs.shard_claims`).


def claimed(run: RunLayout, step: str, index: int, least: int = 0) -> int:
    """Return the generation of a shard's highest claim, counted up from the known claim `least`; 0 without a
    claim. Files above a gap in the numbers are not claims."""
    while os.path.lexists(run.claim(step, index, least + 1)):
        least += 1
    return least


def find_outcome(run: RunLayout, step: str, index: int, generation: int) -> ElementOutcome | None:
    """Return this claim's outcome; None if it is missing or damaged. Raises FailedError, NewerFormatError."""
    return find_whole(ELEMENT_OUTCOME, run.outcome(step, index, generation))


def write_outcome(run: RunLayout, step: str, index: int, outcome: ElementOutcome) -> None:
    """Write or replace an outcome, durably, for the claim that it names. Raises as `write`."""
    write(ELEMENT_OUTCOME, run.outcome(step, index, outcome.generation), outcome)


def create_outcome(run: RunLayout, step: str, index: int, outcome: ElementOutcome) -> bool:
    """Write the outcome for an element that died before it wrote its own. False if an outcome exists."""
    path = run.outcome(step, index, outcome.generation)
    return create(ELEMENT_OUTCOME, path, outcome)


# The mark of a run that adopts a tree: its staging is a tree that penstock did not write. `penstock adopt
# --seal` writes the mark. Plan, copy and all code that removes stagings obey it.


def read_adopted_tree(run: RunLayout) -> AdoptedTree | None:
    """Return the run's mark; None if it adopts nothing. Raises FailedError if it cannot be read,
    NewerFormatError."""
    return find(dataset_documents.ADOPTED_TREE, run.adopted)


def write_adopted_tree(run: RunLayout, tree: AdoptedTree) -> None:
    """Write the mark, durably. Raises as `write`."""
    write(dataset_documents.ADOPTED_TREE, run.adopted, tree)


def stands_in(tree: AdoptedTree, data: Path) -> bool:
    """Check by inode that `data` is the adopted tree; False if it is missing. Raises OSError."""
    try:
        return os.lstat(data).st_ino == tree.inode
    except FileNotFoundError:
        return False


# A run: the documents of list and plan, its frozen configuration, and the paths of its state and staging.
# Each document is read when first needed.


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
        return find(PROBE_REPORT, self.folder.probe, hint) or ProbeReport()

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


def load_run(layout: DatasetLayout, folder: RunLayout) -> Run:
    """Load the run of this folder. Raises FailedError if its description is missing or damaged."""
    return Run(layout, read_run(folder), folder)


def read_run(folder: RunLayout) -> RunInfo:
    """Read `run.json` of a run's folder. Raises FailedError if it is missing or damaged."""
    return need(RUN, folder.run_file, f"remove {folder.folder}: `penstock run` makes it anew")


def read_plan(folder: RunLayout) -> PlanInfo:
    """Read `plan.json` of a run's folder. Raises PreflightError if it is missing, FailedError if damaged."""
    plan = find(PLAN, folder.plan, "list again, which drops a damaged plan, and plan again")
    if plan is None:
        raise PreflightError(
            "the run has not been planned yet",
            where=str(folder.folder),
            hint="run `penstock step plan` first",
        )
    return plan
