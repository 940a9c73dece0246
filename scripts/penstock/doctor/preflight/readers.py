"""Who will be able to read what is published: by modes, group, ACL and the folders above."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from penstock.config.access_rules import DIR_BITS, FILE_BITS
from penstock.core.errors import PreflightError
from penstock.core.events import CheckResult
from penstock.core.human import in_quotes, printable
from penstock.fs import owners
from penstock.fs.quotas import owner_of_new
from penstock.host.proc import nearest
from penstock.target.modes import group_id

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.config.settings import DatasetConfig, PermissionsConfig
    from penstock.core.layout import DatasetLayout
    from penstock.doctor.preflight.mount_answers import Answers
    from penstock.doctor.preflight.results import Looks

ABOUT = "readers"
FOR_A_GROUP = "`permissions.group` names a group that reads"
FOR_ALL = "file_mode '0444' with dir_mode '2555' lets everybody read"
_WRITES = 0o222


class Way(NamedTuple):
    """What decides beside `permissions`."""

    owner: str
    group: str  # its name, else its number
    others: bool | None  # whether the group has another account than the owner; None: not known
    closed: str = ""  # a folder above the data, with its mode, that lets only its owner in; "": none


def check(config: DatasetConfig, layout: DatasetLayout, answers: Answers, looks: Looks) -> None:
    """Raise PreflightError for a group to which this account may not give files."""
    policy = config.permissions
    gid = group_id(policy)
    mine = {os.getegid(), *os.getgroups()}
    if gid is not None and os.geteuid() != 0 and gid not in mine:
        names = ", ".join(sorted(_group_name(number) for number in mine))
        raise PreflightError(
            f"this account may not give files to group {in_quotes(policy.group)}",
            where=f"datasets.{config.name}.permissions.group",
            why=f"it is in {names}",
            hint="have it added to the group, or name one of these",
        )
    if not answers.silent(layout.root):
        looks.saw(of_folder(policy, layout.releases, gid))
    looks.saw(*writable(policy))


def of_folder(policy: PermissionsConfig, folder: Path, gid: int | None) -> CheckResult:
    """Judge what is published in this folder, which may be missing. `gid` is the configured group; None: the
    file system's."""
    try:
        return judged(policy, _way(folder, gid))
    except OSError as error:
        return CheckResult(ABOUT, printable(f"not known ({error.strerror})"), "note")


def _way(folder: Path, gid: int | None) -> Way:
    existing = nearest(folder)
    uid, gid = owner_of_new(existing, None, gid)
    return Way(owners.account(uid), _group_name(gid), owners.others_in(gid, uid), _closed(existing))


def judged(policy: PermissionsConfig, way: Way) -> CheckResult:
    """Say who reads:

    | the modes let read | a folder above is closed | others in the group | ACL | who reads, verdict       |
    |--------------------|--------------------------|---------------------|-----|--------------------------|
    | any                | yes                      | any                 | any | the owner alone, warning |
    | everybody          | no                       | any                 | any | everybody, ok            |
    | any                | no                       | any                 | yes | whom it names, too, ok   |
    | the group          | no                       | yes, or not known   | no  | the group, ok            |
    | the group          | no                       | no                  | no  | the owner alone, warning |
    | the owner          | no                       | any                 | no  | the owner alone, warning |
    """
    owner, group = printable(way.owner), printable(way.group)
    alone = f"{owner} alone"
    if way.closed:
        state = f"{alone}: {printable(way.closed)} lets nobody else in"
        return _warning(state, "open that folder to readers (chmod), or name another `target.root`")
    if _lets_read(policy, 0o7):
        return CheckResult(ABOUT, "everybody who reaches the target, by file_mode and dir_mode")
    by_group = _lets_read(policy, 0o70)
    if policy.acl:
        among = f" and the group {group}" if by_group else ""
        named = printable(", ".join(policy.acl))
        return CheckResult(ABOUT, f"{owner}{among}, and by `permissions.acl` {named}")
    if not by_group:
        modes = f"file_mode {_file_mode(policy):04o} and dir_mode {_dir_mode(policy):04o}"
        return _warning(f"{alone}: {modes} let no group read", FOR_ALL)
    if way.others is False:
        mend = f"{FOR_A_GROUP}; {FOR_ALL}"
        return _warning(f"{alone}: nobody else is in the group {group}", mend)
    by = "by `permissions.group`" if policy.group is not None else "the target's; `permissions.group` sets it"
    return CheckResult(ABOUT, f"{owner} and the group {group} ({by})")


def writable(policy: PermissionsConfig) -> list[CheckResult]:
    """Warn of modes by which published data can be changed."""
    modes = [("file_mode", _file_mode(policy)), ("dir_mode", _dir_mode(policy))]
    for rule in policy.modes:
        modes += [(f"modes {rule.match}", mode) for mode in (rule.file, rule.dir) if mode is not None]
    writable = [f"{key} {mode:04o}" for key, mode in modes if mode & _WRITES]
    if not writable:
        return []
    what = f"{printable(', '.join(writable))}: published data can be written, by accident too"
    return [CheckResult("modes", what, "warning", mend="take the write bits away, as in 0444 and 2555")]


def _warning(state: str, mend: str) -> CheckResult:
    return CheckResult(ABOUT, state, "warning", mend=mend)


def _file_mode(policy: PermissionsConfig) -> int:
    return policy.file_mode & FILE_BITS


def _dir_mode(policy: PermissionsConfig) -> int:
    return policy.dir_mode & DIR_BITS


def _lets_read(policy: PermissionsConfig, whom: int) -> bool:
    """`whom`: the bits of everybody (0o7) or the group (0o70)."""
    return bool(_file_mode(policy) & 0o444 & whom) and _dir_mode(policy) & 0o555 & whom == 0o555 & whom


def _closed(folder: Path) -> str:
    """Return the outermost closed folder."""
    real = type(folder)(os.path.realpath(folder))
    for above in (*reversed(real.parents), real):
        mode = stat.S_IMODE(above.stat().st_mode)
        # With an ACL the group's bits are its mask, which shows whom it lets in.
        if not mode & 0o011:
            return f"{above} (mode {mode:04o})"
    return ""


def _group_name(gid: int) -> str:
    return owners.group_name(gid) or str(gid)
