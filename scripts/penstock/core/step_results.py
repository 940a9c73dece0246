"""What the steps return: the JSON of `--receipt` and `--progress json`. Copy, permissions, verify and publish
also keep it in `receipts/<step>.json`, with its format's number.

A key keeps its meaning for ever. Times are seconds since the epoch, sizes bytes.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NotRequired, TypedDict

from penstock.core import human
from penstock.core.audit_documents import AuditShown, Finding
from penstock.core.differences import Difference
from penstock.core.events import CheckResult
from penstock.core.typed_json import Document


class StepReceipt(TypedDict):
    """The fields that every receipt has."""

    step: str
    dataset: str
    run: str
    release: str
    published: bool  # the release is published: nothing was left to do
    started: float
    ended: float
    seconds: NotRequired[float]  # of all commands that worked on the step
    # read or copied by the last command that moved data: not what it found done, linked or carried over
    moved_bytes: NotRequired[int]
    moved_seconds: NotRequired[float]  # of that command
    files: NotRequired[int]
    bytes: NotRequired[int]
    elements: NotRequired[int]
    # of copy and verify: `commands`, `pyslurm 25.11.2`, or `pyslurm 25.11.2, then commands`; "": ran without
    # SLURM
    slurm_api: NotRequired[str]


class CopyReceipt(StepReceipt, total=False):
    """Copy's totals over all elements. `linked` and `taken` count rows."""

    amended: int  # files of another version than the listed one
    gone: int
    elements_run: int
    copied_rows: int
    copied_bytes: int
    linked: int
    taken: int
    retries: int
    hosts: Sequence[str]


class ModesSet(TypedDict):
    """Modes that permissions set, and how many files and folders it changed."""

    files: int
    folders: int
    changed_files: int
    changed_folders: int
    swept: int  # temporary files of dead attempts that were removed
    file_mode: str  # octal text, as `dir_mode`
    dir_mode: str
    gid: int | None
    acl: Sequence[str]  # entries of named users and groups that everything has, by number


class PermissionsReceipt(StepReceipt, total=False):
    """Modes of every file and folder, and how many this step changed."""

    folders: int
    changed_files: int
    changed_folders: int
    file_mode: str
    dir_mode: str
    gid: int | None
    acl: Sequence[str]
    swept: int  # temporary files of dead attempts that were removed
    copies: str  # digest of the attempts whose copies were closed (`dataset.receipts.copies`)


class VerifyReceipt(StepReceipt, total=False):
    """Verify's totals. `grades` and `methods` count rows."""

    grades: Mapping[str, int]
    methods: Mapping[str, int]
    copied_again: Sequence[int]  # shards with files that did not read back as they were copied
    hosts: Sequence[str]
    # linked files that were not read; they count in `files`, and `carried_bytes` in `bytes`
    carried_files: int
    carried_bytes: int
    beside_copy_bytes: int  # read back by elements of copy, outside this step's seconds


class PublishReceipt(StepReceipt, total=False):
    """The sealed release, and where `current` leads."""

    giants: int
    seal: str  # `sha256:<hex>` of the seal's bytes
    root: str
    evidence: Mapping[str, object]
    manifests: Mapping[str, object]
    previous: str | None  # the release that `current` named before
    moved: bool  # whether `current` was moved
    path: str
    current: str | None


class ListResult(TypedDict):
    """The run that list made, or that existed already."""

    dataset: str
    run: str
    release: str
    files: int
    bytes: int
    scanned: int
    listing_digest: str
    ignored: Mapping[str, int]
    hard_links: Mapping[str, int]
    published: bool
    current: str | None


class PlanResult(TypedDict):
    dataset: str
    run: str
    release: str
    published: bool
    files: int
    bytes: int
    giants: int
    unchanged: int
    unchanged_bytes: int
    renamed: int  # unchanged files that the release before holds under another name
    taken: int
    taken_bytes: int
    shards: int  # their number
    base: str | None
    folders: int
    why: Sequence[str]


class PreflightResult(TypedDict):
    dataset: str
    checked: Sequence[str]  # facts in order, and notes: a line each
    warnings: Sequence[str]
    results: Sequence[CheckResult]  # every check, in order, with the warnings and stops
    # the nodes' answers to the probe (`core.node_answer`), each with its format
    nodes: Sequence[Mapping[str, object]]


class SkippedJson(TypedDict):
    """Files that an audit did not open, since their data is not here."""

    files: int
    bytes: int
    paths: Sequence[tuple[str, str]]  # the first ten, each with its reason in words


class AuditResult(TypedDict):
    dataset: str
    release: str
    audit: str
    status: str  # PASSED, FINDINGS, or PARTLY: no findings, but not all that was due was read
    counts: Mapping[str, int]
    findings: Sequence[Finding]  # the first thousand
    all_findings: str  # path of the file with all of them
    skipped: Mapping[str, SkippedJson]  # files not opened, by `offline` and `tiered`
    all_skipped: str  # path of the file that names them all; "": nothing was skipped
    grade: str  # `core.grades.audit_grade`
    files: int  # files read; `bytes` likewise
    of_files: int
    rows: int
    resumed: int
    bytes: int
    elements: int
    methods: Mapping[str, int]
    choice: str
    owner: bool  # whether this account stages the dataset: the gate ignores other accounts' audits
    promise: str
    began: str  # UTC, ISO 8601
    moved_bytes: int  # part of `bytes` that this command read, in `seconds`
    seconds: float
    # files read because their modification time differs, where the audit compared these
    touched: NotRequired[int]


class AmountJson(TypedDict):
    files: int
    bytes: int


class SameJson(AmountJson):
    """Files that equal the source's, and by which comparison."""

    how: str
    grade: str


class AdoptionResult(TypedDict):
    """What `penstock adopt` found."""

    dataset: str
    tree: str
    adoption: str  # the comparison's id
    status: str  # SAME, DIFFERS, or PARTLY: no difference, but not all bytes could be compared
    same: Sequence[SameJson]
    counts: Mapping[str, AmountJson]  # by kind of difference, including kinds that are only reported
    differences: Sequence[Difference]  # the first thousand
    all_differences: str  # path of the file with all of them
    files: int  # of the listing; `bytes` likewise
    bytes: int
    scanned: int
    ignored: Mapping[str, int]
    sources: Sequence[str]
    read_source: bool
    methods: Mapping[str, int]
    earlier: int  # equal files, and parts of giants, that an earlier command read
    elements: int
    began: str  # UTC, ISO 8601: the first comparison of this tree with this listing
    moved_bytes: int  # bytes of the tree that this command read, in `seconds`
    seconds: float


class SealingResult(TypedDict):
    """The release that `penstock adopt --seal` made of a tree."""

    dataset: str
    release: str
    path: str
    current: str | None
    fetched: int  # files requested from the source, whole or in part; those of killed commands count
    aside: Sequence[str]  # the folder of files that the release does not hold, if any were moved there
    undo: str  # the folder that records moves, and the earlier modes and times of files


class OverruleResult(TypedDict):
    dataset: str
    release: str
    status: str
    counts: Mapping[str, int]
    why: str


class MendResult(TypedDict):
    """What `penstock gate --mend` did."""

    dataset: str
    release: str
    path: str
    status: str  # `WHOLE`, or `REPAIRED`
    files: int  # files whose names, sizes and modification times were compared
    read: int  # files of these that were read past the caches
    read_bytes: int
    touched: int  # files read because their modification time is not the published one
    promise: str  # what the look can miss, in words
    look_seconds: float
    repaired: int
    also_repaired: Mapping[str, int]  # other release: number of shared files that were repaired there, too
    also_in: Mapping[str, int]  # other release: number of shared files that are still damaged there
    fetched_bytes: int
    repair_seconds: float


class RepairResult(TypedDict):
    dataset: str
    release: str
    audit: str
    status: str  # REPAIRED, PARTLY or NOTHING
    repaired: Sequence[Sequence[str]]  # [path, how] of each
    unrepairable: Sequence[Sequence[str]]  # [path, why] of each
    left: Sequence[str]
    also_repaired: Mapping[str, Sequence[str]]  # other release: repaired paths of inodes that it shared
    # other release: number of damaged files that it still has, since they could not be repaired
    also_in: Mapping[str, int]
    fetched_bytes: int
    moved_bytes: int  # bytes that this command fetched, in `seconds`
    seconds: float
    # where an fsync of fetched files ended, if not on the servers' disks, by the nodes' mounts
    fsync_ends: NotRequired[str]


class RollbackResult(TypedDict):
    dataset: str
    release: str  # the release that `current` names now
    left: str  # the release that it named before; "": the same
    finished: bool  # the call only finished an interrupted rollback
    path: str


class CollectedRelease(TypedDict):
    """What gc or remove did with a release, or would do."""

    release: str
    removed: bool
    held_by: Sequence[str]  # in words; each begins with the rule, the pin or the run
    files: int  # as in its seal; `bytes` likewise
    bytes: int


class CollectedStaging(TypedDict):
    """What gc did with the staging of an unfinished run."""

    staging: str
    removed: bool
    why: str  # why it stays


class Frees(NamedTuple):
    """Space that a removal frees, counted beforehand: of inodes that lose all their names."""

    bytes: int
    inodes: int
    shared_bytes: int  # of files that keep other names
    # bytes by name, or by number without a name; `groups` likewise, `projects` by number
    users: Mapping[str, int]
    groups: Mapping[str, int]
    projects: Mapping[str, int]
    unseen_folders: int  # files and folders that could not be read

    def in_words(self, verb: str) -> list[str]:
        """Return lines for people: the sum, then by user, group and project."""
        amount = f"{human.size(self.bytes)} ({self.bytes:,} bytes) in {human.counted(self.inodes, 'inode')}"
        lines = [f"  {verb}: {amount}; {human.size(self.shared_bytes)} are shared with what stays"]
        for name, amounts in (("user", self.users), ("group", self.groups), ("project", self.projects)):
            if amounts:
                each = ", ".join(
                    f"{human.printable(who)} {human.size(size)}" for who, size in amounts.items()
                )
                lines.append(f"    by {name}: {each}")
        if self.unseen_folders:
            lines.append(
                f"    {human.counted(self.unseen_folders, 'folder')} could not be looked into: at least this"
            )
        return lines


class Collected(TypedDict):
    """Result of `penstock gc` and `remove`."""

    dataset: str
    dry_run: bool
    releases: Sequence[CollectedRelease]
    stagings: Sequence[CollectedStaging]
    interrupted: Sequence[str]  # folders left by an interrupted removal
    ended_pins: Sequence[str]
    unpinned: Sequence[str]
    frees: Frees
    cleared: int  # folders whose files were all removed
    waits: str  # why files are left; "": none are
    gone: NotRequired[str]  # the dataset's folder, if all of it is removed


class Counts(TypedDict):
    """Progress of a step that elements do."""

    elements: int  # its shards
    done: int
    files: int
    bytes: int
    of_bytes: int
    failed: int


class StagingStatus(TypedDict, total=False):
    """The staging of another run."""

    staging: str
    run: str
    files: int
    bytes: int
    idle_seconds: int
    holds_tree: bool  # it is the rest of an adopted tree (`adopt --seal`)


class RunState(TypedDict, total=False):
    """What a dataset's last run does, or how it ended (`jobs.dataset_state`); {} after a complete run."""

    # `listing`, `planning`, `copying`, `setting permissions`, `verifying`, `publishing`, `starting`,
    # `waiting`, `stopped`, `failed`, `unknown`; `damaged`: its state is in no folder
    state: str
    step: str
    percent: float  # of the step's bytes, or files if it has no bytes; of steps in elements
    why: str
    to_do: str
    exit: int  # exit status of a failed or stopped run
    signal: str  # `SIGINT`
    at: str  # when it failed or was stopped
    copy: Counts
    verify: Counts


class StatusResult(TypedDict, total=False):
    """Status of a dataset; keys without a value are left out."""

    dataset: str
    # `published`, `nothing published`, `held`, `damaged`, `foreign`, `newer`, `unreadable`, as `gate` judges;
    # the last run's state, where `gate` is open and that run is unfinished
    state: str
    why: str
    to_do: str
    pause: str
    hold: str  # what a HOLD at the root does not stop, although its author may expect it
    current: str | None
    releases: Sequence[str]
    lock: str
    path: str  # if `gate` is open
    files: int
    bytes: int
    sealed: str
    last_audit: AuditShown | None
    findings: Mapping[str, int]
    seen: str
    under_way: str  # what the dataset's owner stages now, for other accounts (`dataset.staging_notice`)
    run: str
    release: str
    work: RunState  # the last run; for the dataset's owner
    problem: str  # why the rest cannot be said
    arrays: Sequence[str]
    abandoned: Sequence[str]
    pins: Sequence[str]  # [release and pin in words] of each valid pin
    pinned: int  # valid pins, including those whose file was not opened
    ops: Sequence[str]  # holders of a share of `target.ops`: account, host, since when; if there is a budget


class Preview(TypedDict, total=False):
    """A dataset in a dry run."""

    dataset: str
    sources: Sequence[str]
    target: str
    backend: str
    state: str
    current: str | None
    files: int
    bytes: int
    lock: str
    would: str
    takes: str
    problem: str


class DryRunResult(TypedDict):
    datasets: Mapping[str, Preview]


RECEIPTS: Mapping[str, Document[Any]] = {
    step: Document(kind, "a step's receipt")
    for step, kind in (
        ("copy", CopyReceipt),
        ("permissions", PermissionsReceipt),
        ("verify", VerifyReceipt),
        ("publish", PublishReceipt),
    )
}
