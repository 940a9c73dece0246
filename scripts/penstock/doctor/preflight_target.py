"""The target's checks: its folders, file system, room, lock, mounts and quotas; and who will be able to read
what is published.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from typing import TYPE_CHECKING, NamedTuple

from penstock.config.access_rules import DIR_BITS, FILE_BITS
from penstock.core import human
from penstock.core.errors import MAKE_ROOM, NoSpaceError, PreflightError
from penstock.core.human import in_quotes, printable
from penstock.core.node_answer import AclEntrySeen, AclsSeen
from penstock.core.posix_acl import USER, parse
from penstock.core.run_steps import CheckResult
from penstock.dataset import dataset_lock, rights
from penstock.doctor.preflight_results import WHERE_IDS_ARE_MAPPED, folders, roots
from penstock.fs import owners, store_checks, watched_facts
from penstock.fs import quotas as kernel_quotas
from penstock.fs.kinds import named_kind, rules_of
from penstock.fs.mount_checks import check_mount
from penstock.fs.owners import acl_refusal, judge_acl
from penstock.fs.quotas import owner_of_new, unnamed_group
from penstock.host.kernel_facts import nearest
from penstock.target import access, dataset_folders, modes
from penstock.target.modes import group_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.config.settings import DatasetConfig, PermissionsConfig, TargetConfig
    from penstock.core.layout import DatasetLayout
    from penstock.core.node_answer import NodeAnswer
    from penstock.dataset.context import Context
    from penstock.doctor.preflight_results import Answers, Looks
    from penstock.fs.capabilities import StorageFacts
    from penstock.fs.stores import StoreStatus


# Checks the target: folders, file system, free space, lock, mount, the owner's quotas, and servers. The
# vendor's client and commands report on servers. Also checks the mounts of sources.


def check_mounts(context: Context, config: DatasetConfig, answers: Answers, looks: Looks) -> None:
    """Report on the mounts of all responsive folders."""
    looks.saw(*mount_checks(context.config.target, config, answers), what="a mount is not in order")


def mount_checks(target: TargetConfig, config: DatasetConfig, answers: Answers) -> list[CheckResult]:
    """Return the results for the mounts of all responsive folders, without repetitions."""
    results = []
    if not answers.silent(target.root):
        results += check_mount(target.root)
    if target.state_root is not None and not answers.silent(target.state_root):
        results += check_mount(target.state_root)
    for folder in folders(config.sources):
        if not answers.silent(folder):
            results += check_mount(folder, source=True)
    return list(dict.fromkeys(results))


def check_quotas(config: DatasetConfig, layout: DatasetLayout, answers: Answers, looks: Looks) -> None:
    """Check the quotas of a responsive target. Raises PreflightError for an unknown group."""
    if answers.silent(layout.root):
        return
    gid = modes.group_id(config.permissions)
    quotas = kernel_quotas.of_new_files(layout.releases, None, gid)
    checks = kernel_quotas.check(quotas)
    if gid is None:
        checks += unnamed_group(nearest(layout.root), enforced="group" in quotas.enforced)
    looks.saw(*checks, what="the target is not in order", where=str(layout.root))


# Checks of the target's servers, with the file system's client and its vendor's commands.
#
# They come before any check that makes a file, since making a file would wait for minutes if a server is
# missing.


def check_servers(layout: DatasetLayout, looks: Looks) -> tuple[StoreStatus | None, bool]:
    """Return the servers' state that the target's client shows in /proc (None if it shows none), and whether
    all servers are reachable. Makes no call on the mount."""
    shown, away = watched_facts.servers_away(layout.root)
    if away:
        looks.gone(watched_facts.away_error(layout.root, away), *away)
    return shown, not away


def check_vendor(
    context: Context,
    config: DatasetConfig,
    layout: DatasetLayout,
    answers: Answers,
    looks: Looks,
    shown: StoreStatus | None,
) -> bool:
    """Return whether the target's servers are in order. If they are not, the caller must make no file on the
    target. `shown` is the result of `check_servers`. For an unresponsive target, report only servers that the
    vendor's commands do not reach. Raises PreflightError for an unknown group."""
    if answers.silent(layout.root):
        away = watched_facts.unreached_servers(layout.root)
        if away:
            looks.gone(watched_facts.away_error(layout.root, away), *away)
        return not away
    target = context.config.target
    checks = store_checks.check_target(
        layout.releases,
        gid=modes.group_id(config.permissions),
        wish=target.striping,
        named=target.filesystem,
        shown=shown,
    )
    if checks.in_order:
        looks.saw(*checks.results, what="the target is not in order", where=str(layout.root))
    else:
        looks.gone(watched_facts.away_error(layout.root, checks.results), *checks.results)
    return checks.in_order


def check_target(
    context: Context, layout: DatasetLayout, answers: Answers, looks: Looks, before: Path | None
) -> None:
    """Raise PreflightError or NoSpaceError for an unusable target. `before` is a receipt which shows that the
    dataset was published on this target before."""
    for root in roots(context.config.target):
        answers.require(root, "the target")
    if before is not None:
        _require_content(layout, before)
    dataset_folders.check_owner(layout)
    dataset_folders.check_root(layout.root)
    if layout.state_root is not None:
        dataset_folders.check_root(layout.state_root)
    store = answers.facts(layout.root, "the target")
    keep = context.config.target.kept(store.total_bytes)
    if store.read_only:
        raise PreflightError(
            "the target is mounted read-only",
            where=str(layout.root),
            hint="correct `target.root`, or the mount",
        )
    if store.free_bytes <= keep:
        raise NoSpaceError(
            "the target has no room",
            where=str(layout.root),
            why=f"{human.size(store.free_bytes)} are free, and target.keep_free is {human.size(keep)}",
            hint=f"{MAKE_ROOM}, or lower target.keep_free",
        )
    for folder in (layout.state, layout.state.parent, layout.state.parent.parent):
        if folder.is_dir():
            dataset_lock.try_out(folder, layout.dataset)
            break
    owners = context.config.target.owners
    looks.saw(
        *judged(layout.root, store, keep),
        *account(os.geteuid(), as_root=rights.as_root()),
        *trusted(os.geteuid(), owners, _owner(layout.root)),
        what="the target cannot be used by this account",
        where=printable(str(layout.root)),
    )


def _require_content(layout: DatasetLayout, before: Path) -> None:
    """Raise PreflightError if the root is missing or empty. If its file system is not mounted, a run would
    begin a second tree below the mount point."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(layout.root) as entries:
        if next(entries, None) is not None:
            return
    raise PreflightError(
        "what was published in the target is not there any more",
        where=printable(str(layout.root)),
        why=f"{printable(str(before))} says that {layout.dataset} was published in it, and the folder is "
        + ("empty" if layout.root.is_dir() else "missing"),
        hint="mount its file system; where it was removed on purpose, `rm -r "
        f"{shlex.quote(str(before.parent.parent))}`, and the next run stages all of it",
    )


def described(root: Path, store: StorageFacts) -> str:
    """Describe the target: `ext4 on /, 42 GiB free`. For a missing root, describe the nearest folder above.
    The mount point reveals whether the target's file system is mounted."""
    prefix = "" if os.path.lexists(root) else "not there yet, "
    return prefix + printable(f"{store.kind} on {store.mount_point}, {human.size(store.free_bytes)} free")


def judged(root: Path, store: StorageFacts, keep: int) -> list[CheckResult]:
    """Judge the root, and whether reads bypass caches:

    | reads provably bypass this machine's caches | the root | results                   |
    |---------------------------------------------|----------|---------------------------|
    | any                                         | missing  | the target, a note        |
    | yes                                         | exists   | the target, ok            |
    | no                                          | any      | the target, and a warning |
    """
    where, exists = printable(str(root)), os.path.lexists(root)
    results = [
        CheckResult(
            "target",
            f"{where}, {described(root, store)}, durable by {store.durability}",
            "ok" if exists else "note",
            wanted=f"a folder that this account may write, with more than {human.size(keep)} free"
            if exists
            else "",
            mend="" if exists else "nothing where this file system is meant: the run makes the folder",
        )
    ]
    if not store.passable:
        results.append(
            CheckResult(
                "caches",
                f"{where} is {store.kind}: reads cannot be shown to pass this machine's caches there, so "
                "what is read back counts as `reread`, never as `cold`",
                "warning",
            )
        )
    return results


def _owner(root: Path) -> int:
    """Return the root's owner, or this account if it will make the missing root."""
    try:
        return root.stat().st_uid
    except FileNotFoundError:
        return os.geteuid()


def trusted(uid: int, owners: Sequence[str], root_owner: int) -> list[CheckResult]:
    """Warn if gates would not accept data that this account stages.

    | target.owners        | the account            | result                                           |
    |----------------------|------------------------|--------------------------------------------------|
    | include the account  | any                    | no result                                        |
    | include only others  | any                    | a warning                                        |
    | are not set          | owns the root          | no result                                        |
    | are not set          | does not own the root  | a warning: gates open only to this account       |
    """
    if not owners and uid != root_owner:
        state = f"target.owners are not set, and {access.in_words([str(root_owner)])} owns the root"
        lets_in = f"`gate` and `path` give what {access.in_words([str(uid)])} stages to that account alone"
        return [CheckResult("owners", f"{state}: {lets_in}", "warning", mend=access.naming(uid))]
    if not owners or access.is_listed(uid, owners):
        return []
    state = f"{access.in_words([str(uid)])} is not among target.owners ({access.in_words(owners)})"
    return [
        CheckResult(
            "owners",
            f"{state}: `gate` and `path` take nothing that it stages",
            "warning",
            mend="stage as one of them, or name this account there",
        )
    ]


def account(uid: int, *, as_root: bool) -> list[CheckResult]:
    """Judge the account:

    | the account | `--as-root` | result                               |
    |-------------|-------------|--------------------------------------|
    | root        | no          | stop: the other commands reject root |
    | root        | yes         | warning                              |
    | not root    | any         | no result                            |
    """
    if uid != 0:
        return []
    state = (
        "this is root (uid 0): no folder's mode fences a late writer of root, and most network mounts "
        "squash root"
    )
    mend = "stage by an account of its own"
    if as_root:
        return [CheckResult("account", state, "warning", mend=mend)]
    return [CheckResult("account", state, "stop", mend=f"{mend}; root itself stages with `--as-root` alone")]


# Finds out who will be able to read the published data. The data's modes, group and ACL, and the folders
# above it, decide that. An ACL's users and groups must be known on this machine and on nodes.


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
        return judged_readers(policy, _way(folder, gid))
    except OSError as error:
        return CheckResult(ABOUT, printable(f"not known ({error.strerror})"), "note")


def _way(folder: Path, gid: int | None) -> Way:
    existing = nearest(folder)
    uid, gid = owner_of_new(existing, None, gid)
    return Way(owners.account(uid), _group_name(gid), owners.others_in(gid, uid), _closed(existing))


def judged_readers(policy: PermissionsConfig, way: Way) -> CheckResult:
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
