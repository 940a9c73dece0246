"""A dataset on a temporary target: context, scripted sources, small trees."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.support.in_process import InProcess

from penstock.cluster.registry import LocalCluster
from penstock.config.settings import Config, DatasetConfig, PlanConfig, SourceConfig, TargetConfig
from penstock.core.model import Listed
from penstock.dataset.context import Context
from penstock.sources.port import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.core.errors import PenstockError
    from penstock.core.run_steps import Event
    from penstock.sources.port import Reader


@dataclass
class ScriptedSource(Source):
    """A source that lists what it is told to, in pages, and then may fail."""

    keys: Sequence[str | Listed]
    url: str = "s3://bucket/prefix/"
    page: int = 3
    fails: PenstockError | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def ignored(self) -> Mapping[str, int]:
        return self.left_out

    def check(self) -> None:
        return

    def list(self) -> Iterator[Sequence[Listed]]:
        rows = [key if isinstance(key, Listed) else Listed(key, 10, "etag", 5) for key in self.keys]
        for start in range(0, len(rows), self.page):
            yield rows[start : start + self.page]
        if self.fails is not None:
            raise self.fails

    def reader(self) -> Reader:
        raise AssertionError("a listing reads no object")


def tree(root: Path, files: Mapping[str, bytes]) -> Path:
    """Make these files below `root`; names may hold any byte but NUL."""
    for name, content in files.items():
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
    return root


def context_for(tmp_path: Path, source: Path | str, **changes: Any) -> Context:
    """A context with one dataset `data` from `source` to `tmp_path/target`. `changes`: fields of
    DatasetConfig, or `plan`, `keep_free`; `local`: elements are processes of their own, to be ended by the
    cluster's `close`; otherwise this process does them when they are submitted."""
    plan = changes.pop("plan", PlanConfig())
    local = changes.pop("local", False)
    target = TargetConfig(tmp_path / "target", keep_free=changes.pop("keep_free", 0))
    dataset = replace(DatasetConfig("data", (SourceConfig(str(source)),)), **changes)
    config = Config(target, {"data": dataset}, plan=plan)
    events: list[Event] = []
    return Context(config, LocalCluster(config.cluster) if local else InProcess(), sink=events.append)


def events_of(context: Context) -> list[Event]:
    sink = context.sink
    seen: list[Event] = getattr(sink, "__self__")  # noqa: B009 (a bound list.append)
    return seen
