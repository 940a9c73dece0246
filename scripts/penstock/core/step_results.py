"""Results of the steps: the JSON of `--receipt` and `--progress json`. Copy, permissions, verify and publish
also keep their result in `receipts/<step>.json`, with its format's number.

A key keeps its meaning for ever. Times are in seconds since the epoch, sizes in bytes.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NotRequired, TypedDict

from penstock.core import human
from penstock.core.findings import AuditShown, Difference, Finding
from penstock.core.run_steps import CheckResult
from penstock.core.typed_json import Document


class StepReceipt(TypedDict):
    """The fields that every receipt has."""

    step: str
    dataset: str
    run: str
    release: str
    published: bool  # whether the release was published already, so that nothing was left to do
    started: float
    ended: float
    seconds: NotRequired[float]  # seconds of all commands that worked on the step
    # bytes that the last command to move data read or copied, without files done before, linked or carried
    # over
    moved_bytes: NotRequired[int]
    moved_seconds: NotRequired[float]  # seconds of that command
    files: NotRequired[int]
    bytes: NotRequired[int]
    elements: NotRequired[int]
    # copy and verify only: `commands`, `pyslurm 25.11.2`, or `pyslurm 25.11.2, then commands`; "" without
    # SLURM
    slurm_api: NotRequired[str]


class CopyReceipt(StepReceipt, total=False):
    """Copy's totals over all elements. `linked` and `taken` count rows."""

    amended: int  # files whose version is not the listed version
    gone: int
    elements_run: int
    copied_rows: int
    copied_bytes: int
    linked: int
    taken: int
    retries: int
    hosts: Sequence[str]


class ModesSet(TypedDict):
    """Modes that the step permissions set, and the number of files and folders that it changed."""

    files: int
    folders: int
    changed_files: int
    changed_folders: int
    swept: int  # temporary files of dead attempts that were removed
    file_mode: str  # octal text, as is `dir_mode`
    dir_mode: str
    gid: int | None
    acl: Sequence[str]  # entries of named users and groups, by number, on every file and folder


class PermissionsReceipt(StepReceipt, total=False):
    """Modes of every file and folder, and the number that this step changed."""

    folders: int
    changed_files: int
    changed_folders: int
    file_mode: str
    dir_mode: str
    gid: int | None
    acl: Sequence[str]
    swept: int  # temporary files of dead attempts that were removed
    copies: str  # digest of the copy attempts whose files were given permissions (`dataset.receipts.copies`)


class VerifyReceipt(StepReceipt, total=False):
    """Verify's totals. `grades` and `methods` count rows."""

    grades: Mapping[str, int]
    methods: Mapping[str, int]
    copied_again: Sequence[int]  # shards with files that did not read back as they were copied
    hosts: Sequence[str]
    # linked files that were not read; they count in `files`, and `carried_bytes` in `bytes`
    carried_files: int
    carried_bytes: int
    beside_copy_bytes: int  # bytes that elements of copy read back, outside this step's seconds


class PublishReceipt(StepReceipt, total=False):
    """The sealed release, and the release that `current` leads to."""

    giants: int
    seal: str  # `sha256:<hex>` of the seal's bytes
    root: str
    evidence: Mapping[str, object]
    manifests: Mapping[str, object]
    previous: str | None  # the release that `current` led to before
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
    renamed: int  # unchanged files that the previous release has under another name
    taken: int
    taken_bytes: int
    shards: int  # number of shards
    base: str | None
    folders: int
    why: Sequence[str]


class PreflightResult(TypedDict):
    dataset: str
    checked: Sequence[str]  # lines with facts that are in order, and notes
    warnings: Sequence[str]
    results: Sequence[CheckResult]  # every check in sequence, including warnings and stops
    # the nodes' answers to the probe (`core.node_answer`), each with its format
    nodes: Sequence[Mapping[str, object]]


class SkippedJson(TypedDict):
    """Files that an audit did not open, since their data is in an archive or a lower tier."""

    files: int
    bytes: int
    paths: Sequence[tuple[str, str]]  # the first ten, each with its reason in words


class AuditResult(TypedDict):
    dataset: str
    release: str
    audit: str
    status: str  # PASSED, FINDINGS, or PARTLY if there are no findings but not all due files were read
    counts: Mapping[str, int]
    findings: Sequence[Finding]  # the first thousand
    all_findings: str  # path of the file with all findings
    skipped: Mapping[str, SkippedJson]  # files not opened, by `offline` and `tiered`
    all_skipped: str  # path of the file that lists all skipped files; "" if nothing was skipped
    grade: str  # the audit's grade, from `core.grades.audit_grade`
    files: int  # files read, which have `bytes`
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
    moved_bytes: int  # the part of `bytes` that this command read, in `seconds`
    seconds: float
    # files read because their modification time differs, if the audit compared these times
    touched: NotRequired[int]


class AmountJson(TypedDict):
    files: int
    bytes: int


class SameJson(AmountJson):
    """Files that equal the source's files, and the kind of comparison that showed this."""

    how: str
    grade: str


class AdoptionResult(TypedDict):
    """What `penstock adopt` found."""

    dataset: str
    tree: str
    adoption: str  # the comparison's id
    status: str  # SAME, DIFFERS, or PARTLY if there is no difference but not all bytes could be compared
    same: Sequence[SameJson]
    counts: Mapping[str, AmountJson]  # amounts by kind of difference, including kinds that are only reported
    differences: Sequence[Difference]  # the first thousand
    all_differences: str  # path of the file with all differences
    files: int  # files in the listing, which have `bytes`
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
    fetched: int  # files requested from the source, whole or in part, also by commands that were killed
    aside: Sequence[str]  # the folder of files that the release does not contain, if any were moved there
    undo: str  # the folder with records of moves, and of the earlier modes and times of files


class OverruleResult(TypedDict):
    dataset: str
    release: str
    status: str
    counts: Mapping[str, int]
    why: str


class MendResult(TypedDict):
    """The result of `penstock gate --mend`."""

    dataset: str
    release: str
    path: str
    status: str  # `WHOLE`, or `REPAIRED`
    files: int  # files whose names, sizes and modification times were compared
    read: int  # number of these files that were read past the caches
    read_bytes: int
    touched: int  # files read because their modification time is not the published one
    promise: str  # what this quick check can miss, in words
    look_seconds: float
    repaired: int
    also_repaired: Mapping[str, int]  # by other release: number of shared files that were repaired there, too
    also_in: Mapping[str, int]  # by other release: number of shared files that are still damaged there
    fetched_bytes: int
    repair_seconds: float


class RepairResult(TypedDict):
    dataset: str
    release: str
    audit: str
    status: str  # REPAIRED, PARTLY or NOTHING
    repaired: Sequence[Sequence[str]]  # [path, how] of each repaired file
    unrepairable: Sequence[Sequence[str]]  # [path, why] of each file that could not be repaired
    left: Sequence[str]
    also_repaired: Mapping[str, Sequence[str]]  # by other release: repaired paths of inodes that it shared
    # by other release: number of its damaged files that could not be repaired
    also_in: Mapping[str, int]
    fetched_bytes: int
    moved_bytes: int  # bytes that this command fetched, in `seconds`
    seconds: float
    # where an fsync of fetched files ended, judging by the nodes' mounts, if not on the servers' disks
    fsync_ends: NotRequired[str]


class RollbackResult(TypedDict):
    dataset: str
    release: str  # the release that `current` leads to now
    left: str  # the release that `current` led to before; "" if it was `release`
    finished: bool  # whether the call only finished an interrupted rollback
    path: str


class CollectedRelease(TypedDict):
    """The result of gc or remove for a release, also in a dry run."""

    release: str
    removed: bool
    held_by: Sequence[str]  # reasons to keep it; each begins with the rule, the pin or the run
    files: int  # number of files according to its seal, which also has `bytes`
    bytes: int


class CollectedStaging(TypedDict):
    """The result of gc for the staging of an unfinished run."""

    staging: str
    removed: bool
    why: str  # why the staging is kept


class Frees(NamedTuple):
    """Space that a removal frees, counted beforehand. Only inodes that lose all their names count."""

    bytes: int
    inodes: int
    shared_bytes: int  # bytes of files that keep other names
    # bytes by user name, or by number if there is no name; `groups` is by group, `projects` by number
    users: Mapping[str, int]
    groups: Mapping[str, int]
    projects: Mapping[str, int]
    unseen_folders: int  # files and folders that could not be read

    def in_words(self, verb: str) -> list[str]:
        """Return readable lines: the sum, then the space by user, group and project."""
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
    cleared: int  # number of folders whose files were all removed
    waits: str  # why files are left; "" if none are left
    gone: NotRequired[str]  # path of the dataset's folder, if all of it is removed


class Counts(TypedDict):
    """Progress of a step whose work elements do."""

    elements: int  # number of the step's shards
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
    holds_tree: bool  # whether it is the rest of an adopted tree (`adopt --seal`)


class RunState(TypedDict, total=False):
    """The activity of a dataset's last run, or how the run ended (`jobs.dataset_state`); {} if completed."""

    # `listing`, `planning`, `copying`, `setting permissions`, `verifying`, `publishing`, `starting`,
    # `waiting`, `stopped`, `failed`, `unknown`; `damaged` if the run's state is in no folder
    state: str
    step: str
    percent: float  # for steps in elements: finished part of the step's bytes, or of its files without bytes
    why: str
    to_do: str
    exit: int  # exit status of a failed or stopped run
    signal: str  # `SIGINT`
    at: str  # when it failed or was stopped
    copy: Counts
    verify: Counts


class StatusResult(TypedDict, total=False):
    """Status of a dataset. Keys without a value are left out."""

    dataset: str
    # The state as `gate` judges it: `published`, `nothing published`, `held`, `damaged`, `foreign`, `newer`,
    # `unreadable`. If `gate` is open and the last run is unfinished: that run's state.
    state: str
    why: str
    to_do: str
    pause: str
    hold: str  # what a HOLD file at the root does not stop, although its author may expect so
    current: str | None
    releases: Sequence[str]
    lock: str
    path: str  # path of the release's data, if `gate` is open
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
    problem: str  # why the other keys are missing
    arrays: Sequence[str]
    abandoned: Sequence[str]
    pins: Sequence[str]  # [release and pin in words] of each valid pin
    pinned: int  # valid pins, including those whose file was not opened
    ops: Sequence[str]  # holders of a share of `target.ops`, if it is set: account, host, since when


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
    exit: int  # exit status of a run that meets the problem


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
