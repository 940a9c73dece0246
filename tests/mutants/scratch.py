"""A copy of the checkout in which a mutant is applied: the checkout's own files stay as they are.

The copy has a virtual environment of its own, whose packages are links, so that each process that a test
starts reads the copy of the product too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CHECKOUT = Path(__file__).resolve().parents[2]
PRODUCT = Path("scripts/penstock")
LIMIT = 900.0
"""Seconds that one call of pytest may take."""
NOTHING_RUN = 4
"""The exit status of pytest where a test that is named is not there."""
_NOT_FOUND = re.compile(r"^ERROR: (?:file or directory )?not found: .*?(tests/.*)$", re.MULTILINE)
_REPORTED = re.compile(r"^(PASSED|FAILED|ERROR) (tests/[^\n]*)$", re.MULTILINE)


class Place(NamedTuple):
    """Where a text stands in the product."""

    file: Path
    """Below the checkout."""
    line: int

    @property
    def package(self) -> str:
        """The package of `penstock`, or the name of a module beside them."""
        return self.file.relative_to(PRODUCT).parts[0].removesuffix(".py")


class Outcome(NamedTuple):
    """How pytest ended."""

    status: int
    passed: Sequence[str]
    failed: Sequence[str]
    text: str

    def of(self, node: str, among: Sequence[str]) -> list[str]:
        """Those of a test, of a parametrised one all of its rows."""
        return [one for one in among if one == node or one.startswith((f"{node}[", f"{node} - "))]


def places(text: str) -> list[Place]:
    """Each place of the product at which the text stands."""
    found = []
    for path, content in _product().items():
        start = content.find(text)
        while start >= 0:
            found.append(Place(path, content.count("\n", 0, start) + 1))
            start = content.find(text, start + 1)
    return found


@cache
def _product() -> dict[Path, str]:
    files = sorted((CHECKOUT / PRODUCT).rglob("*.py"))
    return {path.relative_to(CHECKOUT): path.read_text(encoding="utf-8") for path in files}


class Scratch:
    """One copy. For one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changes = 0
        _copy(folder)

    @contextmanager
    def changed(self, file: Path, old: str, new: str) -> Iterator[None]:
        """While it lasts, `new` stands in place of `old` in a file of the copy."""
        path = self._folder / file
        before = path.read_text(encoding="utf-8")
        self._write(path, before.replace(old, new))
        try:
            yield
        finally:
            self._write(path, before)

    def _write(self, path: Path, content: str) -> None:
        path.write_text(content, encoding="utf-8")
        # Python takes compiled code for current whose source has the same size and second of change.
        self._changes += 1
        seconds = int(path.stat().st_mtime) + 10 * self._changes
        os.utime(path, (seconds, seconds))

    def run(self, tests: Sequence[str]) -> Outcome:
        """Run these tests of the copy; those that are not there are left out."""
        while True:
            ended = self._pytest(tests)
            lacking = set(_NOT_FOUND.findall(ended.text))
            left = [one for one in tests if one not in lacking]
            if ended.status != NOTHING_RUN or not left or left == tests:
                return ended
            tests = left

    def _pytest(self, tests: Sequence[str]) -> Outcome:
        python = self._folder / ".venv/bin/python"
        plugins = ["-p", "no:cacheprovider", "-p", "no:xdist"]
        options = ["-q", "-rA", "--show-capture=no", "--tb=line", "--timeout=300"]
        # In a PID namespace of its own nothing that a mutant leaves behind outlives its test.
        alone = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"] if os.geteuid() == 0 else []
        ended = subprocess.run(
            [*alone, str(python), "-m", "pytest", *plugins, *options, *tests],
            cwd=self._folder,
            env={**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT,
            check=False,
        )
        text = ended.stdout.decode(errors="replace")
        reported = _REPORTED.findall(text)
        passed = [node for word, node in reported if word == "PASSED"]
        failed = [node for word, node in reported if word != "PASSED"]
        return Outcome(ended.returncode, passed, failed, text)


def _copy(folder: Path) -> None:
    """Raises CalledProcessError where the checkout is none of git's."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        check=True,
    )
    for name in filter(None, os.fsdecode(listed.stdout).split("\0")):
        source, copy = CHECKOUT / name, folder / name
        if os.path.lexists(source):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)
    # Other accounts read it, too: some tests are of them.
    folder.chmod(0o755)
    _environment(Path(sys.prefix), folder / ".venv")


def _environment(source: Path, copy: Path) -> None:
    """A virtual environment of which all but the paths in it is linked."""
    for name in ("bin", "lib"):
        (copy / name).mkdir(parents=True)
    (copy / "lib64").symlink_to("lib")
    shutil.copy2(source / "pyvenv.cfg", copy)
    for path in (source / "bin").iterdir():
        own = copy / "bin" / path.name
        if path.is_dir():
            continue
        if path.is_symlink() or not path.read_bytes().startswith(b"#!"):
            own.symlink_to(os.readlink(path) if path.is_symlink() else path)
        else:
            own.write_bytes(path.read_bytes().replace(os.fsencode(source), os.fsencode(copy)))
            own.chmod(0o755)
    for packages in (source / "lib").glob("python*/site-packages"):
        folder = copy / packages.relative_to(source)
        folder.mkdir(parents=True)
        for path in packages.iterdir():
            if path.suffix == ".pth":
                text = path.read_text(encoding="utf-8").replace(str(CHECKOUT), str(copy.parent))
                (folder / path.name).write_text(text, encoding="utf-8")
            else:
                (folder / path.name).symlink_to(path)
