"""A small source, a configuration and a working directory for the whole workflow."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.support import commands, fixed_settings
from tests.support.wheel import installation

from penstock.core.run_steps import OF_RUN
from penstock.target import tree_removal

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

__all__ = ["Place", "digests", "installation", "place"]


@dataclass
class Place:
    """A working directory with `config.yaml`, a source folder and a target."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> Path:
        return self.folder / "source"

    @property
    def target(self) -> Path:
        return self.folder / "target"

    def write(self) -> None:
        document, environment = fixed_settings.apart(self.config)
        (self.folder / "config.yaml").write_text(yaml.safe_dump(document))
        for name, value in environment.items():
            self.monkeypatch.setenv(name, value)

    def penstock(self, *words: str) -> subprocess.CompletedProcess[str]:
        return commands.penstock(*words, cwd=self.folder)

    def stage(self, *datasets: str) -> None:
        """All steps of these datasets up to the release, without Snakemake: there is no report, nor a receipt
        in `results`."""
        for step in OF_RUN[1:-1]:
            done = self.penstock("step", step, *datasets)
            assert done.returncode == 0, done.stderr

    def snakemake(self, *words: str) -> subprocess.CompletedProcess[str]:
        return commands.snakemake("--configfile", "config.yaml", *words, cwd=self.folder)

    def published(self, dataset: str = "d") -> Path:
        done = self.penstock("path", dataset)
        assert done.returncode == 0, done.stderr
        return Path(done.stdout.strip())

    def receipts(self, step: str) -> list[Path]:
        return sorted(self.folder.glob(f"results/*/*/{step}.json"))

    def releases(self, dataset: str = "d") -> list[str]:
        folder = self.target / dataset / "releases"
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))


def digests(folder: Path) -> dict[str, str]:
    """Every file below a folder and what it holds: the independent check."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    made = Place(tmp_path, monkeypatch)
    for name, content in {
        "a.txt": b"alpha",
        "sub/b.bin": bytes(range(256)) * 300,
        "sub/deep/with blank 'and' \"quotes\" $(x)": b"odd",
        "-leading": b"",
        "sub/%41;#": b"percent",
    }.items():
        path = made.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    made.config = {
        "target": {"root": "target", "keep_free": "1MiB"},
        "datasets": {"d": {"source": "source"}},
    }
    made.write()
    yield made
    tree_removal.remove_tree(tmp_path)
