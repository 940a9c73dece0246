"""The selftest: its parts in order, in a hidden folder below the tested one, removed at the end. Those that
interrupt stand here: a process that writes as copy does is killed, and the folder's quota is filled and made
free again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import secrets
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import penstock
from penstock.core import human, run_documents
from penstock.core.errors import PenstockError, PreflightError
from penstock.core.layout import TEMPORARY
from penstock.core.run_documents import ProbeReport
from penstock.core.run_steps import CheckResult, gravest
from penstock.doctor import selftest_measurements, selftest_two_nodes
from penstock.doctor.selftest_measurements import WITHIN, Budget
from penstock.doctor.selftest_two_nodes import Peers
from penstock.fs.capabilities import facts
from penstock.fs.safe_open import storage_error
from penstock.host import interpreter, waits
from penstock.host.kernel_facts import host_name, process_stat
from penstock.target import tree_removal
from penstock.target.staging_writer import StagingWriter, prepare_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.fs.capabilities import StorageFacts

    StartPeers = Callable[[Path], "Sequence[subprocess.Popen[bytes]]"]
    """Starts `penstock selftest-peer` in this folder on two nodes; returns no process if no other nodes
    exist. Raises PenstockError."""


# A part of a selftest that runs only with --fill-quota: it fills the folder's quota, and frees it again.
#
# It finds out which call reports the full quota. With a write-back cache, only a late call (fsync or close)
# reports it. Files that were synced before without an error must be whole.

ABOUT = "a quota that is full"
MIB = 1 << 20
FILE = 16 * MIB
# if this number of bytes can be written beyond the free space, the quota counts as not enforced
BEYOND = 32 * MIB
FREE_WITHIN = 30.0  # seconds within which space must be free after files were removed
FULL = {errno.EDQUOT: "EDQUOT", errno.ENOSPC: "ENOSPC"}


class WritesEnd(NamedTuple):
    """The first call that failed while a file was written, and its error; both "" if none failed."""

    call: str = ""
    error: str = ""


def filled(place: Path, free: int, budget: Budget) -> Iterator[CheckResult]:
    """Fill the quota of `place`, which has `free` bytes left, compare the synced files, and remove all files.
    Writes nothing if filling it takes more bytes than a selftest may write."""
    if free + BEYOND > budget.room:
        state = (
            f"not filled: {human.size(free)} are free, and a selftest writes {human.size(budget.room)} more"
        )
        yield CheckResult(ABOUT, state, "note", mend="name a folder with a smaller quota")
        return
    folder = place / "full"
    folder.mkdir()
    block = os.urandom(MIB)
    written, ended = 0, WritesEnd()
    whole: list[Path] = []
    try:
        while not ended.call and written < free + BEYOND:
            path = folder / f"{len(whole)}"
            size, ended = _write(path, block, budget)
            written += size
            if not ended.call:
                whole.append(path)
        wrong = [path.name for path in whole if not _same(path, block)]
    finally:
        for path in list(folder.iterdir()):
            budget.spend(1)
            path.unlink()
    yield _judged(written, free, ended, len(whole), wrong)
    if ended.call:
        yield _free_again(folder, block, budget)


def _write(path: Path, block: bytes, budget: Budget) -> tuple[int, WritesEnd]:
    """Write, sync and close a file with FILE bytes. Return its size, and the first failed call."""
    size, call, error = 0, "", ""
    budget.spend(4, files=1)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        call = "write"
        while size < FILE:
            budget.spend(1, size=MIB)
            size += os.write(fd, block[size % MIB :])
        call = "fsync"
        os.fsync(fd)
        call = ""
    except OSError as failed:
        error = _errno_name(failed)
    finally:
        try:
            os.close(fd)
        except OSError as failed:
            call, error = call or "close", error or _errno_name(failed)
    return size, WritesEnd(call, error)


def _errno_name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, str(error.errno))


def _same(path: Path, block: bytes) -> bool:
    """Return whether a file contains exactly the FILE bytes that `_write` wrote."""
    with contextlib.suppress(OSError), path.open("rb", buffering=0) as stream:
        for _ in range(FILE // MIB):
            if _exactly(stream.fileno()) != block:
                return False
        return not stream.read(1)
    return False


def _exactly(fd: int) -> bytes:
    read = b""
    while len(read) < MIB and (more := os.read(fd, MIB - len(read))):
        read += more
    return read


def _judged(written: int, free: int, ended: WritesEnd, synced: int, wrong: list[str]) -> CheckResult:
    """Judge the quota:

    | files that were synced without an error | the first error              | verdict |
    |-----------------------------------------|------------------------------|---------|
    | not whole                               | any                          | stop    |
    | whole                                   | none, even beyond free space | warning |
    | whole                                   | EDQUOT or ENOSPC             | ok      |
    | whole                                   | any other error              | stop    |
    """
    if wrong:
        state = (
            f"{human.counted(len(wrong), 'file')} of {synced} that fsync took without an error are not whole"
        )
        return CheckResult(ABOUT, state, "stop", "whole", "no copy here can be believed: do not stage here")
    amount = f"after {human.size(written)}, where {human.size(free)} were free"
    if not ended.call:
        state, mend = f"no error {amount}", "the quota is not enforced: ask who set it"
        return CheckResult(ABOUT, state, "warning", "EDQUOT or ENOSPC", mend)
    state = f"{ended.error} by {ended.call} {amount}; what was synced before is whole"
    if ended.error in FULL.values():
        return CheckResult(ABOUT, state)
    return CheckResult(ABOUT, state, "stop", "EDQUOT or ENOSPC", "see the mount and its servers")


def _free_again(folder: Path, block: bytes, budget: Budget) -> CheckResult:
    """Measure how long it takes, after the files were removed, until a file can be written again."""
    about, began, tries = "room after what filled it was removed", time.monotonic(), 0
    while (seconds := time.monotonic() - began) < FREE_WITHIN:
        tries += 1
        budget.spend(20)
        _, ended = _write(folder / f"again-{tries}", block, budget)
        if not ended.call:
            return CheckResult(about, "at once" if tries == 1 else f"after {seconds:.1f} s")
    mend = "what was removed is freed later: plan for it"
    return CheckResult(about, f"none within {FREE_WITHIN:.0f} s", "warning", mend=mend)


ROUNDS = 3
MOST = 60  # number of files that a writer may write, at most; it is killed before it has written all
PIECE = 64 << 10
PIECES = 8
PACE = 0.02  # seconds between two operations of the writer, which gives 50 operations a second
STARTS_WITHIN = 60.0


def content(number: int) -> bytes:
    """Return the content of file `number`: 1 byte up to PIECES pieces."""
    made = random.Random(number)  # noqa: S311 (the same bytes each time, no secret)
    return made.randbytes(made.choice((1, 4096, PIECE, 3 * PIECE + 1, PIECES * PIECE)))


def write(data: Path) -> None:
    """Write numbered files slowly, with the writer that the copy step uses, until this process is killed."""
    prepare_process()
    with StagingWriter(
        data,
        file_mode=0o600,
        dir_mode=0o700,
        gid=None,
        durability="fsync",
        attempt="selftest",
        keep_mtime=True,
    ) as writer:
        for number in range(MOST):
            whole = memoryview(content(number))
            pending = writer.begin(f"{number:05d}", len(whole))
            while whole:
                pending.write_all(whole[:PIECE])
                whole = whole[PIECE:]
                waits.pause(PACE)
            writer.finish(pending, number)
            writer.settle()
            waits.pause(PACE * 4)


def kills(folder: Path, budget: Budget) -> Iterator[CheckResult]:
    """Start and kill ROUNDS writers one after another, each with its own folder."""
    whole = left = 0
    for number in range(ROUNDS):
        data = folder / f"killed-{number}"
        data.mkdir(0o700)
        problem = _killed(data, budget)
        if problem:
            yield CheckResult("a writer that is killed", problem, "stop", "files under their final names")
            return
        names, temporaries, wrong = _compared(data)
        whole, left = whole + names, left + temporaries
        if wrong:
            yield CheckResult(
                "a writer that is killed",
                f"{human.counted(len(wrong), 'file')} partial under a final name: {', '.join(wrong[:3])}",
                "stop",
                "none",
                "a rename shows a file before its bytes: do not stage here",
            )
            return
    yield CheckResult(
        f"a writer that is killed {ROUNDS} times",
        f"{human.counted(whole, 'file')} whole, none partial ({left} left under temporary names)",
    )


def _killed(data: Path, budget: Budget) -> str:
    """Run a writer until some files have their final names, and kill it at a random moment. Return "", or a
    text on the problem if the writer made no file in time or ended by itself."""
    budget.spend(0, size=MOST * PIECES * PIECE // 4, files=MOST)
    words = [*interpreter.command("penstock"), "selftest-writer", str(data)]
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        ends = time.monotonic() + min(STARTS_WITHIN, budget.left)
        while not _named(data):
            budget.spend(40)
            if process.poll() is not None or time.monotonic() > ends:
                return f"the writer made no file within {STARTS_WITHIN:.0f} s{_words(process)}"
        budget.spend(int(random.uniform(20, 160)))  # noqa: S311 (a random moment)
        budget.spend(1)
        if process.poll() is not None:
            return f"the writer ended by itself{_words(process)}"
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    return ""


def _words(process: subprocess.Popen[bytes]) -> str:
    """Return the last line that an ended process printed."""
    if process.poll() is None or process.stdout is None:
        return ""
    lines = process.stdout.read().decode("utf-8", "replace").strip().splitlines()
    return f": {lines[-1]}" if lines else ""


def _named(data: Path) -> list[str]:
    return sorted(name for name in os.listdir(data) if not TEMPORARY.fullmatch(name))


def _compared(data: Path) -> tuple[int, int, list[str]]:
    """Count files with final names and files with temporary names. Also return the final names of files that
    are not whole."""
    names, wrong = _named(data), []
    for name in names:
        content_read = b""
        with contextlib.suppress(OSError):
            content_read = (data / name).read_bytes()
        if not name.isdigit() or content_read != content(int(name)):
            wrong.append(name)
    return len(names), len(os.listdir(data)) - len(names), wrong


# Runs the parts of the selftest in order, in a hidden folder below the tested folder, and then removes it.
#
# One part stages a small dataset; its source files are in a second hidden folder, in TMPDIR. Nothing outside
# the two folders changes. If a selftest is killed, the account's next selftest on the same machine removes
# its folders.
#
# A selftest costs at most 1 GiB, 5,000 files and 200 operations a second (`Budget`), and ten minutes. On a
# local disk it takes half a minute. Only --fill-quota fills a quota.

FORMAT = 1
# beginning of the hidden folders' names; host, process id and start time follow
PREFIX = ".penstock-selftest"


class SelftestResult(TypedDict):
    """The document that `--json` prints."""

    format: int
    penstock: str
    folder: str
    kind: str  # the kind of file system, as named in penstock's table of file systems
    mount_options: str
    host: str
    at: str  # time of the start in UTC, ISO 8601
    seconds: float
    # operations on files and folders, approximately: those of the small staging and of killed writers are
    # estimated
    operations: int
    verdict: str  # the gravest verdict of all checks
    contradicts: int  # number of checks whose result `contradicts` counts
    results: Sequence[CheckResult]
    probe: Mapping[str, object]


def run(
    folder: Path,
    wait: Callable[[float], None],
    said: Callable[[str], None],
    start_peers: StartPeers,
    *,
    fill_quota: bool = False,
) -> SelftestResult:
    """Test the file system of `folder`. `wait` sleeps, and raises if the command should stop. `said` gets the
    name of each part that begins. Raises PreflightError if the hidden folder cannot be made, or if a quota
    should be filled and `folder` has no quota of its own."""
    budget = Budget(wait)
    store, place = facts(folder), folder / _name()
    source = Path(tempfile.gettempdir(), _name())
    if fill_quota:
        _require_quota(folder, store)
    left = [leftover for where in dict.fromkeys((folder, source.parent)) for leftover in _clear(where)]
    try:
        place.mkdir(0o700)
    except OSError as error:
        raise PreflightError(
            "the selftest cannot make a folder there",
            where=str(folder),
            why=str(error.strerror),
            hint="name a folder that this account may write",
        ) from None
    at = datetime.now(UTC).isoformat(timespec="seconds")
    report = ProbeReport()
    results: list[CheckResult] = []
    try:
        said("what the file system can do")
        checks, report = selftest_measurements.abilities(place, store, budget)
        results += checks
        stages: dict[str, Callable[[], Iterable[CheckResult]]] = {
            "space and quota": lambda: selftest_measurements.space(folder, store),
            "fsync": lambda: selftest_measurements.durable_writes(place, budget),
            "a cold read": lambda: selftest_measurements.cold_read(place, store, budget),
            "a writer that is killed": lambda: kills(place, budget),
            "a small staging": lambda: selftest_measurements.staged(place, source, budget),
            selftest_two_nodes.ABOUT: lambda: _two_nodes(place, start_peers, budget),
        }
        if fill_quota:
            stages[ABOUT] = lambda: filled(place, facts(folder).free_bytes, budget)
        for name, stage in stages.items():
            said(name)
            results += _stage(name, stage, budget)
    finally:
        tree_removal.remove_tree(source)
        tree_removal.remove_tree(place)
    results += left
    return {
        "format": FORMAT,
        "penstock": penstock.__version__,
        "folder": str(folder),
        "kind": store.kind,
        "mount_options": store.mount_options,
        "host": host_name(),
        "at": at,
        "seconds": round(budget.seconds, 1),
        "operations": budget.operations,
        "verdict": gravest(results),
        "contradicts": sum(contradicts(result) for result in results),
        "results": results,
        "probe": run_documents.PROBE_REPORT.to_json(report),
    }


def contradicts(result: CheckResult) -> bool:
    """Return whether a result differs from the table of file systems, or from penstock's needs. A check that
    was not tried contradicts nothing."""
    return result.verdict == "stop" or (result.verdict != "ok" and bool(result.wanted))


def _stage(name: str, stage: Callable[[], Iterable[CheckResult]], budget: Budget) -> Iterator[CheckResult]:
    """Yield the results of one part of the selftest. An error of the file system ends only this part."""
    if not budget.left:
        yield CheckResult(name, f"not tried: {human.duration(WITHIN)} were over", "note")
        return
    try:
        yield from stage()
    except OSError as error:
        failure = storage_error(error, "", str(error.filename or ""))
        yield CheckResult(
            name, f"it failed: {failure.why}", "stop", "no error", "see the mount and its servers"
        )


def _require_quota(folder: Path, store: StorageFacts) -> None:
    """Raise PreflightError unless the folder has a quota of its own: while a shared quota is full, other
    users' writes fail."""
    if not selftest_measurements.own_size(folder, store):
        raise PreflightError(
            "no quota is filled: this folder has none of its own",
            where=str(folder),
            why="by statvfs it is as large as its whole file system",
            hint="name a folder with a quota (of a project, or of a directory), or leave --fill-quota out",
        )


def _two_nodes(place: Path, start_peers: StartPeers, budget: Budget) -> Iterator[CheckResult]:
    try:
        processes = start_peers(place)
    except PenstockError as error:
        yield CheckResult(selftest_two_nodes.ABOUT, f"not tried: {error.what}", "note", mend=error.hint)
        return
    if not processes:
        mend = "with SLURM, `penstock --backend slurm selftest` tries it on two nodes"
        yield CheckResult(
            selftest_two_nodes.ABOUT, "not tried: everything ran on this node", "note", mend=mend
        )
        return
    with Peers(processes, budget) as peers:
        yield from selftest_two_nodes.caches(peers, budget)


def _name() -> str:
    own = process_stat("self")
    return f"{PREFIX}.{os.uname().nodename}.{os.getpid()}.{own.start if own else 0}.{secrets.token_hex(3)}"


def _clear(folder: Path) -> list[CheckResult]:
    """Remove the folders that killed selftests of this account left on this machine. Return a note for each
    folder that others left."""
    local, left = os.uname().nodename, []
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(folder)):
            if not name.startswith(f"{PREFIX}."):
                continue
            head, pid, start, _ = ["", "", "", *name.rsplit(".", 3)][-4:]
            host = head.removeprefix(f"{PREFIX}.")
            living = process_stat(pid) if pid.isdigit() else None
            killed = host == local and (living is None or living.start != start)
            owned = (folder / name).lstat().st_uid == os.geteuid()
            if host != local or (killed and not owned):
                left.append(
                    CheckResult(
                        "what another selftest left", name, "note",
                        mend=f"where none runs on {host or 'another machine'}: rm -r {folder / name}",
                    )
                )  # fmt: skip
            elif killed:
                tree_removal.remove_tree(folder / name)
    return left
