"""The probe tries out, below a hidden folder, what a folder's file system can do, and then removes the hidden
folder. It also measures the cost of stat and open for a file that has a second name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import shutil
import statistics
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.core.layout import PROBE
from penstock.core.run_documents import ABILITIES, ERROR, NO, YES, LinkCost, ProbeReport, TrialOutcome
from penstock.fs import probe_trials
from penstock.fs.capabilities import facts
from penstock.fs.probe_trials import TrialFolders
from penstock.fs.safe_open import NO_SPACE
from penstock.host.kernel_facts import PROC, host_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    Trial = Callable[[TrialFolders], TrialOutcome]


# Measures how long stat and open take for a file with a second name in another folder, compared with a file
# with a single name.
#
# BeeGFS keeps the inode of a file with one name in that name's folder entry. A hard link moves the inode out
# of that entry for good (since 7.4), so that an open may need two metadata servers.

FILES = 8
ROUNDS = 3


def link_cost(folder: Path, between: Callable[[], object]) -> LinkCost:
    """Return the median times of some dozen calls of each kind, made in turn below the empty `folder`.
    `between` is called now and then, and may wait. Raises OSError if links are impossible."""
    first, linked = folder / "first", folder / "linked"
    for place in (first, linked):
        place.mkdir()
    between()
    for number in range(FILES):
        (first / f"one-{number}").write_bytes(b"x")
        (first / f"two-{number}").write_bytes(b"x")
    between()
    for number in range(FILES):
        os.link(first / f"two-{number}", linked / f"two-{number}", follow_symlinks=False)
    took: dict[str, list[float]] = {name: [] for name in LinkCost._fields}
    for _ in range(ROUNDS):
        between()
        for number in range(FILES):
            for kind, path in (("first", first / f"one-{number}"), ("linked", linked / f"two-{number}")):
                began = time.perf_counter()
                os.stat(path, follow_symlinks=False)
                looked = time.perf_counter()
                os.close(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC))
                took[f"{kind}_stat"].append(looked - began)
                took[f"{kind}_open"].append(time.perf_counter() - looked)
    return LinkCost(**{name: round(statistics.median(some) * 1e6, 1) for name, some in took.items()})


# The probe tries each ability in a folder of its own below the hidden folder, which is removed at the end.
#
# It makes some 400 calls and writes less than 1 MiB. On a local disk this takes 0.05 to 0.3 s, of which
# syncfs may take 0.2. Only the hidden folders are touched. No other process probes the folder, since the
# caller holds the dataset's lock or made the folder. So a hidden folder that already exists was left by a
# killed probe, and is removed.

TRIALS: Mapping[str, Trial] = {
    name: getattr(module, name) for name in ABILITIES for module in (probe_trials, probe_trials, probe_trials)
    if hasattr(module, name)
}  # fmt: skip
REFUSALS = frozenset(
    {
        errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.EXDEV, errno.EMLINK, errno.EEXIST,
        errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR, errno.EBUSY, errno.EILSEQ, errno.ENAMETOOLONG,
        errno.ENOTTY, errno.ENOLCK, errno.ENODATA, errno.E2BIG, errno.ERANGE,
    }
)  # fmt: skip
SECONDS, MOST = 0.05, 100  # limits of one measurement of a rate: seconds, and number of calls
_READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


def probe(
    folder: Path, beside: Path | None = None, *, between: Callable[[], object] = bool, proc: str = PROC
) -> ProbeReport:
    """Try what the file system of `folder` can do. Links and renames are also tried from `folder` to
    `beside`, which may be in another quota tree. If this account may not write both folders, or the file
    system is read-only or full, each ability is `not tried`, with the reason. `between` is called before each
    trial, and may wait. Raises no OSError."""
    began = time.monotonic()
    measured: dict[str, float] = {}
    kind = ""
    places: list[Path] = []
    cost = LinkCost()
    try:
        kind = facts(folder, proc).kind
        places = [place / PROBE for place in (folder, beside) if place is not None]
        for place in places:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(0o700)
        abilities = {}
        for name, trial in TRIALS.items():
            between()
            abilities[name] = _tried(trial, name, places, proc)
        if abilities["link_between_folders"].answer == YES:
            with contextlib.suppress(OSError):
                (places[0] / "cost").mkdir(0o700)
                cost = link_cost(places[0] / "cost", between)
        between()
        measured = rates(places[0])
    except OSError as error:
        abilities = dict.fromkeys(ABILITIES, TrialOutcome(error=_name(error), why=_why_not(error)))
    finally:
        for place in places:
            shutil.rmtree(place, ignore_errors=True)
    return ProbeReport(
        folder=str(folder),
        beside=str(beside or ""),
        kind=kind,
        host=host_name(),
        kernel=platform.release(),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - began, 3),
        abilities=abilities,
        link_cost=cost,
        rates=measured,
    )


def rates(place: Path) -> dict[str, float]:
    """Measure how many small files and how many links this process makes in a second, one after another. Each
    measurement ends after SECONDS or MOST calls. Returns an empty result on an error."""
    folder = place / "rates"
    try:
        folder.mkdir(0o700)
        made = _a_second(lambda number: _small_file(folder, number))
        linked = _a_second(lambda number: os.link(folder / "0", folder / f"link{number}"))
    except OSError:
        return {}
    return {"files": round(made, 1), "links": round(linked, 1)}


def _a_second(do: Callable[[int], object]) -> float:
    began, count = time.perf_counter(), 0
    while count < MOST and (count == 0 or time.perf_counter() - began < SECONDS):
        do(count)
        count += 1
    return count / max(time.perf_counter() - began, 1e-6)


def _small_file(folder: Path, number: int) -> None:
    temporary = folder / ".new"
    with temporary.open("xb") as stream:
        stream.write(b"penstock" * 512)
    temporary.rename(folder / str(number))


def _tried(trial: Trial, name: str, places: list[Path], proc: str) -> TrialOutcome:
    """Run a trial in new folders, which are later removed with the hidden folder."""
    try:
        made = [place / name for place in places]
        for folder in made:
            folder.mkdir(0o700)
        return trial(TrialFolders(made[0], made[1] if len(made) > 1 else None, proc))
    except OSError as error:
        return seen_error(error)


def seen_error(error: OSError) -> TrialOutcome:
    """Turn the error of a trial's call into an outcome.

    | errno                                      | answer      |
    |--------------------------------------------|-------------|
    | ENOSPC EDQUOT                              | `not tried` |
    | in `REFUSALS`                              | `no`        |
    | any other (EIO ESTALE EACCES EROFS ...)    | `error`     |
    """
    if error.errno in NO_SPACE:
        return TrialOutcome(error=_name(error), why=_why_not(error))
    if error.errno in REFUSALS:
        return TrialOutcome(NO, error=_name(error))
    return TrialOutcome(ERROR, error=_name(error), why=_strerror(error))


def _why_not(error: OSError) -> str:
    if error.errno in NO_SPACE:
        return "the quota is used up" if error.errno == errno.EDQUOT else "no space or no inodes left"
    if error.errno in _READ_ONLY:
        return f"this account cannot make a folder there: {_strerror(error)}"
    return f"no folder can be made there: {_strerror(error)}"


def _name(error: OSError) -> str:
    # Python knows errno 95 by its other name, ENOTSUP.
    if error.errno == errno.EOPNOTSUPP:
        return "EOPNOTSUPP"
    return errno.errorcode.get(error.errno or 0, f"errno {error.errno}")


def _strerror(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)
