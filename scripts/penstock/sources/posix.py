"""A POSIX folder as a source: any mounted file system.

Below the root nothing is trusted: folders and files are opened one name at a time, by
descriptor, without following links. A FIFO, socket or device is never opened for reading.
A file that changed since it was listed is refused, before and after its bytes are read.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.model import Listed
from penstock.errors import PreflightError
from penstock.sources.posix_reader import FOLDER, PosixReader, beneath, token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.core.model import Claim, Entry

BATCH = 2048
SHOWN = 100
"""Offenders named in one message; all are counted."""
GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class _Name(NamedTuple):
    """One name of a folder; sorts as the bytes of the paths below it do."""

    order: bytes
    name: str
    kind: str


class Offenders:
    """What the policy refuses: all are counted, the first few are kept.

    What `keep` says does not belong is no reason to refuse; it is asked of a folder with a slash
    at its end, and says False only when nothing below belongs.
    """

    def __init__(self, keep: Callable[[str], bool] | None = None) -> None:
        self.count = 0
        self.left_out = 0
        """Items that the patterns leave out, which else were refused."""
        self._keep = keep
        self._lines: list[str] = []

    def add(self, path: str, why: str) -> None:
        if self._keep is not None and not self._keep(path):
            self.left_out += 1
            return
        self.count += 1
        if len(self._lines) < SHOWN:
            self._lines.append(f"{path!r}: {why}")

    def error(self, url: str) -> PreflightError:
        lines = list(self._lines)
        if self.count > len(lines):
            lines.append(f"... and {self.count - len(lines)} more")
        return PreflightError(
            f"{self.count} item(s) of the source cannot be staged",
            where=url,
            why="\n  " + "\n  ".join(lines),
            hint="mend them, leave them out by `exclude` patterns, or set `links` and `specials` of the "
            "dataset to `skip`",
        )


class PosixSource:
    """A folder. `links` and `specials` are the dataset's policies (config.model); what `keep`
    leaves out is never a reason to refuse (see `Offenders`)."""

    def __init__(
        self,
        root: str,
        *,
        links: str = "refuse",
        specials: str = "refuse",
        keep: Callable[[str], bool] | None = None,
    ) -> None:
        self.root = os.path.abspath(root)
        self.url = "file://" + self.root
        self.links, self.specials = links, specials
        self._keep = keep
        self._ignored = {"links": 0, "specials": 0}

    @property
    def ignored(self) -> Mapping[str, int]:
        """What the last listing left out by policy, and what it did not refuse since the patterns
        leave it out."""
        return dict(self._ignored)

    def check(self) -> None:
        """Raises PreflightError when the root is no folder that can be read."""
        try:
            with os.scandir(self.root) as names:
                next(names, None)
        except OSError as error:
            raise PreflightError(
                "the source folder cannot be read",
                where=self.url,
                why=error.strerror or str(error),
                hint="check the path, and that its file system is mounted and readable here",
            ) from None

    def list(self) -> Iterator[Sequence[Listed]]:
        """Batches in byte order of the path. Memory grows with the largest single folder only.

        Raises PreflightError at the end, naming what the policies refuse.
        """
        self._ignored = {"links": 0, "specials": 0}
        offenders = Offenders(self._keep)
        batch: list[Listed] = []
        for listed in self._walk(offenders):
            batch.append(listed)
            if len(batch) >= BATCH:
                yield batch
                batch = []
        if batch:
            yield batch
        if offenders.left_out:
            self._ignored["filtered"] = offenders.left_out
        if offenders.count:
            raise offenders.error(self.url)

    def _walk(self, offenders: Offenders) -> Iterator[Listed]:
        try:
            root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise PreflightError(
                "the source folder cannot be opened", where=self.url, why=error.strerror or str(error)
            ) from None
        levels: list[tuple[int, str, Iterator[_Name]]] = []
        try:
            levels.append((root, "", self._names(root, "", offenders)))
            while levels:
                fd, prefix, names = levels[-1]
                for name in names:
                    path = prefix + name.name
                    if name.kind == "folder":
                        below = self._enter(fd, name.name, path, offenders)
                        if below >= 0:
                            levels.append((below, path + "/", self._names(below, path, offenders)))
                            break
                        continue
                    listed = self._look(fd, name, path, offenders)
                    if listed is not None:
                        yield listed
                else:
                    os.close(fd)
                    levels.pop()
        finally:
            for fd, _, _ in levels:
                os.close(fd)

    def _enter(self, parent: int, name: str, path: str, offenders: Offenders) -> int:
        try:
            return os.open(name, FOLDER, dir_fd=parent)
        except OSError as error:
            if error.errno not in GONE:  # vanished meanwhile: as if it never was
                offenders.add(path + "/", f"folder cannot be opened: {error.strerror}")
            return -1

    def _names(self, fd: int, path: str, offenders: Offenders) -> Iterator[_Name]:
        found: list[_Name] = []
        try:
            with os.scandir(fd) as items:
                for item in items:
                    order = item.name.encode("utf-8", "surrogateescape")
                    if item.is_dir(follow_symlinks=False):
                        found.append(_Name(order + b"/", item.name, "folder"))
                    elif item.is_symlink():
                        found.append(_Name(order, item.name, "link"))
                    else:
                        found.append(_Name(order, item.name, "other"))
        except OSError as error:
            offenders.add(path + "/" if path else ".", f"folder cannot be listed: {error.strerror}")
        found.sort()
        return iter(found)

    def _look(self, fd: int, name: _Name, path: str, offenders: Offenders) -> Listed | None:
        if name.kind == "link":
            if self.links == "skip":
                self._ignored["links"] += 1
                return None
            if self.links == "refuse":
                offenders.add(path, "symbolic link")
                return None
            return self._follow(path, offenders)
        try:
            found = os.stat(name.name, dir_fd=fd, follow_symlinks=False)
        except OSError as error:
            if error.errno not in GONE:
                offenders.add(path, f"cannot be read: {error.strerror}")
            return None
        if not stat.S_ISREG(found.st_mode):
            if self.specials == "skip":
                self._ignored["specials"] += 1
            else:
                offenders.add(path, "neither a file nor a folder")
            return None
        return Listed(path, found.st_size, token(found), found.st_mtime_ns)

    def _follow(self, path: str, offenders: Offenders) -> Listed | None:
        inside = beneath(self.root, path)
        if inside is None:
            offenders.add(path, "link that leaves the source's root")
            return None
        try:
            found = os.stat(os.path.join(self.root, inside), follow_symlinks=False)
        except OSError as error:
            offenders.add(path, f"link that leads nowhere: {error.strerror}")
            return None
        if not stat.S_ISREG(found.st_mode):
            offenders.add(path, "link to something that is not a regular file")
            return None
        return Listed(path, found.st_size, token(found), found.st_mtime_ns)

    def reader(self) -> PosixReader:
        return PosixReader(self.root, follow=self.links == "follow")

    def checksum(self, entry: Entry) -> Sequence[Claim]:  # noqa: ARG002 (the port's shape)
        return ()

    def renew(self, credentials: object) -> None:
        """Folders need none."""
