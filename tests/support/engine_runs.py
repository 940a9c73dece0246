"""A shard over a real source and a target folder, ready for the engine."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.records import write_shard

from penstock.config.settings import DatasetConfig, EngineConfig, SourceConfig, VerifyConfig
from penstock.core.model import Entry
from penstock.engine.copy_shard import copy_shard
from penstock.engine.reread_shard import reread_shard
from penstock.engine.tasks import CopyTask, RereadTask
from penstock.sources.port import open_source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.core.run_documents import ShardInfo
    from penstock.engine.tasks import Outcome, Report


def content(index: int, size: int) -> bytes:
    """Bytes that differ from file to file, the same whenever asked."""
    seed = f"{index:08d}".encode()
    return (seed * (size // 8 + 1))[:size]


def make_tree(root: Path, files: Mapping[str, int]) -> Path:
    """Files of these sizes below `root`."""
    for index, (name, size) in enumerate(files.items()):
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as stream:
            stream.write(content(index, size))
    return root


def read_tree(root: Path) -> dict[str, bytes]:
    """Relative path to bytes, of every file below `root`, temporaries included."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as stream:
                found[os.path.relpath(path, root)] = stream.read()
    return found


@dataclass
class ShardRun:
    """One shard in a folder of its own; `copy` and `reread` may be called again and again."""

    folder: Path
    dataset: DatasetConfig
    shard: ShardInfo
    entries: list[Entry]
    attempts: int = 0

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def journals(self) -> Path:
        return self.folder / "journal"

    def task(self, **changes: Any) -> CopyTask:
        self.attempts += 1
        engine = EngineConfig(**changes.pop("engine", {}))
        sources = tuple(replace(source, timeout=engine.timeout) for source in self.dataset.sources)
        task = CopyTask(
            verify=changes.pop("verify", VerifyConfig()),
            shard=self.shard,
            rows=self.folder / "shard.parquet",
            journals=self.journals,
            data=self.data,
            dataset=replace(self.dataset, sources=sources),
            engine=engine,
            run="run",
            attempt=f"a{self.attempts}",
            host="writer",
        )
        return replace(task, **changes)

    def copy(
        self, report: Report | None = None, stop: Callable[[], None] | None = None, **changes: Any
    ) -> Outcome:
        return copy_shard(self.task(**changes), report or _quiet, stop or _go_on)

    def reread(
        self, verify: VerifyConfig | None = None, stop: Callable[[], None] | None = None, **changes: Any
    ) -> Outcome:
        self.attempts += 1
        task = RereadTask(
            shard=self.shard,
            rows=self.folder / "shard.parquet",
            journals=self.journals,
            data=self.data,
            records=self.folder / "records.parquet",
            engine=EngineConfig(),
            verify=verify or VerifyConfig(),
            run="run",
            attempt=f"v{self.attempts}",
            host="reader",
        )
        return reread_shard(replace(task, **changes), _quiet, stop or _go_on)


def _quiet(files: int, size: int, failed: int) -> None:
    """A report that nobody reads."""


def _go_on() -> None:
    """No signal came."""


def parts_of(entry: Entry, part_bytes: int) -> list[Entry]:
    """A giant's rows."""
    count = -(-entry.size // part_bytes)
    return [
        entry._replace(part=n, offset=n * part_bytes, length=min(part_bytes, entry.size - n * part_bytes))
        for n in range(count)
    ]


def shard_run(
    folder: Path, url: str | Path, *, giant: int | None = None, part_bytes: int = 1 << 20, **options: Any
) -> ShardRun:
    """List a source and make one shard of all of it; files of `giant` bytes and more go in parts."""
    source = SourceConfig(str(url), storage_options=options)
    dataset = DatasetConfig("set", (source,))
    entries: list[Entry] = []
    for listed in (one for batch in open_source(source, dataset).list() for one in batch):
        entry = Entry(
            listed.key,
            listed.key,
            listed.size,
            listed.token,
            listed.modified_ns,
            version=listed.version,
            checksum=listed.checksum,
            length=listed.size,
        )
        entries += parts_of(entry, part_bytes) if giant is not None and entry.size >= giant else [entry]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data").mkdir(exist_ok=True)
    return ShardRun(folder, dataset, write_shard(folder / "shard.parquet", 0, entries), entries)


def rewrite(run: ShardRun, entries: list[Entry]) -> None:
    """The same run with other rows (a new shard: no journal fits it any more)."""
    run.entries = entries
    run.shard = write_shard(run.folder / "shard.parquet", 0, entries)


def workers_of(parent: int) -> list[int]:
    """The engine's workers that are children of this process."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
                command = (folder / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[1]) == parent and b"penstock.engine.worker" in command:
                found.append(int(folder.name))
    return found


def following(run: ShardRun) -> ShardRun:
    """The same, of a source that may change."""
    run.dataset = replace(run.dataset, changed="follow")
    return run
