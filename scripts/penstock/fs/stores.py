"""The stores of a file system: what a vendor's commands say of its targets, servers and quotas, as types that
all vendors share, and whether they are in order; and where the data of files is, before any of them is
opened. Sizes are in bytes; None is "not known".
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from penstock.core.human import is_utf8, printable
from penstock.core.run_steps import ADMINISTRATOR, CheckResult
from penstock.fs.tree import Calls
from penstock.host import command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.core.run_steps import Verdict
    from penstock.fs.quotas import Quota
    from penstock.host.command import Answer

    Ask = Callable[[Sequence[str]], "Said"]
    """A function that queries a vendor's command about files by their absolute paths."""


# The stores of a file system: types, shared by all vendors, for their commands' reports on targets, servers
# and quotas. Also judges servers and targets. Sizes are in bytes; None is "not known".

# The types of vendors' reports, with BeeGFS's names. A target is a server's store of data or metadata
# (Lustre: an OST or MDT). A pool is a set of targets. A pattern is the striping of a folder's new files.

Role = Literal["storage", "metadata", "management"]
# BeeGFS's capacity pools. New files go to `low` targets only if too few are `normal`, and to `emergency`
# targets only if no others are left. They never go to `closed` targets (Lustre).
Capacity = Literal["normal", "low", "emergency", "closed", "unknown"]
# States of a target. `inactive`: the administrator took the target out of use; calls on its files wait, and
# it gets no new files (Lustre).
Reachability = Literal["online", "probably-offline", "offline", "inactive", "unknown"]
Consistency = Literal["good", "needs-resync", "resyncing", "bad", "unknown"]


# Where a file's data is. `local`: in the file system. `tiered`: in a tier from which a read fetches the data,
# at a cost. `offline`: elsewhere, with only a stub in the file system.
DataPlace = Literal["local", "tiered", "offline"]


class DataState(NamedTuple):
    """Where the data of a file is."""

    place: DataPlace
    why: str = ""  # readable explanation of the state; "" for `local`
    # whether the place is only guessed, since the file has a size but no blocks; a file of zeros can look the
    # same
    hinted: bool = False


class Target(NamedTuple):
    """A store of data (`storage`) or of metadata."""

    role: Role
    id: str
    alias: str = ""
    node: str = ""
    # number of the target's storage pool, or the pool's name if no number is known; "" for metadata
    pool: str = ""
    total_bytes: int | None = None
    free_bytes: int | None = None
    total_inodes: int | None = None
    free_inodes: int | None = None
    capacity: Capacity = "unknown"
    reachability: Reachability = "unknown"
    consistency: Consistency = "unknown"
    further_pools: tuple[str, ...] = ()  # other pools that contain this target (Lustre)
    sized: bool = True  # whether figures of the target's space exist; False if only /proc shows the target

    @property
    def name(self) -> str:
        """A readable name: `storage target 104 (alias) on node`."""
        alias = f" ({self.alias})" if self.alias and self.alias != self.id else ""
        return f"{self.role} target {self.id}{alias}" + (f" on {self.node}" if self.node else "")


class Server(NamedTuple):
    """A server process of the file system, and how this machine reaches it."""

    role: Role
    name: str
    id: str = ""
    reachable: bool | None = None
    route: str = ""  # address and protocol; "" if unknown


class Pattern(NamedTuple):
    """How a folder's new files are striped."""

    # `raid0`, `mirrored` (each byte is on two targets) or `composite` (ranges of the file have their own
    # patterns, in Lustre). For `composite`, `targets` and `chunk_bytes` are those of the widest pattern.
    kind: str
    chunk_bytes: int
    targets: int  # number of targets (or groups of two targets) over which a long enough file is striped
    pool: str = ""  # number of the storage pool for the files
    pool_name: str = ""
    # whether even the smallest file has an object on each target of the pattern (Lustre)
    objects_of_empty: bool = False

    @property
    def copies(self) -> int:
        """Number of targets that store each byte."""
        return 2 if self.kind == "mirrored" else 1


TIB = 1 << 40
GIB = 1 << 30


class FillRules(NamedTuple):
    """How a product fills its targets, and what its quotas count. The defaults are BeeGFS's."""

    # Free bytes of a storage target at which its state changes, by default, from state to state; at the last
    # value it is full. At the first two, BeeGFS' management puts the target into `low` and `emergency`
    # (`storage low 1T, emergency 20G`). A site's own limits are hidden from users.
    storage_limits: tuple[int, ...] = (TIB, 20 * GIB, 0)
    metadata_limits: tuple[int, ...] = (10 * GIB, 3 * GIB, 0)
    # Bytes of metadata for each file or folder: 500 GB are enough for some 150 million (doc.beegfs.io, system
    # requirements). The older rule there is 0.3 to 0.5 % of the data. 0: only inodes count.
    entry_bytes: float = 500 * 10**9 / (150 * 10**6)
    # inodes that a folder needs: a folder of BeeGFS is two folders and two files on a metadata target
    # (doc.beegfs.io)
    folder_inodes: int = 4
    objects: str = "chunk files"  # name for the parts of a file on its storage targets
    # name for the things that quotas count: the value of `objects`, or files and folders
    quota_counts: str = "chunk files"


# Why a query got no answer. `management`: the management service was not reached. `secret`: this account may
# not read the secret that the service needs. "": any other cause.
SilenceCause = Literal["", "management", "secret"]


class Silence(NamedTuple):
    """A query to the vendor's commands without an answer."""

    about: str  # the query, in words
    command: str  # the command line
    why: str  # the command's message, or the reason why it did not run
    cause: SilenceCause = ""


class StoreStatus(NamedTuple):
    """All reports of a vendor's commands on the file system of a folder."""

    product: str  # readable name: `BeeGFS 7`
    targets: tuple[Target, ...] = ()
    servers: tuple[Server, ...] = ()
    pattern: Pattern | None = None
    quotas: tuple[Quota, ...] = ()
    silences: tuple[Silence, ...] = ()
    # (number, name) of each storage pool, if the commands show them
    pools: tuple[tuple[str, str], ...] = ()
    rules: FillRules = FillRules()
    results: tuple[CheckResult, ...] = ()  # results of the vendor's own module (WEKA)
    max_files: int | None = None  # number of files that the file system may have, at most; None if unknown
    management_holds: bool = False  # whether calls on the mount wait while the management service is away

    def of_role(self, role: Role) -> list[Target]:
        """Return the targets with this role, in the order of the commands' answers."""
        return [target for target in self.targets if target.role == role]

    def in_pool(self) -> list[Target]:
        """Return the storage targets for new files in the folder: those in the pattern's pool, or all if the
        pool is unknown (see `unmatched_pool`)."""
        return self._of_pool() or self.of_role("storage")

    def filling(self, said: StoreStatus) -> StoreStatus:
        """Return the commands' status `said`, completed from this status, which /proc gave. It adds further
        targets and servers, and states that the commands do not know."""
        states = {(target.role, target.id): target for target in self.targets}
        targets = []
        for target in said.targets:
            state = states.pop((target.role, target.id), target)
            reach, good = target.reachability, target.consistency
            targets.append(
                target._replace(
                    reachability=state.reachability if reach == "unknown" else reach,
                    consistency=state.consistency if good == "unknown" else good,
                )
            )
        named = {(server.role, server.id) for server in said.servers}
        servers = [server for server in self.servers if (server.role, server.id) not in named]
        return said._replace(
            targets=(*targets, *states.values()),
            servers=(*said.servers, *servers),
            management_holds=self.management_holds,
        )

    @property
    def unmatched_pool(self) -> str:
        """The pattern's pool, if no target is known to be in it, though there are targets; or ""."""
        if self.pattern is None or not self.of_role("storage") or self._of_pool():
            return ""
        return self.pattern.pool_name or self.pattern.pool

    def _of_pool(self) -> list[Target]:
        pattern = self.pattern
        names = {pattern.pool, pattern.pool_name} - {""} if pattern else set()
        return [target for target in self.of_role("storage") if names & {target.pool, *target.further_pools}]


# Whether the servers and targets of a file system are in order, judging by its commands' reports.
#
# | subject                       | finding                         | verdict                             |
# |-------------------------------|---------------------------------|-------------------------------------|
# | storage or metadata server    | not reached from this machine   | stop, with its name                 |
# | management server             | not reached by this machine or  | stop if calls wait for it, or else  |
# |                               | by the commands                 | warning with the time that is left  |
# | target that new files can get | offline, probably offline, bad  | stop, with its number               |
# |                               | in capacity pool `emergency`    | stop                                |
# |                               | needs resync, or resyncing      | warning                             |
# |                               | online, gave no figures         | warning                             |
# |                               | in capacity pool `low`          | warning                             |
# |                               | inactive, or takes no new files | warning                             |
# | target of another pool        | any problem of a target above   | note                                |
# | pool of the folder's pattern  | no target is known to be in it, | warning, or note if no target's     |
# |                               | so all targets are checked      | pool is known                       |
# | query without an answer       | the command failed              | note, with the command's message    |
# |                               | the secret could not be read    | a single note for all such queries  |
# | everything                    | no problem                      | ok, with the numbers of targets     |

# Default of `sysTargetOfflineTimeoutSecs` in BeeGFS' servers and clients: seconds without the management
# service after which targets count as offline. With mirrored data it is 180.
OFFLINE_TIMEOUT = 900


def judge(status: StoreStatus) -> list[CheckResult]:
    """Return a result for each problem or, if there is no problem, a single result."""
    results = [*_servers(status), *_targets(status), *status.results]
    if not results:
        results = [_in_order(status)] if status.targets or status.servers else []
    return [*results, *silences(status)]


def away(status: StoreStatus) -> bool:
    """Return whether a server, or a target for new files, is away, so that calls on the mount may wait."""
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
    """Return a note for each query that got no answer. If the management service was not reached, there is
    only a single warning; if the secret could not be read, a single note. Also return a warning for a pool
    without known targets."""
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


BUDGET = 40.0  # seconds for all commands of one status together


class StatusQueries:
    """The queries for a status. `cause` classifies a failed command's message. No method raises."""

    def __init__(self, cause: Callable[[str], SilenceCause] = lambda _: "") -> None:
        self._budget, self._cause = command.TimeBudget(BUDGET), cause
        self.silences: list[Silence] = []

    def ask(
        self, about: str, argv: Sequence[str], useful: Callable[[str], object] = lambda _: False
    ) -> command.Answer:
        """Run the command, and return its answer. `about` describes the query in messages. The answer counts
        if the exit status is 0, or if `useful` accepts the output, since a single unresponsive target makes
        the command fail. Any other answer is recorded as a `Silence`. Once the management service did not
        answer, no further command is run, since each would wait for the service (3.2 s on BeeGFS 7.4.7)."""
        away = next((silence for silence in self.silences if silence.cause == "management"), None)
        if away is not None:
            self.silent(about, argv, away.why, away.cause)
            return command.Answer(tuple(argv), why=away.why)
        answer = command.run(argv, self._budget)
        if not (answer.ok or useful(answer.out)):
            self.silent(about, argv, answer.words, self._cause(answer.words))
        return answer

    def silent(self, about: str, argv: Sequence[str], why: str, cause: SilenceCause = "") -> None:
        """Record that a query got no answer."""
        self.silences.append(Silence(about, " ".join(argv), why, cause))


# Finds out where the data of files is, before any of the files is opened.
#
# With an archive or a tier behind the file system (BeeGFS' stubs, Lustre's HSM, WEKA's object stores),
# opening or reading a file fetches its bytes. An audit would bring a whole archive back, or wait for it. So
# sizes are read by lstat, which fetches nothing. The vendor's command then reports the states of hundreds of
# files at a time. For files that it leaves out, a size without blocks is a hint.
#
# Limits: data that moves away between the query and the read is fetched. Only the vendor's command detects a
# stub that keeps blocks. Local disks are not queried (DMF on XFS is not known). GPFS is judged only by its
# blocks.

PATHS = 500  # number of files in one command, at most
# number of characters of a command's paths, at most, since they may be arguments (Linux allows 2 MiB of
# arguments)
LETTERS = 100_000
DEADLINE = 20.0  # seconds that a command may take
# number of consecutive queries of a single file without an answer, after which the command is no longer run
PATIENCE = 20
INODE = 4096  # bytes; a smaller file may be stored in its inode (GPFS), and so have no blocks
HINT = DataState("offline", "it has a size and no blocks", hinted=True)


class Said(NamedTuple):
    """A command's answer for some files."""

    states: Mapping[str, DataState]  # {path, as in the query: state}; files without an answer are missing
    silence: str = ""  # why files are missing in `states`; "" if unknown, or if no file is missing
    ended: bool = True  # whether the command ended in time; False also if it could not be started

    @classmethod
    def by(cls, answer: Answer, states: Mapping[str, DataState]) -> Self:
        """Combine the command's answer with the states read from its output."""
        return cls(states, answer.words, answer.code is not None)


class DataStates:
    """Finds out where the data of the files below a folder is. For a single thread; must be closed."""

    def __init__(self, folder: Path, ask: Ask | None, *, stubs: bool) -> None:
        """`ask` runs the vendor's command for absolute paths; it is None if there is no command. `stubs`:
        whether a file with a size and no blocks may be a stub. Raises OSError if the folder cannot be
        opened."""
        self._folder = os.path.realpath(folder)
        self._command, self._stubs = ask, stubs
        self._fd = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._calls = Calls()
        self._spoke, self._mute = False, 0
        # the reason why the vendor's command is no longer run; "" while it is run
        self.silence = ""

    def close(self) -> None:
        self._calls.close()
        os.close(self._fd)

    def away(self, paths: Sequence[str], *, hints: bool = True) -> dict[str, DataState]:
        """Return the files (paths below the folder) whose data is not here, or not all of it. Missing and
        empty files are never among them.

        `hints` says whether to judge by blocks, too. An error of a file is never raised.

        | the command's answer | the file's blocks         | result             |
        |----------------------|---------------------------|--------------------|
        | local                | any                       | not returned       |
        | tiered, or offline   | any                       | that state         |
        | none                 | none; the file is beyond  | offline, `hinted`  |
        |                      | INODE, on a kind with     |                    |
        |                      | `stubs`                   |                    |
        | none                 | any other case            | not returned       |
        """
        states: dict[str, DataState] = {}
        unique = list(dict.fromkeys(paths))
        without_blocks = zip(unique, self._calls.each(self._looks, unique), strict=True)
        empty = {path: without for path, without in without_blocks if without is not None}
        said = self._said([*empty])
        for path, without in empty.items():
            state = said.get(path)
            if state is None and hints and self._stubs and without:
                state = HINT
            if state is not None and state.place != "local":
                states[path] = state
        return states

    def _looks(self, paths: Sequence[str]) -> list[bool | None]:
        """Return, for each path, whether the file has no blocks and is larger than INODE; None if it is no
        file with a size."""
        answers: list[bool | None] = []
        for path in paths:
            try:
                status = os.stat(path, dir_fd=self._fd, follow_symlinks=False)
            except OSError:
                # The file is missing or unreadable; this will be reported when it is opened.
                answers.append(None)
                continue
            without = status.st_blocks == 0 and status.st_size > INODE
            answers.append(without if stat.S_ISREG(status.st_mode) and status.st_size else None)
        return answers

    def _said(self, paths: Sequence[str]) -> dict[str, DataState]:
        """Run the vendor's command. Return its states by path below the folder."""
        if self._command is None:
            return {}
        # Commands accept and print text, so a file whose path is no text is judged by its blocks.
        whole = {os.path.join(self._folder, path): path for path in paths if _is_text(path)}
        states: dict[str, DataState] = {}
        for some in _batches([*whole]):
            if self.silence:
                break
            for path, state in self._ask(some).items():
                if path in whole:
                    states[whole[path]] = state
        return states

    def _ask(self, paths: Sequence[str]) -> dict[str, DataState]:
        """Query the states of these files. If a command fails, perhaps because a file vanished, the files are
        queried by halves. The command is not run again if it did not end in time, or never answered. It is
        not run again either after PATIENCE consecutive single files without an answer."""
        if self.silence or self._command is None:
            return {}
        said = self._command(paths)
        states = dict(said.states)
        if states:
            self._spoke, self._mute = True, 0
        left = [path for path in paths if path not in states]
        if not left:
            return states
        if len(paths) == 1:
            self._mute += 1
        if not said.ended or self._mute == (PATIENCE if self._spoke else 2):
            self.silence = printable(said.silence) or "it gave no answer"
        elif len(paths) > 1:
            if not self._spoke:
                # The first and the last file show whether the command answers at all.
                left = [left[0], left[-1], *left[1:-1]] if len(left) > 1 else left
                for path in left[:2]:
                    states |= self._ask([path])
                left = [path for path in left[2:] if path not in states]
            middle = (len(left) + 1) // 2
            for half in (left[:middle], left[middle:]):
                states |= self._ask(half) if half else {}
        return states


def _is_text(path: str) -> bool:
    return is_utf8(path) and "\0" not in path


def _batches(paths: Sequence[str]) -> Iterator[list[str]]:
    some: list[str] = []
    letters = 0
    for path in paths:
        if some and (len(some) == PATHS or letters + len(path) > LETTERS):
            yield some
            some, letters = [], 0
        some.append(path)
        letters += len(path)
    if some:
        yield some
