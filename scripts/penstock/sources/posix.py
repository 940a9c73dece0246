"""A folder of any mounted file system as a source.

Below the root nothing is trusted: folders and files are opened one name at a time, by descriptor, without
following links. A FIFO, socket or device is never opened for reading. A file is compared with the listing
before and after its bytes are read, and refused if it changed.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import closing
from typing import TYPE_CHECKING

from penstock.config.source_kinds import folder
from penstock.core.errors import PreflightError, SourceChangedError
from penstock.core.model import Listed
from penstock.core.row_codec import filled
from penstock.fs.tree import BELOW, BROKEN, FILE, LINK, OTHER, descend
from penstock.host.kernel_facts import mount_of
from penstock.sources.port import RefusedFiles, Remedy, Source
from penstock.sources.posix_reader import FILE as OPEN_FILE
from penstock.sources.posix_reader import PosixReader, beneath, token, tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.config.settings import DatasetConfig, SourceConfig
    from penstock.fs.tree import Level, Looked
    from penstock.sources.port import Keep


# number of files remembered until all their names were listed (some 100 MB); further files are not counted
MOST = 1_000_000


class HardLinks:
    """Counts the names of files with several names. Call `saw` for each name; `keep` says which names belong
    to the dataset."""

    def __init__(self, keep: Callable[[str], bool] | None = None, most: int = MOST) -> None:
        self._keep, self._most = keep, most
        self._names: dict[tuple[int, int], tuple[int, int]] = {}
        self._files = self._of = self._bytes = 0

    def saw(self, path: str, place: tuple[int, int], names: int, size: int) -> None:
        """Count one of the `names` of the file of `size` bytes at `place` (device and inode)."""
        if self._keep is not None and not self._keep(path):
            return
        left, counted = self._names.pop(place, (names, 0))
        if counted:
            self._files += 1
            self._of += counted == 1
            self._bytes += size
        # A file is forgotten with its last name, so that memory does not grow with the dataset.
        if left > 1 and len(self._names) < self._most:
            self._names[place] = left - 1, counted + 1

    @property
    def counts(self) -> Mapping[str, int]:
        """The result of `port.Source.hard_links`, for names in the dataset. If more than MOST files would
        have to be remembered at once, the numbers are lower bounds."""
        return {"files": self._files, "of": self._of, "bytes": self._bytes} if self._files else {}


BATCH = 2048  # files in a batch of `list`, at most
# errors for a name that was removed or replaced after its folder was read; such a name is left out
GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


def open_source(config: SourceConfig, _: object, *, dataset: DatasetConfig, keep: Keep | None) -> PosixSource:
    return PosixSource(folder(config.url), links=dataset.links, empty=dataset.empty_folders, keep=keep)


class PosixSource(Source):
    """A folder, or one file, whose key is its name. `links` and `empty` are the dataset's policies
    (`config.settings`); for `keep` see `RefusedFiles`."""

    def __init__(
        self,
        root: str,
        *,
        links: str = "refuse",
        empty: str = "leave",
        keep: Callable[[str], bool] | None = None,
    ) -> None:
        self.root = os.path.abspath(root)
        self.url = "file://" + self.root
        self.links, self.empty = links, empty
        self._empty_folders: list[str] = []
        self._keep, self._was_file = keep, False
        self._ignored = {"links": 0}
        self._hard_links = HardLinks(keep)

    @property
    def origin(self) -> str:
        """The network export (for a local file system, the device's number), and the folder's inode."""
        top = os.path.realpath(self.root)
        device = mount_of(top).device
        status = os.stat(top)
        # A network mount has another device number on each host, and after each mount.
        held = device if ":" in device else f"device {status.st_dev}"
        return f"{held} inode {status.st_ino}"

    @property
    def hard_links(self) -> Mapping[str, int]:
        return self._hard_links.counts

    @property
    def empty_folders(self) -> Sequence[str]:
        return self._empty_folders

    @property
    def ignored(self) -> Mapping[str, int]:
        """Numbers of the items that the last listing left out: links by policy, and empty folders. The key
        `filtered` counts items that would be refused, if `include` and `exclude` did not leave them out."""
        return dict(self._ignored)

    def check(self) -> bool | None:
        """See `port.Source`. Raises PreflightError unless the root is a readable folder or file."""
        try:
            if os.path.isfile(self.root):
                os.close(os.open(self.root, OPEN_FILE & ~os.O_NOFOLLOW))
                return True
            with os.scandir(self.root) as names:
                return None if next(names, None) else False
        except OSError as error:
            raise self._unread(error) from None

    def _unread(self, error: OSError) -> PreflightError:
        hint = "correct the path, mount it here, or let this account read it"
        return PreflightError("the source folder cannot be read", where=self.url, why=_why(error), hint=hint)

    def list(self) -> Iterator[Sequence[Listed]]:
        """List batches in byte order of the path. Memory grows with the largest folder (or some dozen
        folders, if calls wait for a server), but not with the number of files.

        Raises PreflightError at the end, naming the items that the policies refuse.
        """
        self._ignored = {"links": 0}
        self._hard_links = HardLinks(self._keep)
        self._empty_folders = []
        offenders = RefusedFiles(self._keep)
        batch: list[Listed] = []
        for run in self._one_file(offenders) if self._is_one_file() else self._walk(offenders):
            batch += run
            while len(batch) >= BATCH:
                yield batch[:BATCH]
                del batch[:BATCH]
        if batch:
            yield batch
        if offenders.left_out:
            self._ignored["filtered"] = offenders.left_out
        if offenders.count:
            raise offenders.error(self.url)

    def _is_one_file(self) -> bool:
        """Return whether the root is a file or a link to a file, or was one at an earlier call."""
        self._was_file = self._was_file or os.path.isfile(self.root)
        return self._was_file

    def _one_file(self, offenders: RefusedFiles) -> Iterator[Sequence[Listed]]:
        name = os.path.basename(self.root)
        listed = self._link(name, offenders) if os.path.islink(self.root) else self.list_one(name)
        yield [listed] if listed is not None else []

    @property
    def _top(self) -> str:
        """The folder to which keys are relative."""
        return os.path.dirname(self.root) if self._is_one_file() else self.root

    def _walk(self, offenders: RefusedFiles) -> Iterator[Sequence[Listed]]:
        try:
            root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise self._unread(error) from None
        entered = ""
        with closing(descend(root)) as met:
            for kind, level, names, _, wrong in met:
                if entered and level.prefix != entered:
                    self._empty(entered)
                entered = f"{level.prefix}{names[0]}/" if kind == BELOW and wrong is None else ""
                if kind == FILE:
                    yield self._files(level, names, offenders)
                elif kind == LINK:
                    followed = (self._link(level.prefix + name, offenders) for name in names)
                    yield [listed for listed in followed if listed is not None]
                elif kind == OTHER:
                    for name in names:
                        offenders.add(level.prefix + name, "neither a file nor a folder", Remedy.SPECIAL)
                elif kind == BROKEN:
                    offenders.add(level.prefix, f"folder cannot be listed: {_why(wrong)}", Remedy.UNREAD)
                # a folder removed since its name was read is left out
                elif wrong is not None and wrong.errno not in GONE:
                    path = f"{level.prefix}{names[0]}/"
                    offenders.add(path, f"folder cannot be opened: {_why(wrong)}", Remedy.UNREAD)
        if entered:
            self._empty(entered)

    def _empty(self, folder: str) -> None:
        """Count an empty folder or, by policy, keep it: no file would create it on the target."""
        if self._keep is not None and not self._keep(folder):
            return
        if self.empty == "keep":
            self._empty_folders.append(folder[:-1])
        else:
            self._ignored["empty folders"] = self._ignored.get("empty folders", 0) + 1

    def _files(self, level: Level, names: Sequence[str], offenders: RefusedFiles) -> Sequence[Listed]:
        """List consecutive names that are neither folders nor links. This is the hot loop of a listing."""
        stats = level.stats(names)
        prefix = level.prefix
        paths = [prefix + name for name in names]
        texts = tokens(stats.size, stats.mtime_ns, stats.ctime_ns, stats.inode)
        columns: dict[str, Sequence[str] | Sequence[int]] = {
            "key": paths,
            "size": stats.size,
            "token": texts,
            "modified_ns": stats.mtime_ns,
        }
        files = filled(Listed, columns, len(paths))
        plain = not stats.errors and all(map(stat.S_ISREG, set(stats.mode)))
        if not plain:
            files = [
                file for index, file in enumerate(files) if self._is_file(stats, index, file.key, offenders)
            ]
        if max(stats.links) > 1:
            for index, path in enumerate(paths):
                if stats.links[index] > 1 and stat.S_ISREG(stats.mode[index]):
                    place = stats.device[index], stats.inode[index]
                    self._hard_links.saw(path, place, stats.links[index], stats.size[index])
        return files

    def _is_file(self, stats: Looked, index: int, path: str, offenders: RefusedFiles) -> bool:
        if index in stats.errors:
            if stats.errors[index] not in GONE:
                offenders.add(path, f"cannot be read: {os.strerror(stats.errors[index])}", Remedy.UNREAD)
            return False
        if stat.S_ISREG(stats.mode[index]):
            return True
        offenders.add(path, "neither a file nor a folder", Remedy.SPECIAL)
        return False

    def _link(self, path: str, offenders: RefusedFiles) -> Listed | None:
        if self.links == "skip":
            self._ignored["links"] += 1
            return None
        if self.links == "refuse":
            offenders.add(path, "symbolic link", Remedy.LINK)
            return None
        return self._follow(path, offenders)

    def _follow(self, path: str, offenders: RefusedFiles) -> Listed | None:
        inside = beneath(self._top, path)
        if inside is None:
            offenders.add(path, "link that leaves the source's root", Remedy.ASTRAY)
            return None
        try:
            status = os.stat(os.path.join(self._top, inside), follow_symlinks=False)
        except OSError as error:
            offenders.add(path, f"link that leads nowhere: {error.strerror}", Remedy.ASTRAY)
            return None
        if not stat.S_ISREG(status.st_mode):
            offenders.add(path, "link to something that is not a regular file", Remedy.ASTRAY)
            return None
        return Listed(path, status.st_size, token(status), status.st_mtime_ns)

    def list_one(self, key: str) -> Listed | None:
        reader = self.reader()
        try:
            status = reader.stat(key)
        except SourceChangedError:
            if reader.missing(key):
                return None
            raise
        finally:
            reader.close()
        return Listed(key, status.st_size, token(status), status.st_mtime_ns)

    def reader(self) -> PosixReader:
        return PosixReader(self._top, follow=self.links == "follow")


def _why(error: OSError | None) -> str:
    return error.strerror or str(error) if error else ""
