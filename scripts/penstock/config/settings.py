"""The typed configuration: what `config.load` makes of the YAML file.

Sizes are bytes, rates bytes per second, durations seconds. `config.schema.yaml`, this file and the
example `config.yaml` are held in step by a test; docs/configuration.md is generated from both (`make docs`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.format_versions import known

if TYPE_CHECKING:
    from collections.abc import Mapping

MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40


@dataclass(frozen=True)
class TargetConfig:
    root: Path
    """Absolute after loading (relative ones are relative to the working directory)."""
    state_root: Path | None = None
    keep_free: int = GIB
    """Bytes that a run leaves free on the target."""


@dataclass(frozen=True)
class SourceConfig:
    url: str
    into: str = ""
    """Folder below `data/`, normalised, or ""."""
    storage_options: Mapping[str, Any] = field(default_factory=dict)
    """References only: `endpoint_url`, `profile`, `region`, `anon`, `ca_bundle`, `proxy`,
    `credentials_file`, and whatever an fsspec protocol takes that is no secret."""


@dataclass(frozen=True)
class PermissionsConfig:
    group: str | None = None
    file_mode: int = 0o440
    dir_mode: int = 0o2550
    mtime: str = "keep"
    """`keep`: the source's modification times; `now`: none are set."""


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
class DatasetConfig:
    name: str
    sources: tuple[SourceConfig, ...]
    include: tuple[str, ...] = ("**",)
    exclude: tuple[str, ...] = ()
    release: str = "auto"
    links: str = "refuse"
    """Symbolic links in a POSIX source: `refuse` (listed, nothing copied), `skip`, `follow`
    (only to regular files below the source's root)."""
    specials: str = "refuse"
    """FIFOs, sockets, devices in a POSIX source: `refuse` or `skip`."""
    empty_folders: str = "leave"
    """Folders of a POSIX source that hold nothing: `leave` them out (counted), or `keep` them."""
    checksums: tuple[str, ...] = ()
    """Keys of checksum files beside the data (`SHA256SUMS`, `*.sha256`)."""
    changed: str = "refuse"
    """An object that changed since it was listed: `refuse` (the run ends with 5), `follow` (it is pinned
    anew, or leaves, within `follow_limit`), `pinned` (a versioned S3 bucket is listed and read by version
    ids: a change is no event)."""
    follow_limit: FollowLimit = FollowLimit()
    permissions: PermissionsConfig = PermissionsConfig()


@dataclass(frozen=True)
class JobOptions:
    """What one step asks of SLURM. None: not asked for."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    constraint: str | None = None
    licenses: tuple[str, ...] = ()
    time: int | None = None
    """Seconds."""
    memory: int | None = None
    core_spec: int | None = 2
    """None: `none` was configured; no --core-spec is given."""
    cpus: int | None = None
    exclusive: bool | None = None
    """Whole nodes also without core-spec. None: where `cpus` says nothing else."""
    max_elements: int = 4
    """Elements (nodes) at once."""

    @property
    def whole_nodes(self) -> bool:
        """
        core_spec | exclusive | cpus  | --exclusive
        a number  | any       | any   | left out: core-spec takes whole nodes itself
        none      | true      | any   | yes
        none      | false     | any   | no: without `cpus` an element gets one CPU
        none      | null      | given | no
        none      | null      | null  | yes: an element gets what the node has
        """
        if self.core_spec is not None:
            return False
        return self.cpus is None if self.exclusive is None else self.exclusive


@dataclass(frozen=True)
class ClusterConfig:
    backend: str = "local"
    """`local` or `slurm`."""
    options: JobOptions = JobOptions()
    steps: Mapping[str, JobOptions] = field(default_factory=dict)
    """Whole options for a step: `options` with that step's keys laid over."""
    on_nodes: tuple[str, ...] = ()
    """Light steps that run on a node: of list, plan, permissions, publish."""
    python: str | None = None
    """Interpreter on the nodes; default: the one that runs now."""
    poll: float = 5.0
    retries: int = 2
    """How often elements that failed are submitted again within one run."""
    probe: bool = True
    """Preflight runs a one-second job to see the environment on a node."""

    def of(self, step: str) -> JobOptions:
        return self.steps.get(step, self.options)


@dataclass(frozen=True)
class PlanConfig:
    shard_bytes: int = TIB
    shard_files: int = 500_000
    giant_bytes: int = 64 * GIB
    part_bytes: int = 256 * MIB
    reuse: bool = True
    """Link unchanged files from the current release instead of copying them again."""


@dataclass(frozen=True)
class EngineConfig:
    workers: int | None = None
    """Processes; None: auto."""
    streams: int | None = None
    """Streams in all (processes x threads); None: auto, at most 64."""
    durability: str = "auto"
    """`fsync` each file, `syncfs` a barrier, or `auto` by file system."""
    limit: int | None = None
    """Bytes per second read from the source by one engine; None: no limit."""
    attempts: int = 5
    """Tries for each object before it counts as failed."""
    timeout: float = 60.0
    """Seconds without a byte before a connection counts as broken."""


@dataclass(frozen=True)
class VerifyConfig:
    source_checksum: str = "auto"
    """`auto` checks what there is, by the cheapest of what proves as much; `require` refuses files that no
    checksum of the source proves; `stated` leaves out MD5s that are only an etag, `fast` MD5 and SHA."""
    minimum_grade: str = "auto"
    """One of the storage grades, or `auto`: what the probe of the target shows possible."""
    reread: str = "all"
    """`all`, `unproven` (only files without a full source checksum), or `sample`."""
    sample: float = 0.01
    digests: tuple[str, ...] = ("xxh3_128",)
    whole_file_digest: bool = False
    """Giants get a whole-file digest too, made while they are verified."""


@dataclass(frozen=True)
class Config:
    target: TargetConfig
    datasets: Mapping[str, DatasetConfig]
    cluster: ClusterConfig = ClusterConfig()
    plan: PlanConfig = PlanConfig()
    engine: EngineConfig = EngineConfig()
    verify: VerifyConfig = VerifyConfig()


def to_json(value: Any) -> dict[str, Any]:
    """A JSON form of any dataclass of this module; `from_json` is its inverse."""
    return {k: _plain(v) for k, v in asdict(value).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def job_options(raw: Mapping[str, Any]) -> JobOptions:
    return JobOptions(**{**raw, "licenses": tuple(raw.get("licenses", ()))})


def cluster_config(raw: Mapping[str, Any]) -> ClusterConfig:
    return ClusterConfig(
        **{
            **raw,
            "options": job_options(raw["options"]),
            "steps": {k: job_options(v) for k, v in raw["steps"].items()},
            "on_nodes": tuple(raw["on_nodes"]),
        }
    )


# What a run froze, perhaps by another version: keys that were added since have their defaults, keys that
# this version does not know are left out. Raises KeyError or TypeError for what is no configuration.


def dataset_config(raw: Mapping[str, Any]) -> DatasetConfig:
    return DatasetConfig(
        **{
            **known(DatasetConfig, raw),
            "sources": tuple(SourceConfig(**known(SourceConfig, s)) for s in raw["sources"]),
            "include": tuple(raw["include"]),
            "exclude": tuple(raw["exclude"]),
            "checksums": tuple(raw["checksums"]),
            "follow_limit": FollowLimit(**known(FollowLimit, raw.get("follow_limit", {}))),
            "permissions": permissions_config(raw["permissions"]),
        }
    )


def permissions_config(raw: Mapping[str, Any]) -> PermissionsConfig:
    return PermissionsConfig(**known(PermissionsConfig, raw))


def plan_config(raw: Mapping[str, Any]) -> PlanConfig:
    return PlanConfig(**known(PlanConfig, raw))


def engine_config(raw: Mapping[str, Any]) -> EngineConfig:
    return EngineConfig(**known(EngineConfig, raw))


def verify_config(raw: Mapping[str, Any]) -> VerifyConfig:
    return VerifyConfig(**{**known(VerifyConfig, raw), "digests": tuple(raw["digests"])})


def target_config(raw: Mapping[str, Any]) -> TargetConfig:
    state = raw.get("state_root")
    return TargetConfig(Path(raw["root"]), Path(state) if state else None, raw["keep_free"])
