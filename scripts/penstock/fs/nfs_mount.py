"""NFS: the mount options of the kernel's client (nfs(5)), parsed and judged."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.human import printable
from penstock.core.run_steps import CheckResult
from penstock.fs.kinds import IN_WORDS, MountProof, number, one_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.host.kernel_facts import Mount


# number of an account's groups that AUTH_SYS passes to the server, at most (RFC 5531, appendix A)
GROUPS = 16
DIRECTORY_SECONDS = 60  # seconds; the value of `acdirmax` if the mount does not state it


class NfsMount(NamedTuple):
    point: str
    server: str
    export: str
    version: str  # `3`, `4.2`, ...; "" if not stated
    security: str  # `sys`, `krb5`, `krb5i`, `krb5p`, ...; "" if not stated
    noatime: bool
    read_only: bool
    soft: bool  # whether a call fails after some time without an answer; False: it waits for ever (`hard`)
    local_lock: str  # locks that stay on this node: `none`, `flock`, `posix`, `all`; "" if not stated
    local_cache: bool  # whether data that was read is also kept on a disk of this node (`fsc`)
    directory_seconds: int  # seconds for which a folder's old content may be visible (`acdirmax`)


def parse_mount(mount: Mount) -> NfsMount:
    """Parse a line of the mount table."""
    values = mount.values
    server, _, export = mount.device.rpartition(":/")
    version = one_of(values.get("vers")) or one_of(values.get("nfsvers"))
    seconds = number(one_of(values.get("acdirmax")))
    return NfsMount(
        point=mount.point,
        server=server,
        export=f"/{export}",
        version=version or ("4" if mount.type == "nfs4" else ""),
        security=one_of(values.get("sec")),
        noatime="noatime" in values,
        read_only="ro" in values,
        soft="soft" in values or "softerr" in values,
        local_lock=one_of(values.get("local_lock")),
        local_cache="fsc" in values,
        directory_seconds=0 if "noac" in values else DIRECTORY_SECONDS if seconds is None else seconds,
    )


def proof(mount: NfsMount) -> MountProof:
    """Return the proof that the mount's caches leave for reads.

    | fsc | method   | reason                                                       |
    |-----|----------|--------------------------------------------------------------|
    | no  | `synced` | files use the page cache, which is written back later        |
    | yes | `direct` | pages that were dropped may come from this node's own disk   |
    """
    return MountProof("direct" if mount.local_cache else "synced")


def proof_of(mount: Mount, _: object) -> MountProof:
    """Return the mount's proof, as `mount_checks.MountModule` requires."""
    return proof(parse_mount(mount))


def check(mount: Mount, _: object, *, source: bool) -> list[CheckResult]:
    """Judge the mount for this process's account, as `mount_checks.MountModule` requires."""
    groups, root = len(os.getgroups()), os.geteuid() == 0
    return judge(parse_mount(mount), source=source, groups=groups, root=root)


def judge(mount: NfsMount, *, source: bool = False, groups: int = 0, root: bool = False) -> list[CheckResult]:
    """Judge the mount. `groups` is the number of this account's groups; `root`: whether its uid is 0.

    | finding                                         | as a source | as a target |
    |-------------------------------------------------|-------------|-------------|
    | the page cache alone; also fsc                  | ok; note    | ok; note    |
    | version 3 and older; 4 and newer; not known     | warning; ok; note | note; ok; note |
    | neither noatime nor ro                          | note        |             |
    | soft                                            | warning     | warning     |
    | Kerberos (`sec=krb5...`)                        | note        | note        |
    | AUTH_SYS, and more than 16 groups               | warning     | warning     |
    | AUTH_SYS, and this account is root              | note        | note        |
    | local_lock, except `none`                       |             | note        |
    | changes of folders seen late (`acdirmax` > 0)   |             | note        |
    """
    about = f"NFS mount {printable(mount.point)}"
    method = proof(mount).method
    results = [
        CheckResult(
            about,
            f"{'fsc' if mount.local_cache else 'page cache'}: {IN_WORDS[method]}",
            "note" if mount.local_cache else "ok",
        )
    ]
    results += _judge_version(about, mount, source=source)
    if source and not (mount.noatime or mount.read_only):
        results.append(
            CheckResult(about, "mounted without noatime", "note", "noatime,nodiratime", _remount(mount))
        )
    if mount.soft:
        results.append(
            CheckResult(
                about,
                "soft: a server that is slow becomes an error"
                + ("" if source else ", and writes may be lost"),
                "warning",
                "hard",
                _remount(mount),
            )
        )
    results += _judge_security(about, mount, groups)
    if root and not mount.security.startswith("krb5"):
        results.append(
            CheckResult(
                about,
                "this account is root: an export takes root for nobody unless it has no_root_squash; "
                + (
                    "files that others may not read cannot be read"
                    if source
                    else "what it writes belongs to nobody"
                ),
                "note",
                mend="stage by an account of its own",
            )
        )
    if not source:
        results += _judge_target(about, mount)
    return results


def _judge_version(about: str, mount: NfsMount, *, source: bool) -> Iterable[CheckResult]:
    if not mount.version:
        yield CheckResult(about, "the protocol's version is not known", "note", "4.2")
    elif number(mount.version.partition(".")[0]) in (2, 3):
        yield CheckResult(
            about,
            f"version {printable(mount.version)} of the protocol",
            "warning" if source else "note",
            "4.2",
            _remount(mount),
        )
    else:
        yield CheckResult(about, f"version {printable(mount.version)} of the protocol")


def _judge_security(about: str, mount: NfsMount, groups: int) -> Iterable[CheckResult]:
    if mount.security.startswith("krb5"):
        yield CheckResult(
            about,
            f"sec={printable(mount.security)}: each node needs a ticket of this account, from the "
            "submission to the end of the run",
            "note",
            "",
            "compare until when it can be renewed (`klist -f`) with the queue's wait and the run",
        )
    elif mount.security in ("", "sys") and groups > GROUPS:
        yield CheckResult(
            about,
            f"AUTH_SYS carries {GROUPS} groups, and this account is in {groups}: the server may not see "
            "the others",
            "warning",
            f"at most {GROUPS} groups, or groups that the server looks up (`--manage-gids`)",
            "ask the server's administrator",
        )


def _judge_target(about: str, mount: NfsMount) -> Iterable[CheckResult]:
    if mount.local_lock not in ("", "none"):
        yield CheckResult(
            about,
            f"local_lock={printable(mount.local_lock)}: such locks are seen on their own node alone; no "
            "lock of penstock rests on them",
            "note",
        )
    if mount.directory_seconds:
        yield CheckResult(
            about,
            f"other nodes may see `current` name the earlier release for up to {mount.directory_seconds} s "
            "(acdirmax)",
            "note",
        )


def _remount(mount: NfsMount) -> str:
    options = "vers=4.2,noatime,nodiratime,hard" + (",ro" if mount.read_only else "")
    return f"have an administrator mount {printable(mount.point)} with `-o {options}`"
