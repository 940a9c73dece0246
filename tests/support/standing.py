"""A place that is the same for one test after another, and what was staged there once.

Most tests of steps begin with a dataset that is staged up to some step, which costs more than what they look
at then. `begin` stages it once in a process, and gives each further test a copy. A test that looks at these
steps themselves, or changes what they meet, does them by `whole_way.go`.

| what documents of a staging name                | so                                                   |
|-------------------------------------------------|------------------------------------------------------|
| the target's path                               | the place has one path in a process                  |
| inode, times and size of the source's files     | the source stays while no test changed a file of it; |
|                                                 | where one did, it is made and staged anew            |
| ctimes on the target, from verify until publish | verify is done anew in each copy                     |
| ctimes on the target, in a manifest             | the next run reads what it links, and carries no     |
|                                                 | reading over: such tests do without a copy           |
"""

from __future__ import annotations

import copy
import os
import stat
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.in_process import InProcess
from tests.support.staging_runs import events_of, tree
from tests.support.whole_way import go

from penstock.host import kernel_facts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from penstock.core.run_steps import Event
    from penstock.dataset.context import Context

COPIED = ("list", "plan", "copy", "permissions", "publish")


class Staged(NamedTuple):
    """What the steps left."""

    target: Path
    receipt: dict[str, Any]
    events: Sequence[Event]
    cluster: InProcess


class Standing:
    """The place of one process."""

    def __init__(self, folder: Path) -> None:
        self.place = folder / "place"
        self._kept = folder / "kept"
        self._files: Mapping[str, bytes] | None = None
        self._seen: dict[str, tuple[int, ...]] = {}
        self._staged: dict[tuple[str, ...], Staged] = {}
        for made in (self.place, self._kept):
            made.mkdir()

    def source(self, files: Mapping[str, bytes]) -> Path:
        """The folder of these files."""
        folder = self.place / "source"
        if self._files != files:
            if folder.exists():
                os.rename(folder, self._kept / f"source-{len(os.listdir(self._kept))}")
            self._files, self._seen = files, seen(tree(folder, files))
            self._staged.clear()
        return folder

    def leave(self, to: Path) -> None:
        """Move all that a test left to its own folder. The source stays, without files that came, if what was
        in it is as it was."""
        source = self.place / "source"
        now = seen(source)
        more = now.keys() - self._seen.keys()
        same = {path: now.get(path) for path in self._seen} == self._seen
        same = same and not any((source / path).is_dir() for path in more)
        for name in os.listdir(self.place):
            if name != "source" or not same:
                os.rename(self.place / name, to / name)
        if not same:
            self._files = None
            return
        (to / "source").mkdir()
        for number, path in enumerate(more):
            os.rename(source / path, to / "source" / str(number))

    def begin(self, context: Context, upto: str) -> dict[str, Any]:
        if upto == "verify":
            self.begin(context, "permissions")
            return go(context, after="permissions", upto=upto)
        target = context.config.target.root
        assert upto in COPIED, f"{upto}: see the table of this module"
        assert not target.exists(), "something was done here before"
        assert not context.run
        assert not context.new_release
        if seen(self.place / "source") != self._seen:
            return go(context, upto=upto)
        key = repr(context.config), repr(kernel_facts.current_job()), upto
        cluster = context.cluster
        assert isinstance(cluster, InProcess)
        if (staged := self._staged.get(key)) is None:
            receipt = go(context, upto=upto)
            kept = self._kept / f"target-{len(os.listdir(self._kept))}"
            subprocess.run(["cp", "-a", "--reflink=auto", target, kept], check=True)
            self._staged[key] = Staged(
                kept, copy.deepcopy(receipt), [*events_of(context)], copy.deepcopy(cluster)
            )
            return receipt
        subprocess.run(["cp", "-a", "--reflink=auto", staged.target, target], check=True)
        events_of(context).extend(staged.events)
        cluster.__dict__.update(copy.deepcopy(staged.cluster).__dict__)
        return copy.deepcopy(staged.receipt)


def seen(folder: Path) -> dict[str, tuple[int, ...]]:
    """Of each file below a folder, and each folder, what makes it the version that it is."""
    found = {}
    for above, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(above, name)
            one = os.lstat(path)
            version = one.st_size, one.st_mtime_ns, one.st_ctime_ns
            found[os.path.relpath(path, folder)] = (
                one.st_ino,
                one.st_mode,
                *(() if stat.S_ISDIR(one.st_mode) else version),
            )
    return found


PLACES: dict[Path, Standing] = {}
"""By their paths."""


def begin(context: Context, *, upto: str = "publish") -> dict[str, Any]:
    """As `whole_way.go` for a dataset of which nothing is staged, in a module with STANDING; the receipt."""
    return PLACES[context.config.target.root.parent].begin(context, upto)
