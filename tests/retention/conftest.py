"""A dataset of a few small releases, by the steps in this process and by the built command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.commands import penstock
from tests.support.published import publish
from tests.support.staging_runs import tree
from tests.support.whole_way import staging

from penstock.target import dataset_folders, tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.dataset.context import Context


class Releases:
    """A dataset `data`, staged from a folder that holds one version after another."""

    def __init__(self, context: Context, folder: Path) -> None:
        self.context, self.folder = context, folder
        self.source = folder / "source"
        self.layout = context.layout("data")
        self.names: dict[str, str] = {}
        """A version's letter to its release."""
        self.config = folder / "config.yaml"
        self.configure()

    def configure(self, *, dataset: str = "", more: str = "") -> None:
        """The configuration of the built command."""
        self.config.write_text(
            f"target: {{root: {self.layout.root}, keep_free: 0}}\ncluster: {{backend: local}}\n{more}"
            f"datasets: {{data: {{source: '{self.source}'{dataset}}}}}\n"
        )

    def holds(self, letter: str, **files: bytes) -> None:
        """Let the source hold a version: a file of its own beside one that all share, or `files`."""
        for old in self.source.iterdir():
            if old.is_dir():
                shutil.rmtree(old)
            elif old.name != "same":
                old.unlink()
        tree(self.source, {"letter": letter.encode() * 4096, f"only-{letter}": b"x" * 5000, **files})
        if not (self.source / "same").exists():
            tree(self.source, {"same": b"same" * 3000})

    def stage(self, *letters: str) -> str:
        """Publish these versions, one after another; the last one's release."""
        release = ""
        for letter in letters:
            self.holds(letter)
            release = self.names[letter] = publish(self.context)["release"]
        return release

    def begin_with(self, letters: str) -> str:
        """As `stage`, where a test needs what these versions left, and not their staging: a copy of it, at
        the same path, which the documents name. Of the source only `same` is the file that was staged: to a
        run the others have changed."""
        kept = self.folder.parent / letters
        if kept.exists():
            subprocess.run(["cp", "-a", kept, self.layout.root], check=True)
            published = (line["release"] for line in self.history())
            self.names.update(zip(letters, published, strict=True))
            self.holds(letters[-1])
        else:
            self.stage(*letters)
            subprocess.run(["cp", "-a", self.layout.root, kept], check=True)
        return self.names[letters[-1]]

    def again(self) -> dict[str, Any]:
        """All steps once more."""
        return publish(self.context)

    def current(self) -> str:
        """The letter of the release that readers get."""
        return self.letter(os.path.basename(os.readlink(self.layout.current)))

    def letter(self, release: str) -> str:
        return next(one for one, name in self.names.items() if name == release)

    def there(self) -> str:
        """The letters of the releases that are there."""
        return "".join(sorted(self.letter(one) for one in dataset_folders.releases(self.layout)))

    def history(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.layout.history.read_text().splitlines()]
        return [line for line in lines if line["event"] != "interval"]

    def told(self) -> list[str]:
        """The history's lines as `event letter`."""
        return [f"{line['event']} {self.letter(line['release'])}" for line in self.history()]

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return penstock("--config", str(self.config), *words)

    def check(self, *, ended: bool = True) -> None:
        """`current` leads to a release that is whole; a command that ended left no link beside it."""
        data = self.layout.current / "data"
        letter = self.current()
        assert (data / "letter").read_bytes() == letter.encode() * 4096
        assert (data / "same").read_bytes() == b"same" * 3000
        assert not ended or not list(self.layout.folder.glob(".current.*"))


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tests' dataset lies, one after another, and copies of what `begin_with` needs again."""
    return tmp_path_factory.mktemp("retention")


@pytest.fixture
def releases(kept: Path) -> Iterator[Releases]:
    folder = kept / "folder"
    source = folder / "source"
    source.mkdir(parents=True, exist_ok=True)
    with staging(folder, source) as context:
        yield Releases(context, folder)
    for path in (*folder.iterdir(), *source.iterdir()):
        if path not in (source, source / "same"):
            remove(path)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        tree_removal.remove_tree(path)
    else:
        path.unlink()
