"""What the steps return: the JSON of `--receipt` and `--progress json`. Copy, permissions, verify and publish
keep it in `receipts/<step>.json`, too, with the number of its format (`dataset.receipts`). Pure.

A key once here keeps its meaning. Times are seconds since the epoch, sizes are bytes.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NotRequired, TypedDict

from penstock.core import human
from penstock.core.checks import CheckResult
from penstock.core.documents.differences import Difference
from penstock.core.documents.findings import Finding
from penstock.core.documents.typed_json import Document
from penstock.core.documents.verdict import AuditShown


class StepReceipt(TypedDict):
    """What the receipts of all steps have."""

    step: str
    dataset: str
    run: str
    release: str
    published: bool
    """The release stands, so that nothing was left to do."""
    started: float
    ended: float
    seconds: NotRequired[float]
    """Of all commands that worked on the step."""
    moved_bytes: NotRequired[int]
    """What the last command that copied or read any moved itself: not what it found done, linked or carried
    over."""
    moved_seconds: NotRequired[float]
    """Of that command."""
    files: NotRequired[int]
    bytes: NotRequired[int]
    elements: NotRequired[int]
    slurm_api: NotRequired[str]
    """How SLURM was spoken to, of copy and verify: `commands`, `pyslurm 25.11.2`, or `pyslurm 25.11.2, then
    commands`. "" where elements ran without SLURM."""


class CopyReceipt(StepReceipt, total=False):
    """Of copy: all elements together; `linked` and `taken` count rows, `copied_bytes` bytes."""

    amended: int
    """Files of another version than the listed one."""
    gone: int
    elements_run: int
    copied_rows: int
    copied_bytes: int
    linked: int
    taken: int
    retries: int
    hosts: Sequence[str]


class ModesSet(TypedDict):
    """What permissions found and set."""

    files: int
    folders: int
    changed_files: int
    changed_folders: int
    swept: int
    """Temporary files of dead attempts that were removed."""
    file_mode: str
    """Octal, as people write it; `dir_mode` likewise."""
    dir_mode: str
    gid: int | None
    acl: Sequence[str]
    """The entries of named users and groups that everything has, by number."""


class PermissionsReceipt(StepReceipt, total=False):
    """Of permissions: what every file and folder has now, and how many this step changed."""

    folders: int
    changed_files: int
    changed_folders: int
    file_mode: str
    dir_mode: str
    gid: int | None
    acl: Sequence[str]
    swept: int
    """Temporary files of dead attempts that were removed."""
    copies: str
    """Digest of the attempts whose copies were closed (`dataset.receipts.copies`)."""


class VerifyReceipt(StepReceipt, total=False):
    """Of verify: `grades` and `methods` count rows by how they were read back."""

    grades: Mapping[str, int]
    methods: Mapping[str, int]
    copied_again: Sequence[int]
    """Shards of which files did not read back as they were copied."""
    hosts: Sequence[str]
    carried_files: int
    """Linked files that were not read, and their bytes; both are in `files` and `bytes`, too."""
    carried_bytes: int
    beside_copy_bytes: int
    """Those that elements of copy read, while others were copied: not in this step's seconds."""


class PublishReceipt(StepReceipt, total=False):
    """Of publish: the release as it was sealed, and where `current` leads."""

    giants: int
    seal: str
    """`sha256:<hex>` of the seal's bytes."""
    root: str
    evidence: Mapping[str, object]
    manifests: Mapping[str, object]
    previous: str | None
    """What `current` named before."""
    moved: bool
    """Whether `current` was moved."""
    path: str
    current: str | None


class ListResult(TypedDict):
    """Of list: the run that it made or met."""

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
    """Of plan."""

    dataset: str
    run: str
    release: str
    published: bool
    files: int
    bytes: int
    giants: int
    unchanged: int
    unchanged_bytes: int
    renamed: int
    """Those of the unchanged files that the release before holds under another name."""
    taken: int
    taken_bytes: int
    shards: int
    """How many."""
    base: str | None
    folders: int
    why: Sequence[str]


class PreflightResult(TypedDict):
    """Of preflight."""

    dataset: str
    checked: Sequence[str]
    """What was found in order, and notes: a line each."""
    warnings: Sequence[str]
    results: Sequence[CheckResult]
    """All that was looked at, with what warns and stops, in the order of the checks."""
    nodes: Sequence[Mapping[str, object]]
    """What nodes answered to the probe: `core.documents.node_answer`, each with its format."""


class SkippedJson(TypedDict):
    """Files that an audit did not open, since their data is not here."""

    files: int
    bytes: int
    paths: Sequence[tuple[str, str]]
    """The first ten, each with why, in words."""


class AuditResult(TypedDict):
    """Of `penstock audit`."""

    dataset: str
    release: str
    audit: str
    status: str
    """PASSED, PARTLY (nothing was found, and not all that was due, or nothing, was read) or FINDINGS."""
    counts: Mapping[str, int]
    findings: Sequence[Finding]
    """The first thousand; `all_findings` is the path of the file that has all of them."""
    all_findings: str
    skipped: Mapping[str, SkippedJson]
    """What was not opened: by `offline` and `tiered`."""
    all_skipped: str
    """The path of the file that names them all; "" where nothing was skipped."""
    grade: str
    """`core.grades.audit_grade`."""
    files: int
    """That were read; `bytes` likewise."""
    of_files: int
    rows: int
    resumed: int
    bytes: int
    elements: int
    methods: Mapping[str, int]
    choice: str
    owner: bool
    """Whether this account stages the dataset: another one's audit does not count at the gate."""
    promise: str
    began: str
    """UTC, ISO 8601."""
    moved_bytes: int
    """Of `bytes`, those that this command read, in `seconds`."""
    seconds: float
    touched: NotRequired[int]
    """Of an audit that compared modification times, too: files that were read since theirs is another."""


class AmountJson(TypedDict):
    """Files, and their bytes."""

    files: int
    bytes: int


class SameJson(AmountJson):
    """Files that are the same as in the source, and by what."""

    how: str
    grade: str


class AdoptionResult(TypedDict):
    """What `penstock adopt` found."""

    dataset: str
    tree: str
    adoption: str
    """The comparison's id."""
    status: str
    """SAME, PARTLY (no difference was found, and not all bytes could be compared) or DIFFERS."""
    same: Sequence[SameJson]
    counts: Mapping[str, AmountJson]
    """By kind of difference; kinds that are only told are among them."""
    differences: Sequence[Difference]
    """The first thousand; `all_differences` is the path of the file that has all of them."""
    all_differences: str
    files: int
    """Of the listing; `bytes` likewise."""
    bytes: int
    scanned: int
    ignored: Mapping[str, int]
    sources: Sequence[str]
    read_source: bool
    methods: Mapping[str, int]
    earlier: int
    """Files, and parts of giants, that are the same and were read by an earlier command: they stand as they
    were read."""
    elements: int
    began: str
    """UTC, ISO 8601: when this tree was first compared with this listing."""
    moved_bytes: int
    """Those of the tree that this command read, in `seconds`."""
    seconds: float


class SealingResult(TypedDict):
    """What became of a tree that `penstock adopt --seal` made a release."""

    dataset: str
    release: str
    path: str
    current: str | None
    fetched: int
    """Files that the source was asked for, whole or some parts; also before the command was killed."""
    aside: Sequence[str]
    """The folder of what the release does not hold, if anything was moved there."""
    undo: str
    """The folder that says what was moved and which modes and times files had."""


class OverruleResult(TypedDict):
    """Of `penstock audit --overrule`."""

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
    status: str
    """`WHOLE`, or `REPAIRED`."""
    files: int
    """Whose names, sizes and modification times were compared."""
    read: int
    """Files of these that were read past the caches."""
    read_bytes: int
    touched: int
    """Files that were read since their modification time is another than was published."""
    promise: str
    """What the look can miss, in words."""
    look_seconds: float
    repaired: int
    also_repaired: Mapping[str, int]
    """Other release to files that it shared with this one, and that were repaired there, too."""
    also_in: Mapping[str, int]
    """Other release to damaged files that it shared with this one, and still has."""
    fetched_bytes: int
    repair_seconds: float


class RepairResult(TypedDict):
    """Of `penstock repair`."""

    dataset: str
    release: str
    audit: str
    status: str
    """REPAIRED, PARTLY or NOTHING."""
    repaired: Sequence[Sequence[str]]
    """[path, how] of each."""
    unrepairable: Sequence[Sequence[str]]
    """[path, why] of each."""
    left: Sequence[str]
    also_repaired: Mapping[str, Sequence[str]]
    """Other releases that had damaged files as the same inodes, to their paths that were repaired."""
    also_in: Mapping[str, int]
    """Other releases to how many of the damaged files they still have, since they could not be repaired."""
    fetched_bytes: int
    moved_bytes: int
    """Those that this command fetched, in `seconds`."""
    seconds: float
    fsync_ends: NotRequired[str]
    """Where an fsync of the fetched files ended, if not on the servers' disks: what the nodes' mounts say."""


class RollbackResult(TypedDict):
    """Of `penstock rollback`."""

    dataset: str
    release: str
    """The release that `current` names now."""
    left: str
    """The one that it named before; "" where it named this one already."""
    finished: bool
    """An interrupted rollback was finished, and nothing else was asked for."""
    path: str


class CollectedRelease(TypedDict):
    """What gc or remove did with one release, or would do."""

    release: str
    removed: bool
    held_by: Sequence[str]
    """In words, each beginning with the rule, the pin or the run."""
    files: int
    """As its seal has it; `bytes` likewise."""
    bytes: int


class CollectedStaging(TypedDict):
    """What gc did with the staging of a run that did not end."""

    staging: str
    removed: bool
    why: str
    """Why it stays."""


class Frees(NamedTuple):
    """What a removal gives back, counted before: blocks, of inodes all of whose names go."""

    bytes: int
    inodes: int
    shared_bytes: int
    """Of files that other names hold."""
    users: Mapping[str, int]
    """Bytes by name, or number where there is none; `groups` likewise, `projects` by number."""
    groups: Mapping[str, int]
    projects: Mapping[str, int]
    unseen_folders: int
    """Files and folders that could not be looked at."""

    def in_words(self, verb: str) -> list[str]:
        """Lines for people: the sum, then by user, group and project."""
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
    """Of `penstock gc` and `remove`."""

    dataset: str
    dry_run: bool
    releases: Sequence[CollectedRelease]
    stagings: Sequence[CollectedStaging]
    interrupted: Sequence[str]
    """Folders that an interrupted removal had left."""
    ended_pins: Sequence[str]
    unpinned: Sequence[str]
    frees: Frees
    cleared: int
    """Folders of which all files were removed."""
    waits: str
    """Why files are left; "": none are."""
    gone: NotRequired[str]
    """The dataset's folder, where all of it is removed."""


class Counts(TypedDict):
    """How far a step is that elements do."""

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
    holds_tree: bool
    """It is what is left of a tree that penstock did not write (`adopt --seal`)."""


class RunState(TypedDict, total=False):
    """What a dataset's last run does, or how it ended (`jobs.dataset_state`); {} where it came to its end."""

    state: str
    """`listing`, `planning`, `copying`, `setting permissions`, `verifying`, `publishing`, `starting`,
    `waiting`, `stopped`, `failed`, `unknown`; `damaged` where its state lies in no folder."""
    step: str
    percent: float
    """Of the step's bytes, where elements do it; of its files where it has none."""
    why: str
    to_do: str
    exit: int
    """By the table of exit statuses, of a run that failed or was stopped."""
    signal: str
    """`SIGINT`."""
    at: str
    """When it failed or was stopped."""
    copy: Counts
    verify: Counts


class StatusResult(TypedDict, total=False):
    """Keys without a value are left out."""

    dataset: str
    state: str
    """As `gate` judges the dataset: `published`, `nothing published`, `held`, `damaged`, `foreign`, `newer`,
    `unreadable`. Where nothing stands against it and its last run is not at its end, that run's state."""
    why: str
    to_do: str
    pause: str
    hold: str
    """What a HOLD at the root does not do that it may be meant to."""
    current: str | None
    releases: Sequence[str]
    lock: str
    path: str
    """Where `gate` is open."""
    files: int
    bytes: int
    sealed: str
    last_audit: AuditShown | None
    findings: Mapping[str, int]
    seen: str
    under_way: str
    """What the dataset's owner stages now, for other accounts (`dataset.staging_notice`)."""
    run: str
    release: str
    work: RunState
    """What the last run does, or how it ended; for the dataset's owner."""
    problem: str
    """Why the rest cannot be said."""
    arrays: Sequence[str]
    abandoned: Sequence[str]
    pins: Sequence[str]
    """The release of each pin that stands, and the pin in words."""
    pinned: int
    """How many pins stand, those that no file was opened of included."""
    ops: Sequence[str]
    """Who has a part of `target.ops` now: account, host, since when; where there is a budget."""


class Preview(TypedDict, total=False):
    """What a dry run says of one dataset."""

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
    """Of `penstock run --dry-run`."""

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
"""By step."""
