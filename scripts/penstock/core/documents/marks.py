"""Small documents of a dataset, each a file of its own: what exists, what is to be done, what a person
ordered."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from penstock.core.documents.history_line import Author
from penstock.core.documents.typed_json import INLINE, Document, FileNumber, Moment, ProcessName, RunName


class StateMarker(NamedTuple):
    """`state.json` in a dataset's state: penstock 1.0 or later made the state."""

    penstock: str  # the version that made the state


class StatePointer(NamedTuple):
    """`.penstock` in a dataset's folder, as a file: its state lies elsewhere (`target.state_root`)."""

    state_root: str
    id: str  # of the state's `root.json`; another id: made while this state was not mounted


class StateRoot(NamedTuple):
    """`root.json` in a state below `target.state_root`: the dataset's folder that it belongs to."""

    id: str
    root: str  # the target's root, absolute


class ClaimFile(NamedTuple):
    """`claims/<number>.json`: a run that a dataset was claimed for."""

    run: RunName  # "": the claim cannot be read
    number: int  # one above the previous claim's
    by: Mapping[str, object] | None  # the `list` that made it, as `dataset.holder` describes processes
    controller: ProcessName  # the workflow above that list, on the same host; "": none


class Given(NamedTuple):
    """Who gave an order, or ended a step, and when."""

    at: Moment = 0.0
    user: str = "?"
    host: str = "?"


class LastEnd(NamedTuple):
    """`ended.json` in a dataset's state: how the last command that staged it failed or was stopped."""

    step: str = ""  # "": stopped between two steps
    exit: int = 1  # exit status of the table; 128 plus the signal's number
    why: str = ""  # one line
    hint: str = ""  # what to do, by the message; or ""
    given: Annotated[Given, INLINE] = Given()
    stopped: bool = False  # by a signal or `penstock cancel`, not by an error


class Cancellation(NamedTuple):
    """`cancelled.json` in a dataset's state: the last `penstock cancel`, which ended the dataset's arrays."""

    nonce: str = ""  # distinguishes cancels; "": there was none
    given: Annotated[Given, INLINE] = Given()


class Throttle(NamedTuple):
    """`throttle.json` in a run's folder: the last `penstock limit DATASET --nodes N`."""

    at_once: int = 0  # elements of a step; 0: as in `cluster.max_elements`
    given: Annotated[Given, INLINE] = Given()


class TakenMark(NamedTuple):
    """`runs/<run>/taken.json`: another run was planned with this run's staging, and may hold files of it."""

    by: str  # the other run
    staging: str  # name of the staging below `releases/`; "": unchanged


class AdoptedTree(NamedTuple):
    """`runs/<run>/adopted.json`: the run's staging is, or is to become, a tree that penstock did not write.
    Written before the tree is changed. The inode of its top folder shows where it is now: a killed run
    resumes from there."""

    run: RunName
    adoption: str  # the comparison's id
    folder: str  # of that comparison's state
    tree: str  # the tree's former path, without links
    device: FileNumber
    inode: FileNumber  # of its top folder
    aside: str  # where files are moved that the release will not hold
    at: str  # UTC, ISO 8601
    settled: bool = False  # every file taken over is in the journals: only a copy's work is left

    @property
    def key(self) -> str:
        """The `staging` of rows that are taken over."""
        return f"adopted-{self.adoption}"


class RollbackIntent(NamedTuple):
    """`rollback.json`: where `current` is about to lead, until the history has the rollback, by this line."""

    release: str
    left: Annotated[str, "from"]  # the release that `current` named at that time
    nonce: str  # also in the history's line: two rollbacks in one second each have a line
    at: str  # UTC, ISO 8601
    author: Annotated[Author, INLINE]
    claim: int  # number of the valid claim


class RemovalMark(NamedTuple):
    """`releases/.removing-<release>`: a release is about to be removed, and no reader pins it any more. The
    history gets this line once the release has lost its name."""

    release: str
    nonce: str  # in the new name of the release's folder: `.removed-<release>-<nonce>`
    at: str  # UTC, ISO 8601
    author: Annotated[Author, INLINE]
    run: RunName  # the run that published it, whose state is removed, too; "": no seal
    why: str
    files: int  # as in the seal; `bytes` likewise
    bytes: int


class EmptyFolders(NamedTuple):
    """`empty-folders.json` in a run, and beside the manifest: a source's empty folders, if they are kept."""

    folders: Sequence[str]  # paths below `data/` in byte order; bytes that are not UTF-8 as surrogate escapes


STATE_MARKER = Document(StateMarker, "a dataset's state")
STATE_ROOT = Document(StateRoot, "a state's root")
STATE_POINTER = Document(StatePointer, "where a dataset's state lies")
CLAIM_FILE = Document(ClaimFile, "a claim of a dataset")
LAST_END = Document(LastEnd, "how a dataset's last command ended")
CANCELLATION = Document(Cancellation, "a dataset's mark of a cancel")
THROTTLE = Document(Throttle, "a run's throttle")
TAKEN_MARK = Document(TakenMark, "the mark of a staging that was taken over")
ADOPTED_TREE = Document(AdoptedTree, "the mark of an adopted tree")
ROLLBACK_INTENT = Document(RollbackIntent, "the intent of a rollback")
REMOVAL_MARK = Document(RemovalMark, "the mark of a removal")
EMPTY_FOLDERS = Document(EmptyFolders, "a list of empty folders")
