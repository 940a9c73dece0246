"""Finds out who will be able to read the published data. The data's modes, group and ACL, and the folders
above it, decide that. An ACL's users and groups must be known on this machine and on nodes.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from penstock.config.access_rules import DIR_BITS, FILE_BITS
from penstock.core.errors import PreflightError
from penstock.core.human import in_quotes, printable
from penstock.core.node_answer import AclEntrySeen, AclsSeen
from penstock.core.posix_acl import USER, parse
from penstock.core.run_steps import CheckResult
from penstock.doctor.preflight.node_view import WHERE_IDS_ARE_MAPPED
from penstock.fs import owners
from penstock.fs.kinds import named_kind, rules_of
from penstock.fs.owners import acl_refusal, judge_acl
from penstock.fs.quotas import owner_of_new
from penstock.host.kernel_facts import nearest
from penstock.target import modes
from penstock.target.modes import group_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.config.settings import DatasetConfig, PermissionsConfig, TargetConfig
    from penstock.core.layout import DatasetLayout
    from penstock.core.node_answer import NodeAnswer
    from penstock.dataset.context import Context
    from penstock.doctor.preflight.results import Answers, Looks


def check_acl(
    context: Context, config: DatasetConfig, layout: DatasetLayout, answers: Answers, looks: Looks
) -> None:
    """Check ACLs by reading one; only plan's probe sets an ACL. Raises PreflightError for a user or group
    unknown here, and ConfigError for an unusable pattern in `permissions.modes`."""
    rules = modes.access_rules(config.permissions)
    if not rules.has_acl or answers.silent(layout.root):
        return
    facts = answers.facts(layout.root, "the target")
    folder = _acl_folder(layout.root)
    kind = rules_of(facts.traits, context.config.target.filesystem)
    looks.saw(
        judge_acl(
            str(folder), ", ".join(config.permissions.acl), acl_refusal(os.path.realpath(folder)), kind.acls
        ),
        what="the target keeps no ACLs",
        where=acl_key(config),
    )


def acl_key(config: DatasetConfig) -> str:
    """Return the key of the ACL in the configuration, for errors."""
    return f"datasets.{config.name}.permissions.acl"


def _acl_folder(root: Path) -> Path:
    """Return the folder whose ACL is read: the root, or the root's parent if the root does not exist yet."""
    return root if root.exists() else root.parent


def known_accounts(
    config: DatasetConfig, target: TargetConfig, answers: Answers, numbers: Sequence[int | None] = ()
) -> AclsSeen | None:
    """Return this machine's view of ACLs, for a node's answer; None if no ACL is configured. For `numbers`
    see `acl_entries`."""
    if not config.permissions.acl:
        return None
    named = acl_entries(config.permissions.acl, numbers)
    if answers.silent(target.root):
        return AclsSeen(error=answers.mount(target.root).error, entries=named)
    folder = os.path.realpath(_acl_folder(target.root))
    mapped = owners.is_mapped(folder)
    try:
        return AclsSeen(acl_refusal(folder), mapped=mapped, entries=named)
    except OSError as error:
        return AclsSeen(error=error.strerror or str(error), mapped=mapped, entries=named)


def acl_entries(texts: Sequence[str], numbers: Sequence[int | None] = ()) -> tuple[AclEntrySeen, ...]:
    """Return the users and groups of an ACL as this machine knows them. `numbers` are their ids on the
    submitting machine; () on that machine itself."""
    entries = []
    for place, text in enumerate(texts):
        entry = parse(text)
        number = _number(entry.tag, entry.who)
        theirs = numbers[place] if place < len(numbers) else number
        name = owners.user_name if entry.tag == USER else owners.group_name
        entries.append(AclEntrySeen(text, number, "" if theirs is None else name(theirs)))
    return tuple(entries)


def _number(tag: int, who: str) -> int | None:
    return owners.user_number(who) if tag == USER else owners.group_number(who)


def judged_acl(
    node: str, config: DatasetConfig, target: TargetConfig, answer: NodeAnswer
) -> list[CheckResult]:
    """Judge a node's answer about ACLs.

    | an ACL is configured | the node's answer                       | verdict                 |
    |----------------------|-----------------------------------------|-------------------------|
    | no                   | any                                     | no result               |
    | yes                  | no ACL could be read, with a reason     | a note                  |
    | yes                  | there are no POSIX ACLs, with a reason  | a stop, as for a target |
    | yes                  | an ACL can be read                      | ok                      |
    """
    acls = answer.acls
    if not config.permissions.acl or acls is None:
        return []
    about = f"ACL on {printable(node)}"
    if acls.error:
        mend = "read one there: `getfacl` of the target"
        return [CheckResult(about, printable(f"not known ({acls.error})"), "note", mend=mend)]
    kind = rules_of(named_kind(answer.target.kind), target.filesystem)
    result = judge_acl(
        answer.target.path, ", ".join(config.permissions.acl), printable(acls.refused), kind.acls
    )
    return [result._replace(about=about)]


def entry_results(
    node: str, on_node: Sequence[AclEntrySeen], local: Sequence[AclEntrySeen], *, mapped: bool
) -> list[CheckResult]:
    """Compare the ACL's users and groups on a node with those here.

    Elements (the processes that copy) set ACLs with the numbers that their node has for the names. The
    permissions step uses the numbers of its own machine. `mapped` means that the owner or group of a file has
    different numbers on the two machines, or that one of them reports a mapping.

    | node's number | owner of our number on the node    | mapped | verdict                              |
    |--------------|-------------------------------------|--------|--------------------------------------|
    | none         | any                                 | any    | a stop: elements there fail          |
    | another      | any                                 | yes    | a note: id-mapped                    |
    | another      | an account that is not in the ACL   | no     | a stop: that account gets the rights |
    | another      | nobody, as far as is known          | no     | a warning: the ACL gives no rights   |
    | same as here | a name that differs from that here  | any    | a warning: one number, two accounts  |
    | same as here | same name, or no name here or there | any    | no result                            |
    """
    about, by_entry = f"ACL on {printable(node)}", {row.entry: row for row in on_node}
    results = []
    for mine in local:
        theirs = by_entry.get(mine.entry)
        if theirs is None or mine.number is None:
            continue
        entry = parse(mine.entry)
        kind, table = ("user", "passwd") if entry.tag == USER else ("group", "group")
        named = f"the {kind} {entry.who} of `permissions.acl`"
        compare = f"`getent {table} {entry.who}`, there and here"
        one_number = f"give it one number everywhere ({compare}), or name it by its number"
        both = f"{named} is {mine.number} here and {theirs.number} there"
        wanted = "one number for one name"
        if theirs.number is None:
            verdict = f"{named} is not known there: elements cannot set the ACL"
            mend = f"name a {kind} that every node knows, or its number"
            results.append(CheckResult(about, verdict, "stop", wanted, mend))
        elif theirs.number != mine.number and mapped:
            verdict = f"id-mapped: {both}; where numbers are mapped, audits do not compare ACLs"
            results.append(CheckResult(about, verdict, "note", wanted, WHERE_IDS_ARE_MAPPED))
        elif theirs.number != mine.number and theirs.holder not in ("", entry.who):
            verdict = f"{both}, where {mine.number} is {theirs.holder}: {theirs.holder} would get the rights"
            results.append(CheckResult(about, printable(verdict), "stop", wanted, one_number))
        elif theirs.number != mine.number:
            verdict = f"{both}, where {mine.number} has no name: the ACL gives the {kind} no rights there"
            results.append(CheckResult(about, verdict, "warning", wanted, one_number))
        elif mine.holder and theirs.holder and mine.holder != theirs.holder:
            verdict = f"{named}: {mine.number} is {mine.holder} here and {theirs.holder} there"
            mend = "compare the accounts of both machines"
            results.append(CheckResult(about, printable(verdict), "warning", "one name for one number", mend))
    return results


ABOUT = "readers"
FOR_A_GROUP = "`permissions.group` names a group that reads"
FOR_ALL = "file_mode '0444' with dir_mode '2555' lets everybody read"
_WRITES = 0o222


class Way(NamedTuple):
    """The facts that decide, together with `permissions`, who can read the data."""

    owner: str
    group: str  # the group's name, or its number if it has no name
    others: bool | None  # whether the group has members other than the data's owner; None if not known
    # a folder above the data that only its owner may enter, with its mode; "" if there is none
    closed: str = ""


def check_readers(config: DatasetConfig, layout: DatasetLayout, answers: Answers, looks: Looks) -> None:
    """Report who will be able to read. Raises PreflightError if files cannot get the configured group."""
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
    """Return a result on who will be able to read data in this folder, which may be missing. `gid` is the
    configured group, or None if the file system chooses the group."""
    try:
        return judged(policy, _way(folder, gid))
    except OSError as error:
        return CheckResult(ABOUT, printable(f"not known ({error.strerror})"), "note")


def _way(folder: Path, gid: int | None) -> Way:
    existing = nearest(folder)
    uid, gid = owner_of_new(existing, None, gid)
    return Way(owners.account(uid), _group_name(gid), owners.others_in(gid, uid), _closed(existing))


def judged(policy: PermissionsConfig, way: Way) -> CheckResult:
    """Return a result on who will be able to read the data:

    | the modes let read | a folder above is closed | others in the group | ACL | who reads, verdict       |
    |--------------------|--------------------------|---------------------|-----|--------------------------|
    | any                | yes                      | any                 | any | the owner alone, warning |
    | everybody          | no                       | any                 | any | everybody, ok            |
    | any                | no                       | any                 | yes | also ACL's accounts, ok  |
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
    """Return a warning for modes that allow published data to be changed."""
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
    """Return whether the modes let everybody (`whom` 0o7), or the group (0o70), read."""
    return bool(_file_mode(policy) & 0o444 & whom) and _dir_mode(policy) & 0o555 & whom == 0o555 & whom


def _closed(folder: Path) -> str:
    """Return the outermost folder that only its owner may enter, with its mode; "" if there is none."""
    real = type(folder)(os.path.realpath(folder))
    for above in (*reversed(real.parents), real):
        mode = stat.S_IMODE(above.stat().st_mode)
        # If a folder has an ACL, the group's bits are the ACL's mask, which includes the rights of all whom
        # the ACL lets in.
        if not mode & 0o011:
            return f"{above} (mode {mode:04o})"
    return ""


def _group_name(gid: int) -> str:
    return owners.group_name(gid) or str(gid)
