"""The durable facts of a run, as JSON below `.penstock/runs/`: all that elements know beside the shards."""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.core.documents.typed_json import Document, FileNumber


@dataclass(frozen=True)
class RunInfo:
    """`run.json`, by list. Settings that decide the release's content never change; the engine and verify
    parts of `config` follow the latest configuration."""

    # 16 hex digits of a hash over all that decides the release's content: listing, filter and more. The same
    # source and configuration give the same run, also from another checkout.
    run: str
    dataset: str
    release: str  # the release's name, made once
    created: str  # UTC, ISO 8601
    listing_digest: str  # `sha256:<hex>` over the listing's canonical rows
    files: int
    bytes: int
    scanned: int  # objects seen, before the filter
    root: str
    state_root: str | None
    # Frozen: {"dataset": ..., "plan": ..., "engine": ..., "verify": ..., ...}, for
    # `config.run_config.RunConfig`. Never a secret.
    config: Mapping[str, object]
    # [[upper bound of size, files, bytes], ...], powers of four from 4 KiB
    histogram: Sequence[Sequence[int]] = ()
    # objects that list left out by policy: filtered, markers, links
    ignored: Mapping[str, int] = field(default_factory=dict)
    # Names that share a file with another of the dataset: `files` of them, further ones `of` so many files,
    # `bytes` more than in the source. Empty: there are none.
    hard_links: Mapping[str, int] = field(default_factory=dict)
    # the sources' URLs by their own account, in the configuration's order; never a secret
    sources: Sequence[str] = ()
    origins: Sequence[str] = ()  # store or file system of each source (`Source.origin`), in the same order


@dataclass(frozen=True)
class ShardInfo:
    """A shard, in `plan.json`."""

    index: int
    rows: int
    files: int  # files that end in this shard: a giant counts with its last part
    bytes: int
    reused: int  # rows linked from the current release, or taken over from another run's staging
    digest: str  # `sha256:<hex>` of the shard's file: journals and receipts name it


@dataclass(frozen=True)
class PlanInfo:
    """`plan.json`, by plan."""

    run: str
    release: str
    base: str | None  # the release whose files are reused, if any
    files: int
    bytes: int
    giants: int
    unchanged: int
    unchanged_bytes: int
    shards: Sequence[ShardInfo]
    part_bytes: int
    folders: int
    why: Sequence[str] = ()  # for people: how many shards and why, how long it will take and why
    taken: int = 0  # files taken over from other runs' stagings, whole or in part
    taken_bytes: int = 0
    # those runs, and the names of their stagings below `releases/`
    stagings: Mapping[str, str] = field(default_factory=dict)
    # Those runs, and the inode of `data` in each staging as planned: another staging may get its name later.
    staging_inodes: Mapping[str, FileNumber] = field(default_factory=dict)
    renamed: int = 0  # part of `unchanged` that `base` holds under other names, identified by checksums
    renamed_bytes: int = 0
    way: str = "link"  # how files of `base` get into this release: `link`, `reflink` or `copy`
    # [run, path, size] of each giant moved here from such a staging before its parts are copied
    giants_taken: Sequence[Sequence[str]] = ()
    # linked files may be carried over, if `verify.linked` says so; else all are read back
    carries: bool = False

    @property
    def new_on_target(self) -> tuple[int, int]:
        """Files and folders, and bytes, that a copy adds to the target, without linked or taken files. Files
        copied within the target, since they cannot be linked (renamed, of an adopted tree), do not count
        either."""
        files, size = self.files + self.folders - self.taken, self.bytes - self.taken_bytes
        return (
            files - self.unchanged if self.way == "link" else files,
            size if self.way == "copy" else size - self.unchanged_bytes,
        )

    def by_index(self) -> dict[int, ShardInfo]:
        """Return the shards by their index, in the plan's order."""
        return {shard.index: shard for shard in self.shards}


RUN = Document(RunInfo, "a run's description")
PLAN = Document(PlanInfo, "a run's plan")
