"""Small documents of a dataset, each a file of its own, which its class names first: what stands, what is to
be done, what a person ordered. Pure; modules of `dataset`, `target`, `jobs` and `keep` read and
write the files."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from penstock.core.documents.history_line import Author
from penstock.core.documents.typed_json import INLINE, Document, FileNumber, Moment, ProcessName, RunName


class StateMarker(NamedTuple):
    """`state.json` in a dataset's state: penstock 1.0 or a later version made the state."""

    penstock: str
    """The version that made the state."""


class StatePointer(NamedTuple):
    """`.penstock` in a dataset's folder, as a file: its state lies elsewhere (`target.state_root`)."""

    state_root: str
    id: str
    """That of the state's `root.json`: a state of another id was made where this one was not mounted."""


class StateRoot(NamedTuple):
    """`root.json` in a state below `target.state_root`: the dataset's folder that it belongs to."""

    id: str
    root: str
    """The target's root, absolute."""


class ClaimFile(NamedTuple):
    """`claims/<number>.json`: a run that a dataset was claimed for."""

    run: RunName
    """"" where the claim cannot be read."""
    number: int
    """One above the claim before."""
    by: Mapping[str, object] | None
    """The `list` that made it, as `dataset.holder` describes processes."""
    controller: ProcessName
    """The workflow above that list, on the same host; "" without one."""


class Given(NamedTuple):
    """Who gave an order, or ended a step, and when."""

    at: Moment = 0.0
    user: str = "?"
    host: str = "?"


class LastEnd(NamedTuple):
    """`ended.json` in a dataset's state: how the last command that staged it ended, where it did not succeed.

    A step that failed, was stopped by a signal, or was cancelled."""

    step: str = ""
    """"" where it was stopped between two steps."""
    exit: int = 1
    """By the table of exit statuses; 128 and the number of a signal."""
    why: str = ""
    """One line."""
    hint: str = ""
    """What to do, as the message said; "" where it said nothing."""
    given: Annotated[Given, INLINE] = Given()
    stopped: bool = False
    """By a signal or `penstock cancel`, and not by an error."""


class Cancellation(NamedTuple):
    """`cancelled.json` in a dataset's state: the last `penstock cancel`.

    One `penstock cancel`: who ended the dataset's arrays, and when."""

    nonce: str = ""
    """Tells one cancel from another; "" where there was none."""
    given: Annotated[Given, INLINE] = Given()


class Throttle(NamedTuple):
    """`throttle.json` in a run's folder: how many of its elements may run at once, as a person said last.

    One `penstock limit DATASET --nodes N`."""

    at_once: int = 0
    """Elements of a step; 0: as `cluster.max_elements` has it."""
    given: Annotated[Given, INLINE] = Given()


class TakenMark(NamedTuple):
    """`runs/<run>/taken.json`: another run was planned with this run's staging, and may hold files of it.

    Who took it, and what it is called."""

    by: str
    """The other run."""
    staging: str
    """Name of the staging below `releases/`; "": as the run itself named it."""


class AdoptedTree(NamedTuple):
    """`runs/<run>/adopted.json`: the run's staging is, or is to become, a tree that penstock did not write.

    It is written before anything of the tree is changed. Where the tree stands is seen by the inode of its
    top folder: a run that was killed goes on from that."""

    run: RunName
    adoption: str
    """The comparison's id."""
    folder: str
    """Of that comparison's state."""
    tree: str
    """Where the tree stood, without links."""
    device: FileNumber
    inode: FileNumber
    """Of its top folder."""
    aside: str
    """Where what the release will not hold is moved to."""
    at: str
    """UTC, ISO 8601."""
    settled: bool = False
    """Every file that is taken over is recorded in the journals: no more is to be done than a copy does."""

    @property
    def key(self) -> str:
        """What rows that are taken over name as their staging."""
        return f"adopted-{self.adoption}"


class RollbackIntent(NamedTuple):
    """`rollback.json`: where `current` is about to be led, until the history says that it was.

    The line that the history will get, once `current` names `release`."""

    release: str
    left: Annotated[str, "from"]
    """The release that `current` named when it was written."""
    nonce: str
    """The history's line has it, too: of two rollbacks in one second each has a line."""
    at: str
    """UTC, ISO 8601."""
    author: Annotated[Author, INLINE]
    claim: int
    """The number of the claim that stood."""


class RemovalMark(NamedTuple):
    """`releases/.removing-<release>`: a release is about to be removed, and no reader pins it any more.

    The line that the history will get, once the release has lost its name."""

    release: str
    nonce: str
    """In the name that the release's folder gets: `.removed-<release>-<nonce>`."""
    at: str
    """UTC, ISO 8601."""
    author: Annotated[Author, INLINE]
    run: RunName
    """The run that published it: its state goes, too. "" where there is no seal."""
    why: str
    files: int
    """As the seal has it; `bytes` likewise."""
    bytes: int


class EmptyFolders(NamedTuple):
    """`empty-folders.json` in a run, and beside the manifest: the folders of a source that hold nothing,
    where a dataset keeps them."""

    folders: Sequence[str]
    """Paths below `data/` in byte order, bytes that are not UTF-8 as surrogate escapes."""


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
