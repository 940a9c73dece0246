"""The durable facts of one run, as JSON below `.penstock/runs/`: what list and plan wrote down. Pure: only
the forms are here; `dataset.run` reads them.

Elements, the processes of a job array on other nodes, know nothing but these files and the shards.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.core.documents.typed_json import Document, FileNumber


@dataclass(frozen=True)
class RunInfo:
    """`run.json`, by list. What decides the release's content never changes; `config`'s engine and
    verify parts follow the configuration that the run was last met with."""

    run: str
    """16 hex digits of a hash: of the listing, the filter and everything else that decides the release's
    content. The same source and configuration meet the same run, also from another checkout."""
    dataset: str
    release: str
    """The release's name, made once."""
    created: str
    """UTC, ISO 8601."""
    listing_digest: str
    """`sha256:<hex>` over the listing's canonical rows."""
    files: int
    bytes: int
    scanned: int
    """Objects seen, before the filter."""
    root: str
    state_root: str | None
    config: Mapping[str, object]
    """Frozen: {"dataset": ..., "plan": ..., "engine": ..., "verify": ..., ...}, as
    `config.run_config.RunConfig` reads it. Never a secret."""
    histogram: Sequence[Sequence[int]] = ()
    """[[upper bound of size, files, bytes], ...], powers of four from 4 KiB."""
    ignored: Mapping[str, int] = field(default_factory=dict)
    """What list left out by policy, and how many: filtered, markers, links."""
    hard_links: Mapping[str, int] = field(default_factory=dict)
    """Names that share a file with another of the dataset: `files` of them, further ones `of` so many
    files, `bytes` more than in the source. Empty when there are none."""
    sources: Sequence[str] = ()
    """The sources' URLs as they name themselves, in the configuration's order. Never a secret."""
    origins: Sequence[str] = ()
    """Which store or file system each source is (`Source.origin`), in the same order."""


@dataclass(frozen=True)
class ShardInfo:
    """One shard, of `plan.json`."""

    index: int
    rows: int
    files: int
    """Whole files that end in this shard (a giant counts where its last part is)."""
    bytes: int
    reused: int
    """Rows that are linked from the current release, or taken over from another run's staging."""
    digest: str
    """`sha256:<hex>` of the shard's file: journals and receipts name it."""


@dataclass(frozen=True)
class PlanInfo:
    """`plan.json`, by plan."""

    run: str
    release: str
    base: str | None
    """The release whose files are reused, if any."""
    files: int
    bytes: int
    giants: int
    unchanged: int
    unchanged_bytes: int
    shards: Sequence[ShardInfo]
    part_bytes: int
    folders: int
    why: Sequence[str] = ()
    """Sentences for people: how many shards and why, how long it will take and why."""
    taken: int = 0
    """Files that another run's staging holds, whole or in part, and that are taken over from there."""
    taken_bytes: int = 0
    stagings: Mapping[str, str] = field(default_factory=dict)
    """Those runs, and the names of their stagings below `releases/`."""
    staging_inodes: Mapping[str, FileNumber] = field(default_factory=dict)
    """Those runs, and the inode of `data` in each staging as planned: its name may be another's later."""
    renamed: int = 0
    """Those of the unchanged files that `base` holds under another name, known by their checksums."""
    renamed_bytes: int = 0
    way: str = "link"
    """How the files of `base` come into this release: `link`, `reflink` or `copy`."""
    giants_taken: Sequence[Sequence[str]] = ()
    """[run, path, size] of each giant that is moved here from such a staging before its parts are copied."""
    carries: bool = False
    """Whether linked files may be carried over, if `verify.linked` says so; else all are read back."""

    @property
    def new_on_target(self) -> tuple[int, int]:
        """Files and folders that a copy makes on the target, and bytes that it stores there: without files
        that are linked or taken over. Files that are copied within the target since they cannot be linked one
        by one (renamed, of an adopted tree) are not counted."""
        files, size = self.files + self.folders - self.taken, self.bytes - self.taken_bytes
        return (
            files - self.unchanged if self.way == "link" else files,
            size if self.way == "copy" else size - self.unchanged_bytes,
        )

    def by_index(self) -> dict[int, ShardInfo]:
        """The shards by their index, in the plan's order."""
        return {shard.index: shard for shard in self.shards}


RUN = Document(RunInfo, "a run's description")
PLAN = Document(PlanInfo, "a run's plan")
