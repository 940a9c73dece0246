"""Final modes, group and ACLs of a release: checked, and set where they differ.

For the permissions step, which calls `set_permissions` between copy and verify; plan, copy and preflight take
from here what the configuration's `permissions` say. Changes modes, groups and ACLs below a staging's `data`.

Files come with their final mode and group already (`staging_writer`), and inherit their ACL from their folder
where the file system hands it down; this module sets those of giants and folders, and of files that a file
system changed on its own. Folders lose their write bit from the deepest up, which also keeps late attempts
out (of accounts other than root).
"""

from __future__ import annotations

import contextlib
import os
import stat
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from penstock.config.access_rules import DIR_BITS, FILE_BITS, Access, AccessRules
from penstock.core.errors import FailedError, PreflightError
from penstock.core.layout import DATA
from penstock.core.posix_acl import USER, in_words, parse
from penstock.core.text import in_quotes
from penstock.fs.adaptive_threads import Calls
from penstock.fs.errno_map import printable, storage_error
from penstock.fs.owners import group_number, user_number
from penstock.fs.path_walk import walk
from penstock.fs.safe_open import OPEN_FOLDER, Folders, open_beneath
from penstock.target import access
from penstock.target.barrier import Barrier
from penstock.target.operation_budget import unlimited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from penstock.config.settings import PermissionsConfig
    from penstock.core.documents.step_results import ModesSet
    from penstock.core.posix_acl import NamedEntry
    from penstock.fs.path_walk import WalkedPath

TOGETHER = 4096
"""Files or folders that are collected before they are changed, by several threads."""
_HOLD = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def file_mode(policy: PermissionsConfig) -> int:
    """The mode that files get: never for all to write, never setuid, setgid or sticky."""
    return policy.file_mode & FILE_BITS


def dir_mode(policy: PermissionsConfig) -> int:
    """The mode that folders get: never for all to write, never setuid or sticky."""
    return policy.dir_mode & DIR_BITS


def group_id(policy: PermissionsConfig) -> int | None:
    """The configured group's number; None when none is configured. Raises PreflightError for a group that
    this machine does not know."""
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
    """The policy's ACL entries, with users and groups by number, and its modes for paths of a pattern. Raises
    PreflightError for a user or group that this machine does not know, ConfigError for a pattern that cannot
    be used."""
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


def set_permissions(
    staging: Path, policy: PermissionsConfig, gid: int | None, spend: Callable[[int], None] = unlimited
) -> ModesSet:
    """Give everything in a staging's `data`, and `data` itself, its final mode, group and ACL, each
    folder before the one that holds it. Only what differs is touched, and looked at again. Returns counts.
    `spend` waits for metadata operations (`budget`).

    Idempotent. Raises FailedError that names the first thing that cannot be set, that does not keep what
    was set, or that is neither a file nor a folder, or a file with further links that would have to be
    changed.
    """
    data = staging / DATA
    rules, modes = access_rules(policy), {"file": file_mode(policy), "dir": dir_mode(policy)}
    counts = {"files": 0, "folders": 0, "changed_files": 0, "changed_folders": 0}
    files: list[str] = []
    above: list[tuple[str, bool]] = []
    left: list[str] = []
    with Barrier(data) as barrier, _opened(data) as root, Calls() as calls:
        fixed = None if rules else {kind: Access(mode) for kind, mode in modes.items()}

        def wanted(kind: str, path: str) -> Access:
            if fixed is not None:
                return fixed[kind]
            return (rules.folder if kind == "dir" else rules.file)(path, modes[kind])

        operations = (1 if gid is None else 2) + (2 if rules.has_acl else 0)

        def change(paths: list[str], kind: str) -> int:
            def some_changed(some: Sequence[str]) -> list[bool]:
                changed = []
                for path in some:
                    spend(operations)
                    changed.append(_set(root, path, wanted(kind, path), gid))
                return changed

            return sum(calls.each(some_changed, paths))

        def close_left(most: int) -> None:
            """Folders that the walk has left, so all that they hold was left before."""
            if len(left) > most:
                for _, together in groupby(sorted(left, key=_depth, reverse=True), _depth):
                    counts["changed_folders"] += change(list(together), "dir")
                left.clear()

        for walked in walk(data):
            differs = _differs(data, walked, partial(wanted, walked.kind), gid) or rules.has_acl
            while above and not walked.path.startswith(above[-1][0] + "/"):
                path, changes = above.pop()
                if changes:
                    left.append(path)
            close_left(TOGETHER)
            if walked.kind == "dir":
                counts["folders"] += 1
                above.append((walked.path, differs))
                continue
            counts["files"] += 1
            if differs:
                files.append(walked.path)
                if len(files) == TOGETHER:
                    counts["changed_files"] += change(files, "file")
                    files.clear()
        counts["changed_files"] += change(files, "file")
        left += [path for path, changes in above if changes]
        close_left(0)
        counts["changed_folders"] += change([""], "dir")
        barrier.wait()
    return {
        "files": counts["files"],
        "folders": counts["folders"],
        "changed_files": counts["changed_files"],
        "changed_folders": counts["changed_folders"],
        "file_mode": f"{modes['file']:04o}",
        "dir_mode": f"{modes['dir']:04o}",
        "gid": gid,
        "acl": rules.entries,
    }


def unseal(data: Path, paths: Iterable[str]) -> None:
    """Give these files of a staging their owner's write bit again: giants (objects split into parts over
    several shards), of which parts are written anew in place. What is no regular file is removed; a missing
    file is passed over. Raises by `errno_map.storage_error`."""
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


def _differs(data: Path, walked: WalkedPath, wanted: Callable[[str], Access], gid: int | None) -> bool:
    """Whether it needs another mode or group. Raises FailedError where it must not be changed."""
    if walked.kind not in ("file", "dir"):
        raise FailedError(
            "staging holds something that is neither a file nor a folder",
            where=printable(walked.path),
            why="penstock makes none (a source's links go by the dataset's `links`)",
            hint=f"find out who did, and remove {printable(str(data / walked.path))}",
        )
    if walked.mode == wanted(walked.path).mode and (gid is None or walked.gid == gid):
        return False
    if walked.kind == "file" and walked.links != 1:
        raise _linked_elsewhere(
            walked.path, f"mode {walked.mode:04o}, group {walked.gid}, {walked.links} links"
        )
    return True


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
    """Set what differs, and look whether it stays. The thing is held by a descriptor that needs no right to
    read it and follows no link."""
    try:
        fd = open_beneath(root, path, _HOLD) if path else os.open(".", _HOLD, dir_fd=root)
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
            if wanted.acl is not None and actual.kind == stat.S_IFREG and actual.links != 1:
                raise _linked_elsewhere(path, f"{actual.in_words(wanted)}, {actual.links} links")
            access.give(held, actual, wanted, gid)
            actual = access.look(held, wanted)
        finally:
            os.close(fd)
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
