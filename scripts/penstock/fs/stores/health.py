"""Whether the servers and targets of a file system are in order, by what its commands report.

| what                          | seen                            | verdict                             |
|-------------------------------|---------------------------------|-------------------------------------|
| storage or metadata server    | not reached from this machine   | stop, with its name                 |
| management server             | not reached, or commands say so | warning, with the time that is left;|
|                               |                                 | stop where calls wait for it        |
| target that new files can get | offline, probably offline, bad  | stop, with its number               |
|                               | in capacity pool `emergency`    | stop                                |
|                               | needs resync, or resyncing      | warning                             |
|                               | online, gave no figures         | warning                             |
|                               | in capacity pool `low`          | warning                             |
|                               | inactive, or takes no new files | warning                             |
| target of another pool        | any of these                    | note                                |
| pool of the folder's pattern  | no target is known to be in it  | warning; note where no target's     |
|                               |                                 | pool is known. All are looked at    |
| a question that got no answer |                                 | note, with the command's own words  |
|                               | for want of the secret          | one note for all of them            |
| nothing of these              |                                 | ok: how many were looked at         |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.events import ADMINISTRATOR, CheckResult
from penstock.core.human import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.events import Verdict
    from penstock.fs.stores.facts import Server, Silence, StoreStatus, Target

# `sysTargetOfflineTimeoutSecs` of BeeGFS' servers and clients, in seconds, by default: without the management
# service targets then count as offline. 180 where data is mirrored.
OFFLINE_TIMEOUT = 900


def judge(status: StoreStatus) -> list[CheckResult]:
    """Return a result for each trouble, else one for all."""
    results = [*_servers(status), *_targets(status), *status.results]
    if not results:
        results = [_in_order(status)] if status.targets or status.servers else []
    return [*results, *silences(status)]


def away(status: StoreStatus) -> bool:
    """Return whether a server, or a target for new files, is away: calls on the mount may wait for it."""
    used = {target.id for target in status.in_pool()}
    holds = status.management_holds
    servers = any(
        server.reachable is False and (holds or server.role != "management") for server in status.servers
    )
    silent = holds and any(silence.cause == "management" for silence in status.silences)
    return (
        servers
        or silent
        or any(
            target.reachability in ("offline", "probably-offline")
            for target in status.targets
            if target.role == "metadata" or target.id in used
        )
    )


def _in_order(status: StoreStatus) -> CheckResult:
    counts = (
        (len(status.of_role("storage")), "storage targets"),
        (len(status.of_role("metadata")), "metadata targets"),
        (sum(server.reachable is True for server in status.servers), "servers reached"),
    )
    phrases = [f"{count:,} {noun}" for count, noun in counts if count]
    return CheckResult(status.product, ", ".join(phrases) + ": all in order")


def _servers(status: StoreStatus) -> Iterator[CheckResult]:
    for server in status.servers:
        if server.reachable is False:
            yield _server(status, server)


def _server(status: StoreStatus, server: Server) -> CheckResult:
    name = printable(f"{server.name} [ID: {server.id}]" if server.id else server.name)
    if server.role == "management":
        return _management(status, name, "not reached from this machine")
    return CheckResult(
        f"{status.product} {server.role} server {name}",
        "not reached from this machine",
        "stop",
        "reached",
        f"start the server, or mend its network: {ADMINISTRATOR}",
    )


def _management(status: StoreStatus, name: str, text: str) -> CheckResult:
    about = f"{status.product} management server" + (f" {name}" if name else "")
    if status.management_holds:
        return CheckResult(
            about,
            f"{text}; a client of version 7 takes all servers for offline within 30 s of that, and each call "
            "on the mount waits until it is back",
            "stop",
            "reached",
            f"have it started again: {ADMINISTRATOR}",
        )
    return CheckResult(
        about,
        f"{text}; data is still served, but no further client can mount, and after {OFFLINE_TIMEOUT} s "
        f"(sysTargetOfflineTimeoutSecs={OFFLINE_TIMEOUT}, as shipped) targets count as offline",
        "warning",
        "reached",
        f"have it started again before {OFFLINE_TIMEOUT} s have passed: {ADMINISTRATOR}",
    )


def _targets(status: StoreStatus) -> Iterator[CheckResult]:
    used = {target.id for target in status.in_pool()}
    for target in status.targets:
        ours = target.role == "metadata" or target.id in used
        for verdict, text, mend in _troubles(target):
            yield CheckResult(
                f"{status.product} {printable(target.name)}",
                text if ours else f"{text}; new files of this folder are not placed there",
                verdict if ours else "note",
                "online, good, capacity pool normal",
                mend if ours else "",
            )


def _troubles(target: Target) -> Iterator[tuple[Verdict, str, str]]:
    if target.reachability == "offline":
        yield "stop", "offline", f"have it brought back: {ADMINISTRATOR}"
    if target.reachability == "probably-offline":
        yield "stop", "probably offline: writes to it wait", "wait until it is online or offline, then repeat"
    if target.consistency == "bad":
        yield "stop", "consistency state bad", f"have it repaired: {ADMINISTRATOR}"
    if target.consistency in ("needs-resync", "resyncing"):
        text = "needs a resync" if target.consistency == "needs-resync" else "is being resynced"
        yield "warning", f"{text}: its mirror serves alone", "nothing; a second fault would stop the run"
    if target.reachability == "inactive":
        text = (
            "inactive: taken out of use; files that lie on it cannot be read, new ones are not placed on it"
        )
        yield "warning", text, f"have it activated, if it is to be used: {ADMINISTRATOR}"
    elif target.capacity == "closed":
        yield "warning", "takes no new files: full, or read-only", f"have room made on it: {ADMINISTRATOR}"
    if target.sized and target.total_bytes is None and target.reachability in ("online", "unknown"):
        yield "warning", "gave no figures of its space", f"see whether its server answers: {ADMINISTRATOR}"
    if target.capacity == "emergency":
        yield "stop", "nearly full: capacity pool emergency", f"have room made on it: {ADMINISTRATOR}"
    if target.capacity == "low":
        yield "warning", "little room: capacity pool low", f"have room made on it: {ADMINISTRATOR}"


def silences(status: StoreStatus) -> Iterator[CheckResult]:
    """Note each query that got no answer. Unanswered queries for want of the management service are a single
    warning; those for want of the secret are a single note. A pool without known targets is a warning."""
    management = next((silence for silence in status.silences if silence.cause == "management"), None)
    reported = any(server.role == "management" and server.reachable is False for server in status.servers)
    if management is not None and not reported:
        yield _management(status, "", f"`{printable(management.command)}`: {management.why}")
    secret = [silence for silence in status.silences if silence.cause == "secret"]
    if secret:
        yield _no_secret(status.product, secret)
    for silence in status.silences:
        if not silence.cause:
            yield _silence(status.product, silence)
    if pool := printable(status.unmatched_pool):
        yield CheckResult(
            f"{status.product} pool {pool}",
            "new files of this folder belong into it, and no target is known to be in it: it was removed, or "
            "the commands do not say which targets it has; room and states are those of all targets",
            "warning" if any(target.pool for target in status.of_role("storage")) else "note",
            "a pool with targets",
            f"see which pools there are, and give the folder one of them: {ADMINISTRATOR}",
        )


def _no_secret(product: str, silent: list[Silence]) -> CheckResult:
    return CheckResult(
        f"{product} {', '.join(silence.about for silence in silent)}",
        f"not known: this account may not read the secret of the management service (as shipped "
        f"/etc/beegfs/conn.auth is root's); `{printable(silent[0].command)}`: {silent[0].why}",
        "note",
        mend="nothing, where the states in /proc/fs/beegfs are enough for a run; else have the secret made "
        f"readable for this account, and name it in BEEGFS_AUTH_FILE: {ADMINISTRATOR}",
    )


def _silence(product: str, silence: Silence) -> CheckResult:
    return CheckResult(
        f"{product} {silence.about}",
        f"not known: `{printable(silence.command)}`: {silence.why}",
        "note",
        mend="run the command by hand to see why; the run does not need it",
    )
