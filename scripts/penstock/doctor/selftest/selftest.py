"""Runs the parts of the selftest in order, in a hidden folder below the tested folder, and then removes it.

One part stages a small dataset; its source files are in a second hidden folder, in TMPDIR. Nothing outside
the two folders changes. If a selftest is killed, the account's next selftest on the same machine removes its
folders.

A selftest costs at most 1 GiB, 5,000 files and 200 operations a second (`Budget`), and ten minutes. On a
local disk it takes half a minute. Only --fill-quota fills a quota.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import penstock
from penstock.core import human, run_documents
from penstock.core.errors import PenstockError, PreflightError
from penstock.core.run_documents import ProbeReport
from penstock.core.run_steps import CheckResult, gravest
from penstock.doctor.selftest import interruptions, measurements, two_nodes
from penstock.doctor.selftest.measurements import WITHIN, Budget
from penstock.doctor.selftest.two_nodes import Peers
from penstock.fs.capabilities import facts
from penstock.fs.errno_map import storage_error
from penstock.host.kernel_facts import host_name, process_stat
from penstock.target import tree_removal

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.fs.capabilities import StorageFacts

    StartPeers = Callable[[Path], "Sequence[subprocess.Popen[bytes]]"]
    """Starts `penstock selftest-peer` in this folder on two nodes; returns no process if no other nodes
    exist. Raises PenstockError."""

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
        checks, report = measurements.abilities(place, store, budget)
        results += checks
        stages: dict[str, Callable[[], Iterable[CheckResult]]] = {
            "space and quota": lambda: measurements.space(folder, store),
            "fsync": lambda: measurements.durable_writes(place, budget),
            "a cold read": lambda: measurements.cold_read(place, store, budget),
            "a writer that is killed": lambda: interruptions.kills(place, budget),
            "a small staging": lambda: measurements.staged(place, source, budget),
            two_nodes.ABOUT: lambda: _two_nodes(place, start_peers, budget),
        }
        if fill_quota:
            stages[interruptions.ABOUT] = lambda: interruptions.filled(
                place, facts(folder).free_bytes, budget
            )
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
    if not measurements.own_size(folder, store):
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
        yield CheckResult(two_nodes.ABOUT, f"not tried: {error.what}", "note", mend=error.hint)
        return
    if not processes:
        mend = "with SLURM, `penstock --backend slurm selftest` tries it on two nodes"
        yield CheckResult(two_nodes.ABOUT, "not tried: everything ran on this node", "note", mend=mend)
        return
    with Peers(processes, budget) as peers:
        yield from two_nodes.caches(peers, budget)


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
