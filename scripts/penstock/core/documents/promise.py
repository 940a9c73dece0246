"""`<root>/.promises/<name>`: what a run will still write below this root, posted so that plans of other runs
there count that room as taken. Pure; `jobs.ownership.promises` reads and writes the files."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping
from typing import NamedTuple

from penstock.core.documents import typed_json
from penstock.core.documents.typed_json import Document, ProcessName

ASKED, WORKING, RESTING = "asked", "working", "resting"
REMOVAL = "removal"
"""The `run` of a promise by gc or remove: it has a part of the metadata operations that all runs below the
root may make together, and writes nothing."""
_REPAIR = "repair-"
"""A run's id is of hexadecimal digits."""


def of_repair(release: str) -> str:
    """The `run` of a promise by the repair of a release: one at a time for each."""
    return _REPAIR + release


def repaired_by(run: str) -> str:
    """The release that is repaired; "" of a run's id."""
    return run.removeprefix(_REPAIR) if run.startswith(_REPAIR) else ""


class Promise(NamedTuple):
    """What one run will write, for all other runs below the same root."""

    run: str
    """Its id; of a repair, as `of_repair`."""
    dataset: str
    uid: int
    """Who will own the files; counted only where it owns this file too."""
    gid: int
    """Of the files."""
    bytes: int
    """That are still to be written, in whole blocks."""
    files: int
    """Files and folders that are still to be made."""
    lock: str
    """The path of the dataset's lock; others may not be able to read it."""
    state: str = WORKING
    """`asked`: plan has not counted yet; `working`: a step holds the lock; `resting`: none does."""
    pool: str = ""
    """The storage pool of the files, as the vendor's commands call it; "": not known."""
    cluster: str = ""
    """The name of the cluster that elements run on; "" where they have no job numbers."""
    at_once: int = 0
    """How many of its elements, or steps that change many files, may be at work at once: its parts of
    `ops`."""
    ops: int = 0
    """Metadata operations a second of all runs below the root, as this run is configured; 0: no budget."""
    stays: bool = False
    """Whether elements go on where the process that waits for them is killed."""
    controller: ProcessName = ""
    """The workflow above the step; "" for a step by hand."""
    chunk_files: int = 0
    """How many chunk files (Lustre: objects) the files will be on storage targets; 0: not known, at least one
    each."""
    by: Mapping[str, object] = typed_json.NOTHING
    """The last step's process, a holder as in `lock`."""

    @property
    def repairs(self) -> str:
        """The release that it repairs; "" of a run."""
        return repaired_by(self.run)


PROMISE = Document(Promise, "what a run promised itself")
