"""The typed configuration: what `config.loader.load` makes of the YAML file.

Sizes are bytes, rates bytes per second, durations seconds. Each key is declared here once: its type, how
people write it (`Size`, `Duration`, ...: `config.loader` reads it by that), and, in the sections that concern
a release's content, whether it is part of the run's identity (`Decides` or `Apart`). What the schema says
beside that is what is allowed and what it means. A test fails where the schema, this file and the example
`config.yaml` differ; docs/configuration.md is generated from the first two (`make docs`).
"""

# Annotations are read at run time: no `from __future__ import annotations`. Each dataclass has a docstring:
# dataclasses would write one from its annotations, which costs every process some milliseconds.
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

from penstock.config.backends import BACKENDS

T = TypeVar("T")

AUTO_TIME = 0
"""A time limit that penstock works out (`core.job_time`)."""

Decides = Annotated[T, "decides"]
"""Part of a run's identity: with another value the same listing makes another run, and another release."""
Apart = Annotated[T, "apart"]
"""Not part of a run's identity: the same run is found again whatever the value."""
Fixed = Annotated[T, "fixed"]
"""A setting without a key: its default holds everywhere, but in tests (`config.fixed_settings`)."""
Size = Annotated[int, "size"]
Rate = Annotated[int, "rate"]
Duration = Annotated[float, "duration"]
Folder = Annotated[Path, "folder"]

LONGEST_PIN = 14 * 86400.0
MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40
LARGE, KEPT_PERCENT = 100 * TIB, 5
"""From which size on so much of a file system is left free by default: parallel file systems slow down, and
their targets fill unevenly, long before nothing is left."""


@dataclass(frozen=True)
class TargetConfig:
    """The file system that datasets are staged to."""

    root: Folder
    """Absolute after loading (relative ones are relative to the working directory)."""
    state_root: Folder | None = None
    keep_free: Size | None = None
    """Bytes that a run leaves free on the target: see `kept`."""
    filesystem: Fixed[str] = "auto"
    """`auto`: the rules and tools of the kind of file system that the mount is (`filesystem.kinds`)."""
    ops: Fixed[int | None] = None
    """Metadata operations a second of all runs below the root, which the site's file sets; None: by the file
    system."""
    owners: Annotated[tuple[str, ...], "accounts"] = ()
    """Accounts, by name or number, whose releases gate and path take; (): the root's owner and the caller."""
    striping: str = "inherit"
    """Over how many targets new files are striped: as the folder has it (`inherit`), or by their sizes
    (`auto`)."""
    sign_with: Folder | None = None
    """The key that releases are signed with; None: they are not."""
    signers: Folder | None = None
    """Whose signatures hold, as ssh-keygen(1) has it under ALLOWED SIGNERS; None: none is asked for."""

    def kept(self, total: int) -> int:
        """Bytes that a run leaves free on a file system of `total` bytes.

        | `keep_free` | the file system    | left free                  |
        |-------------|--------------------|----------------------------|
        | given       | any                | that                       |
        | not given   | up to 100 TiB      | 1 GiB                      |
        | not given   | larger             | 5 %, and at least 1 TiB    |
        """
        if self.keep_free is not None:
            return self.keep_free
        return max(total * KEPT_PERCENT // 100, TIB) if total > LARGE else GIB


@dataclass(frozen=True)
class SourceConfig:
    """Where a dataset's data, or a part of it, comes from."""

    url: Annotated[str, "url"]
    into: Annotated[str, "into"] = ""
    """Folder below `data/`, normalised, or ""."""
    storage_options: Mapping[str, object] = field(default_factory=dict)
    """References only: `endpoint_url`, `profile`, `region`, `anon`, `ca_bundle`, `proxy`,
    `credentials_file`, and whatever an fsspec protocol takes that is no secret."""
    inventory: Annotated[str | None, "place"] = None
    """An S3 Inventory that is read in place of the listing: its manifest, or a folder with it."""
    list_from: Annotated[str | None, "place"] = None
    """A list of keys that is read in place of the listing."""
    archived: str = "refuse"
    """Objects that cannot be read before somebody has them restored: `refuse` them before a byte is copied,
    or `skip` them (counted)."""
    times: str = "store"
    """Where an object's time comes from: the `store`, or the object's own `metadata` (`mtime`), which costs a
    request each."""


@dataclass(frozen=True)
class ModeRule:
    """Other modes for the files and folders whose path below `data/` a pattern matches."""

    match: str
    """A pattern of gitignore."""
    file: Annotated[int | None, "file_mode"] = None
    """None: the rule says nothing of files. `dir` likewise."""
    dir: Annotated[int | None, "dir_mode"] = None


@dataclass(frozen=True)
class PermissionsConfig:
    """The group, the modes, the ACL and the times of a release's files."""

    group: Decides[str | None] = None
    file_mode: Decides[Annotated[int, "file_mode"]] = 0o440
    dir_mode: Decides[Annotated[int, "dir_mode"]] = 0o2550
    mtime: Decides[str] = "keep"
    """`keep`: the source's modification times; `now`: none are set."""
    modes: Decides[tuple[ModeRule, ...]] = ()
    """The last rule that matches a path goes before the others, and before `file_mode` and `dir_mode`."""
    acl: Decides[tuple[str, ...]] = ()
    """Entries of named users and groups (`core.posix_acl.parse`). Empty: ACLs are neither set nor looked
    at."""


@dataclass(frozen=True)
class FollowLimit:
    """How much of a dataset may change while it is copied, as shares of its files: see `allowed`."""

    changed: float = 0.05
    gone: float = 0.001

    def allowed(self, files: int) -> tuple[int, int]:
        """How many of `files` may be pinned anew, and how many may leave.

        A share above 0 allows at least one file, whatever the dataset's size; 0 allows none. Not all
        files may leave: a release is never empty.
        """
        changed, gone = (max(1, int(share * files)) if share else 0 for share in (self.changed, self.gone))
        return min(changed, files), max(0, min(gone, files - 1))


@dataclass(frozen=True)
class PartyConfig:
    """A person or an organisation, as a description names it."""

    name: str
    kind: str = "person"
    """`person` or `organization`."""
    url: str | None = None
    email: str | None = None


@dataclass(frozen=True)
class DescribeConfig:
    """What the description of a dataset's releases says beside what seal and manifest say."""

    name: str | None = None
    """None: the dataset's."""
    description: str | None = None
    """None: a sentence with its counts."""
    license: tuple[str, ...] = ()
    url: str | None = None
    """None: the source's, where that is a site of the web."""
    creators: tuple[PartyConfig, ...] = ()
    publisher: PartyConfig | None = None
    keywords: tuple[str, ...] = ()
    cite_as: str | None = None
    languages: tuple[str, ...] = ()


@dataclass(frozen=True)
class RetentionConfig:
    """Which releases gc leaves: what one of these holds stays."""

    last: int | None = None
    """The newest so many; None: none by their number."""
    within: Duration | None = None
    """Those that were published so many seconds ago, or later; None: none by their age."""
    named: bool = True
    """Those whose name was configured."""


@dataclass(frozen=True)
class DatasetConfig:
    """What is staged, and by which rules."""

    name: Decides[str]
    sources: Apart[tuple[SourceConfig, ...]]
    """`list` adds to the identity what decides of them: each source's URL, and its folder."""
    include: Decides[tuple[str, ...]] = ("**",)
    exclude: Decides[tuple[str, ...]] = ()
    release: Decides[str] = "auto"
    links: Decides[str] = "refuse"
    """Symbolic links in a POSIX source: `refuse` (listed, nothing copied), `skip`, `follow`
    (only to regular files below the source's root)."""
    empty_folders: Apart[str] = "leave"
    """Folders of a POSIX source that hold nothing: `leave` them out (counted), or `keep` them (`list` adds
    the kept ones to the identity)."""
    checksums: Decides[tuple[str, ...]] = ()
    """Keys of checksum files beside the data (`SHA256SUMS`, `*.sha256`)."""
    changed: Apart[str] = "refuse"
    """An object that changed since it was listed: `refuse` (the run ends with 5), `follow` (it is pinned
    anew, or leaves, within `FollowLimit`), `pinned` (a versioned S3 bucket is listed and read by version
    ids: a change is no event)."""
    follow_limit: Apart[Fixed[FollowLimit]] = FollowLimit()
    recall: Apart[Size] = 0
    """Bytes that copying may have fetched from an archive behind the folders of the sources."""
    permissions: Decides[PermissionsConfig] = PermissionsConfig()
    describe: Apart[Annotated[DescribeConfig | None, "description"]] = None
    """None: publish writes no description."""
    retention: Apart[RetentionConfig | None] = None
    """None: gc removes no release."""


AUTO_CORES: Final = "auto"


@dataclass(frozen=True)
class JobOptions:
    """What one step asks of SLURM. None: not asked for."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    constraint: str | None = None
    exclude: str | None = None
    """A list of hosts as SLURM writes it, such as n[1-4]."""
    wckey: str | None = None
    licenses: tuple[str, ...] = ()
    time: Annotated[int, "time_limit"] | None = AUTO_TIME
    """Seconds; AUTO_TIME: by the plan's estimate. None: the partition's default."""
    memory: Size | None = None
    core_spec: Annotated[int | Literal["auto"] | None, "none"] = AUTO_CORES
    """Cores of a node that SLURM keeps free of the job (--core-spec). None: `none` was configured, and the
    option is not given. `auto`: by what the cluster and its nodes are; `spec_cores` has it once that is
    known."""
    cpus: int | None = None
    max_elements: int = 4
    """Elements (nodes) at once."""

    @property
    def spec_cores(self) -> int | None:
        """`core_spec` of options that the cluster has settled. Raises ValueError of `auto`."""
        if isinstance(self.core_spec, str):
            raise ValueError("the cluster has not settled what core_spec: auto comes to")
        return self.core_spec

    @property
    def whole_nodes(self) -> bool:
        """Whether the job asks for --exclusive, of options that the cluster has settled.

        core_spec | cpus  | --exclusive
        a number  | any   | left out: core-spec takes whole nodes itself
        none      | given | no
        none      | null  | yes: an element gets what the node has, and not one CPU
        """
        return self.spec_cores is None and self.cpus is None

    @property
    def node_alone(self) -> bool | None:
        """Whether the job gets whole nodes, by core-spec or by --exclusive. None: it is for the cluster to
        settle, as `core_spec: auto` beside `cpus`."""
        if isinstance(self.core_spec, str):
            return replace(self, core_spec=None).whole_nodes or None
        return self.core_spec is not None or self.whole_nodes


@dataclass(frozen=True)
class ClusterConfig:
    """Where the steps run, and what they ask of SLURM."""

    backend: str = BACKENDS[0]
    """`local` or `slurm`."""
    options: JobOptions = JobOptions()
    steps: Mapping[str, JobOptions] = field(default_factory=dict)
    """Whole options for a step: `options` with that step's keys laid over."""
    python: str | None = None
    """Interpreter on the nodes; default: the one that runs now."""
    poll: Fixed[Duration] = 15.0
    """Seconds between two queries, after the first ones; up to a minute in long runs."""
    slurm_api: str = "commands"
    """How SLURM is spoken to: `commands`, `pyslurm`, or `auto`."""
    pyslurm_python: str | None = None
    """Interpreter that has pyslurm; default: the one that runs now."""
    retries: Fixed[int] = 2
    """How often elements that failed are submitted again within one run."""
    mail: str | None = None
    """An address, or an account of the cluster: gets mail when the submitted controller ends or fails."""
    probe: Fixed[bool] = True
    """Preflight runs a one-second job to see the environment on a node."""
    gpu_nodes: str = "refuse"
    """`allow` or `refuse`: whether elements that take whole nodes may take nodes with GPUs."""

    def of(self, step: str) -> JobOptions:
        return self.steps.get(step, self.options)


@dataclass(frozen=True)
class ListConfig:
    """How sources are listed."""

    resume_within: Fixed[Duration] = 3600.0
    """Seconds for which a listing that was broken off can be continued; 0: it never is."""


@dataclass(frozen=True)
class PlanConfig:
    """How a dataset is divided into shards, and what is taken over from the current release."""

    shard_bytes: Apart[Fixed[Size]] = TIB
    """Bytes that a shard has at most, about."""
    shard_files: Apart[Fixed[int]] = 500_000
    """Files that a shard has at most."""
    giant_bytes: Decides[Fixed[Size]] = 64 * GIB
    """Objects of this size and more are split into parts, over several shards."""
    part_bytes: Decides[Fixed[Size]] = 256 * MIB
    """A whole number of MiB."""
    reuse: Apart[str] = "auto"
    """How unchanged files come into a release: `auto`, `reflink`, `link`, `copy` or `none`."""


@dataclass(frozen=True)
class EngineConfig:
    """How an element copies and reads."""

    workers: Fixed[int | None] = None
    """Processes; None: by the CPUs."""
    streams: Annotated[int | None, "auto"] = None
    """Streams in all (processes x threads); None: auto, at most 64."""
    durability: Fixed[str] = "auto"
    """`fsync` each file, `syncfs` a barrier, or `auto` by file system."""
    limit: Rate | None = None
    """Bytes per second that one element reads from the source; None: no limit."""
    attempts: Fixed[int] = 5
    """Tries for each object before it counts as failed."""
    timeout: Duration = 60.0
    """Seconds without a byte before a connection counts as broken."""


@dataclass(frozen=True)
class VerifyConfig:
    """What a release must prove before it is published, and how."""

    source_checksum: Apart[str] = "auto"
    """`auto` checks what there is, by the cheapest of what proves as much; `require` refuses files that no
    checksum of the source proves; `stated` checks no MD5 that is only an etag, `fast` no MD5 and no SHA."""
    minimum_grade: Apart[str] = "auto"
    """One of the storage grades, or `auto`: what the probe of the target shows possible."""
    digests: Decides[Annotated[tuple[str, ...], "digests"]] = ("xxh3_128",)
    linked: Apart[Annotated[float | None, "reading_age"]] = 30 * 86_400.0
    """Seconds: a linked file is read again before its last reading is so old. None (`all`): each time."""

    @property
    def carries_for(self) -> float | None:
        """`linked`, where a release may hold a file that was not read back for it; None: all are read."""
        return self.linked if self.minimum_grade in ("auto", "written") else None

    @property
    def whole_giants(self) -> bool:
        """Whether giants get digests of the whole file too, made while they are verified: where a digest is
        asked for that their parts cannot make together."""
        return self.digests != ("xxh3_128",)


@dataclass(frozen=True)
class AuditConfig:
    """How an audit treats what lies elsewhere than it seems."""

    recall: Size = 0
    """Bytes of tiered files that one audit may have fetched back, to read them."""


@dataclass(frozen=True)
class BandwidthConfig:
    """The cap that all elements of all runs keep together, as long as they name the same folder."""

    folder: Folder | None = None
    """Where elements share the cap; None: each element has `engine.limit` alone."""
    link: Rate | None = None
    """Bytes a second of the link."""
    reserve: Rate | None = None
    """Of these, what is left to others."""
    requests: int | None = None
    """Requests a second to the sources; None: no cap."""

    @property
    def rate(self) -> int | None:
        """Bytes a second that all elements may read; None: what the folder's cap file says."""
        return None if self.link is None else self.link - (self.reserve or 0)


@dataclass(frozen=True)
class GcConfig:
    """What keeps releases from being removed."""

    grace: Duration = 14 * 86400.0
    """Seconds for which a release stays after it left `current`, at least."""
    settle: Fixed[Duration | None] = None
    """Seconds between the mark of a release and the last look at the pins; None: by the file system."""

    @property
    def longest_pin(self) -> float:
        """Seconds after which a reader's pin ends: 14 days, or a `grace` that is longer."""
        return max(LONGEST_PIN, self.grace)


@dataclass(frozen=True)
class Config:
    """The whole file."""

    target: TargetConfig
    datasets: Mapping[str, DatasetConfig]
    cluster: ClusterConfig = ClusterConfig()
    list: ListConfig = ListConfig()
    plan: PlanConfig = PlanConfig()
    engine: EngineConfig = EngineConfig()
    verify: VerifyConfig = VerifyConfig()
    audit: AuditConfig = AuditConfig()
    bandwidth: BandwidthConfig = BandwidthConfig()
    gc: GcConfig = GcConfig()
