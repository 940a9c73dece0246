"""Checks the final modes, group and ACLs of a release's files and folders, and sets those that differ.

A file gets its final permissions when it is written (`staging_writer`). A giant, whose parts several attempts
write, gets them when its first part is read back (`finish_giants`). So all files are checked only if other
programs wrote files too, or publish found a file with other permissions. Folders lose their write bit, the
deepest first. This also prevents late attempts from writing, except attempts of root.
"""

from __future__ import annotations

import contextlib
import os
import stat
from itertools import groupby
from operator import eq
from typing import TYPE_CHECKING, Self

from penstock.config.access_rules import DIR_BITS, FILE_BITS, Access, AccessRules
from penstock.core.errors import FailedError, PreflightError
from penstock.core.human import in_quotes
from penstock.core.layout import DATA, TEMPORARY
from penstock.core.posix_acl import USER, in_words, parse
from penstock.fs import owners
from penstock.fs.owners import group_number, user_number
from penstock.fs.safe_open import HOLD, OPEN_FOLDER, Folders, open_beneath, printable, storage_error
from penstock.fs.tree import BELOW, FILE, Calls, descend, failed
from penstock.host.pacing import unlimited
from penstock.target import access, tree_removal
from penstock.target.staging_folder import Barrier

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from penstock.config.settings import PermissionsConfig
    from penstock.core.posix_acl import NamedEntry
    from penstock.core.step_results import ModesSet
    from penstock.fs.tree import Level, Row

_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
TOGETHER = 4096  # number of files or folders that are collected before several threads change them


def file_mode(policy: PermissionsConfig) -> int:
    """Return the mode of files: never writable for all, never setuid, setgid or sticky."""
    return policy.file_mode & FILE_BITS


def dir_mode(policy: PermissionsConfig) -> int:
    """Return the mode of folders: never writable for all, never setuid or sticky."""
    return policy.dir_mode & DIR_BITS


def group_id(policy: PermissionsConfig) -> int | None:
    """Return the configured group's number, if any. Raises PreflightError if this machine does not know the
    group."""
    if policy.group is None:
        return None
    number = group_number(policy.group)
    if number is None:
        raise PreflightError(
            f"there is no group {in_quotes(policy.group)} on this machine",
            where="permissions.group",
            hint="name a group that every node knows, or its number",
        )
    return number


def access_rules(policy: PermissionsConfig) -> AccessRules:
    """Return the policy's rules: its ACL entries, with users and groups as numbers, and its modes by path.

    Raises PreflightError if this machine does not know a user or group, ConfigError for an unusable pattern.
    """
    named: dict[tuple[int, str], NamedEntry] = {}
    for text in policy.acl:
        entry = parse(text)
        entry = entry._replace(who=str(_number(entry.tag, entry.who, text)))
        if named.setdefault((entry.tag, entry.who), entry) is not entry:
            raise PreflightError(
                "two entries are of the same user or group",
                where="permissions.acl",
                why=f"{text} has the number {entry.who}, as one before it",
                hint="leave one of them",
            )
    return AccessRules(policy.modes, list(named.values()))


def _number(tag: int, who: str, text: str) -> int:
    number = user_number(who) if tag == USER else group_number(who)
    if number is None:
        kind = "user" if tag == USER else "group"
        raise PreflightError(
            f"there is no {kind} {in_quotes(who)} on this machine",
            where="permissions.acl",
            why=f"the entry {text} names it",
            hint=f"name a {kind} that every node knows, or its number",
        )
    return number


class FinalAccess:
    """Mode, group and ACL of all files and folders of a release."""

    def __init__(self, policy: PermissionsConfig, gid: int | None) -> None:
        """A `gid` of None allows any group. Raises the errors of `access_rules`."""
        self.rules, self.gid = access_rules(policy), gid
        self.file_mode, self.dir_mode = file_mode(policy), dir_mode(policy)

    def file(self, path: str) -> Access:
        return self.rules.file(path, self.file_mode)

    def folder(self, path: str) -> Access:
        return self.rules.folder(path, self.dir_mode)

    def held(self, paths: Sequence[str], modes: Sequence[int], gids: Sequence[int]) -> bool:
        """Return whether all files have the right mode and group. `modes` and `gids` come from the files'
        stats."""
        if self.gid is not None and not set(gids) <= {self.gid}:
            return False
        if not self.rules.by_path:
            return set(modes) <= {stat.S_IFREG | self.file("").mode}
        wanted = (stat.S_IFREG | self.file(path).mode for path in paths)
        return all(map(eq, modes, wanted))


class FilePermissions:
    """Compares the lstats of files below `data`, which come from a walk, with the files' final permissions.
    ACLs are read only if some are configured."""

    def __init__(self, data: Path, final: FinalAccess, spend: Callable[[int], None] = unlimited) -> None:
        self._final, self._spend = final, spend
        self._root, self._calls = os.open(data, OPEN_FOLDER), Calls()

    def held(self, paths: Sequence[str], modes: Sequence[int], gids: Sequence[int]) -> bool:
        """Do the same as `FinalAccess.held`, but also check that the files have their ACLs."""
        if not self._final.held(paths, modes, gids):
            return False
        acls = self._calls.each(self._acls_held, paths) if self._final.rules.has_acl else ()
        return all(acls)

    def _acls_held(self, paths: Sequence[str]) -> list[bool]:
        held = []
        for path in paths:
            self._spend(1)
            fd = open_beneath(self._root, path, HOLD)
            try:
                acl = owners.read_acl(f"/proc/self/fd/{fd}")
            finally:
                os.close(fd)
            held.append(owners.acl_allows(acl, self._final.file(path).acl))
        return held

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.close()
        os.close(self._root)


def set_permissions(
    staging: Path,
    policy: PermissionsConfig,
    gid: int | None,
    spend: Callable[[int], None] = unlimited,
    *,
    giants: Collection[str] | None = None,
) -> ModesSet:
    """Give `data` and the folders below it their final access, the deepest first, and remove temporary files
    of dead attempts.

    It makes one walk, and changes only entries that differ, which it then checks again. It is idempotent.
    Returns counts.

    | `giants` | what happens to files                                                                   |
    |----------|-----------------------------------------------------------------------------------------|
    | paths    | the files at these paths are checked and set, unless missing; of all others only the    |
    |          | names are read, as their writer gave them their permissions                             |
    | None     | all files are checked, and set if they differ                                           |

    Raises FailedError for the first path that is neither file nor folder, or whose access cannot be set or
    does not stay as set. Also raises it for a file that must change but is shared with another release.
    """
    data, final = staging / DATA, FinalAccess(policy, gid)
    try:
        try:
            return _close(data, final, spend, giants)
        except PermissionError:
            # Somebody set a mode with which the owner cannot enter the folder.
            tree_removal.open_folders(data)
            return _close(data, final, spend, giants)
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else str(data)
        raise storage_error(error, "cannot set permissions", where) from None


def finish_giants(data: Path, policy: PermissionsConfig, gid: int | None, giants: Iterable[str]) -> None:
    """Give giants, whose parts must all be written, their final access if it differs. Skips missing files.

    It is idempotent. Raises the errors of `set_permissions`.
    """
    final = FinalAccess(policy, gid)
    try:
        with _opened(data) as root:
            for path in giants:
                # On NFS, only an open gets the current mode from the server. If this node set a mode again
                # because it sees an old cached mode, the ctime that another node recorded would change.
                with contextlib.suppress(OSError):
                    os.close(open_beneath(root, path, _LOOK))
                _set(root, path, final.file(path), gid)
    except OSError as error:
        raise storage_error(error, "cannot set permissions", str(data)) from None


def _close(
    data: Path, final: FinalAccess, spend: Callable[[int], None], giants: Collection[str] | None
) -> ModesSet:
    """Do the work of `set_permissions`. Also raises OSError."""
    rules, gid = final.rules, final.gid
    counts = {"files": 0, "folders": 0, "changed_files": 0, "changed_folders": 0, "swept": 0}
    files: list[str] = []
    above: list[tuple[str, bool]] = []
    left: list[str] = []
    operations = (1 if gid is None else 2) + (2 if rules.has_acl else 0)
    with Barrier(data) as barrier, _opened(data) as root, Calls() as calls:

        def change(paths: Sequence[str], wanted: Callable[[str], Access]) -> int:
            def some_changed(some: Sequence[str]) -> list[bool]:
                changed = []
                for path in some:
                    spend(operations)
                    changed.append(_set(root, path, wanted(path), gid))
                return changed

            return sum(calls.each(some_changed, paths))

        def close_left(most: int) -> None:
            """If more than `most` folders are finished, change them. The walk has left all entries below
            them."""
            if len(left) > most:
                for _, together in groupby(sorted(left, key=_depth, reverse=True), _depth):
                    counts["changed_folders"] += change(list(together), final.folder)
                left.clear()

        met = descend(os.open(data, OPEN_FOLDER), names_only=giants is not None)
        with contextlib.closing(met):
            for kind, level, names, row, error in met:
                path = level.prefix + (names[0] if names else "")
                if error is not None:
                    error.filename = str(data / path)
                    raise error
                while above and not path.startswith(above[-1][0] + "/"):
                    folder, changes = above.pop()
                    if changes:
                        left.append(folder)
                close_left(TOGETHER)
                if kind == BELOW and row is not None:
                    counts["folders"] += 1
                    above.append((path, rules.has_acl or not _is_right(row, final.folder(path).mode, gid)))
                elif kind == FILE:
                    files += _differing(final, level, names) if giants is None else ()
                    swept = tree_removal.remove_temporaries(level.fd, names)
                    counts["files"] += len(names) - swept
                    counts["swept"] += swept
                    if len(files) >= TOGETHER:
                        counts["changed_files"] += change(files, final.file)
                        files.clear()
                else:
                    raise _special(data, path)
        counts["changed_files"] += change([*files, *(giants or ())], final.file)
        left += [path for path, changes in above if changes]
        close_left(0)
        counts["changed_folders"] += change([""], final.folder)
        barrier.wait()
    return {
        "files": counts["files"],
        "folders": counts["folders"],
        "changed_files": counts["changed_files"],
        "changed_folders": counts["changed_folders"],
        "swept": counts["swept"],
        "file_mode": f"{final.file_mode:04o}",
        "dir_mode": f"{final.dir_mode:04o}",
        "gid": gid,
        "acl": rules.entries,
    }


def _is_right(row: Row, mode: int, gid: int | None) -> bool:
    return stat.S_IMODE(row[0]) == mode and gid in (None, row[7])


def _differing(final: FinalAccess, level: Level, names: Sequence[str]) -> list[str]:
    """Return the files of a folder that differ, or all files if ACLs must be read. Skips temporary files."""
    looked = level.stats(names)
    differing = []
    for index, name in enumerate(names):
        if TEMPORARY.fullmatch(name):
            continue
        path = level.prefix + name
        if index in looked.errors:
            error = failed(looked.errors[index])
            error.filename = path
            raise error
        if final.rules.has_acl or not final.held((path,), (looked.mode[index],), (looked.gid[index],)):
            differing.append(path)
    return differing


def _special(data: Path, path: str) -> FailedError:
    return FailedError(
        "staging holds something that is neither a file nor a folder",
        where=printable(path),
        why="penstock makes none (a source's links go by the dataset's `links`)",
        hint=f"find out who did, and remove {printable(str(data / path))}",
    )


def unseal(data: Path, paths: Iterable[str]) -> None:
    """Give giants of a staging their owner's write bit again, so that parts can be written again in place.

    Removes paths that are no regular files, and skips missing files.
    """
    with _opened(data) as root:
        folders = Folders(root, 64)
        try:
            for path in paths:
                try:
                    parent, _, name = path.rpartition("/")
                    above = folders.get(parent)
                    status = os.stat(name, dir_fd=above, follow_symlinks=False)
                    if not stat.S_ISREG(status.st_mode):
                        os.unlink(name, dir_fd=above)
                    elif not status.st_mode & stat.S_IWUSR:
                        mode = stat.S_IMODE(status.st_mode) | stat.S_IRUSR | stat.S_IWUSR
                        _set(root, path, Access(mode), None)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    what = "cannot open a file for writing again"
                    raise storage_error(error, what, str(data / path)) from None
        finally:
            folders.close()


@contextlib.contextmanager
def _opened(data: Path) -> Iterator[int]:
    root = os.open(data, OPEN_FOLDER)
    try:
        yield root
    finally:
        os.close(root)


def _linked_elsewhere(path: str, why: str) -> FailedError:
    return FailedError(
        "a file that is shared with another release has other permissions",
        where=printable(path),
        why=why,
        hint="stage under another release name with `penstock run --copy-unchanged`",
    )


def _depth(path: str) -> int:
    return path.count("/")


def _set(root: int, path: str, wanted: Access, gid: int | None) -> bool:
    """Set the access that differs, and check that it stays. Returns False if nothing differs, or the path is
    missing.

    Uses a descriptor that needs no read permission and follows no link.
    """
    try:
        fd = open_beneath(root, path, HOLD) if path else os.open(".", HOLD, dir_fd=root)
        try:
            if stat.S_ISLNK(os.fstat(fd).st_mode):
                raise FailedError(
                    "a file was replaced by a link",
                    where=printable(path),
                    hint="see who else writes into the staging; then the same command goes on",
                )
            held = f"/proc/self/fd/{fd}"
            actual = access.look(held, wanted)
            if access.right(actual, wanted, gid):
                return False
            if actual.kind == stat.S_IFREG and actual.links != 1:
                raise _linked_elsewhere(path, f"{actual.in_words(wanted)}, {actual.links} links")
            access.give(held, actual, wanted, gid)
            actual = access.look(held, wanted)
        finally:
            os.close(fd)
    except FileNotFoundError:
        return False  # publish reports missing files
    except OSError as error:
        raise FailedError(
            f"cannot set {_in_words(wanted, gid)}",
            where=printable(path or "."),
            why=str(error.strerror),
            hint="only a member of the group can give it; only the owner can set modes and ACLs",
        ) from None
    if not access.right(actual, wanted, gid):
        raise FailedError(
            "a file or folder does not keep the permissions that were set",
            where=printable(path or "."),
            why=f"it has {actual.in_words(wanted)} again; "
            f"set were {_in_words(wanted, gid).removeprefix('mode ')}",
            hint="the file system forces modes or groups: look at its mount options",
        )
    return True


def _in_words(wanted: Access, gid: int | None) -> str:
    text = f"mode {wanted.mode:04o}" + ("" if gid is None else f" and group {gid}")
    return text if wanted.acl is None else f"{text}, ACL {in_words(wanted.acl)}"
