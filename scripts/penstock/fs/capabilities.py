"""The current facts about a folder's file system: its kind and abilities (`kinds`), space, mount, and its
clock, with which the ages of its files are judged. As a program, `python -m penstock.fs.capabilities FOLDER`
writes the facts as JSON: of a folder whose file system may never respond (`watched_facts`).
"""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.core.errors import PreflightError
from penstock.core.grades import Now
from penstock.fs import libc
from penstock.fs.kinds import MountProof, kind_of, named_kind
from penstock.fs.safe_open import OPEN_FOLDER
from penstock.host.kernel_facts import PROC, mount_of, mount_of_device, nearest

if TYPE_CHECKING:
    from penstock.fs.kinds import Kind
    from penstock.host.kernel_facts import Mount


# The clock of a file system, by which the ages of its files are judged.
#
# The times of a file come from a clock that may not be this host's: the server's (NFS, BeeGFS), or the
# writing node's (Lustre, GPFS). A host with a wrong clock would confuse young and old files, and would
# mislead every other host by its time stamps. So ages, and the history's times, are taken from the file
# system (`now`, `stamp`). Commands that remove files by age refuse to work if the two clocks differ
# (`checked`), since either may be wrong. Reading the clock changes only the folder's change time.
#
# Limits: if files get the writing node's clock, the two clocks are the same, so that an error of it stays
# hidden. If this account may not touch the folder, `now` is this host's clock.

# seconds by which the clocks may differ: as many as munge, which SLURM needs, allows
BOUND = 300.0


def now(folder: Path) -> float:
    """Return seconds since the epoch on the file system's clock, or on this host's clock if the folder cannot
    be touched. Never raises. Touching the folder and reading its change time needs no inode and no block, so
    this also works on a full file system."""
    try:
        fd = os.open(folder, OPEN_FOLDER)
        try:
            return touch(fd) / 1e9
        finally:
            os.close(fd)
    except OSError:
        return time.time()


def touch(folder: int) -> int:
    """Return the same time as `now`, in nanoseconds, for the folder with this descriptor."""
    os.utime(folder)
    return os.fstat(folder).st_ctime_ns


def both(folder: Path) -> Now:
    """Return the result of `now`, and this host's clock at the same moment."""
    times = time.time(), now(folder)
    return Now(min(times), max(times))


def checked(folder: Path) -> float:
    """Return the same time as `now`, for removals by age. Raises PreflightError if this host's clock and the
    file system's clock differ by more than BOUND."""
    before = time.time()
    fs_now = now(folder)
    ahead, behind = before - fs_now, fs_now - time.time()
    if max(ahead, behind) <= BOUND:
        return fs_now
    apart = timedelta(seconds=round(max(ahead, behind)))
    how = f"{apart} ahead of" if ahead > 0 else f"{apart} behind"
    raise PreflightError(
        "this host's clock and the file system's do not agree",
        where=str(folder),
        why=f"this host's is {how} the time that the file system gives a file now: how old pins and releases "
        "are is not known, and nothing was removed",
        hint="set the clock that is wrong (`chronyc tracking` shows this host's), or give the command on a "
        "host whose clock is right",
    )


def stamp(folder: Path) -> str:
    """Return `now` in the form of documents: UTC, ISO 8601, in seconds."""
    return datetime.fromtimestamp(now(folder), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# The current facts about a folder's file system: its kind and abilities (`kinds`), space, mount.
#
# A call of a function waits if the file system does not respond (`watched_facts` handles that case).


@dataclass(frozen=True)
class StorageFacts:
    """The facts about the file system of a folder, as `facts` reads them for this user."""

    traits: Kind  # the file system's abilities: its row in the table of kinds
    free_bytes: int  # bytes that this user may fill (without the blocks reserved for root)
    total_bytes: int
    free_inodes: int | None  # number of free inodes; None if unknown (BeeGFS and btrfs always report 0 of 0)
    # the call with which an element (a process that copies) makes files durable here: `fsync` or `syncfs`
    durability: str
    read_only: bool
    mount_point: str
    mount_options: str
    device: str
    proof: MountProof  # the proof that this mount's options leave for reads and fsync

    @property
    def kind(self) -> str:
        """The name of the file system's kind."""
        return self.traits.name

    @property
    def direct(self) -> bool:
        """Whether O_DIRECT reads are known to bypass this machine's caches."""
        return self.traits.direct

    @property
    def passable(self) -> bool:
        """Whether a read can provably bypass all caches of this machine. It can if the page cache, which can
        be emptied, is the only cache."""
        return self.traits.one_cache


def facts(path: Path, proc: str | os.PathLike[str] = PROC) -> StorageFacts:
    """Read the facts of the nearest existing folder at or above `path`. Raises OSError."""
    real = nearest(Path(os.path.realpath(path)))
    space = os.statvfs(real)
    mount = mount_of(str(real), proc)
    kind = kind_of(libc.statfs_type(str(real)), mount.type)
    return StorageFacts(
        traits=kind,
        free_bytes=space.f_bavail * space.f_frsize,
        total_bytes=space.f_blocks * space.f_frsize,
        free_inodes=None if space.f_files == 0 and space.f_ffree == 0 else space.f_favail,
        durability=durability_of(kind, platform.release()),
        read_only=bool(space.f_flag & os.ST_RDONLY),
        mount_point=mount.point,
        mount_options=mount.options,
        device=mount.device,
        proof=_proof(kind, mount, proc),
    )


def _proof(kind: Kind, mount: Mount, proc: str | os.PathLike[str]) -> MountProof:
    """Return the mount's proof. `mount_checks` is imported only here, since most workers do not need it."""
    if not kind.product:
        return MountProof()
    from penstock.fs.mount_checks import proof_of

    return proof_of(kind, mount, proc)


# The files that a reader opens with O_DIRECT. Other files are read after their pages were dropped.
# `unlinked`: files with a single name.
DirectReads = Literal["all", "unlinked", "none"]


def direct_reads(facts: StorageFacts, key: str, *, published: bool) -> DirectReads:
    """Choose the files to read with O_DIRECT, according to the option `verify.direct` (`key`).

    `published` says whether the tree is a release, or another tree that jobs may read. If not, it is a
    staging; a file with a second name in a staging also belongs to a release.

    | O_DIRECT is honoured | O_DIRECT harms others      | `verify.direct` | published | result           |
    |----------------------|----------------------------|-----------------|-----------|------------------|
    | no                   | any                        | any             | any       | none             |
    | yes                  | no                         | any             | any       | all              |
    | yes                  | yes                        | `always`        | any       | all              |
    | yes                  | yes                        | `unshared`      | no        | unlinked         |
    | yes                  | yes                        | `unshared`      | yes       | none             |
    """
    if not facts.direct:
        return "none"
    if key == "always" or not facts.proof.direct_harms:
        return "all"
    return "none" if published else "unlinked"


def traits_of_mount(path: str, proc: str | os.PathLike[str] = PROC) -> Kind:
    """Return the abilities of a real path's file system, judging only by the mount table."""
    return kind_of(-1, mount_of(path, proc).type)


def traits_of_device(number: int, proc: str | os.PathLike[str] = PROC) -> Kind:
    """Return the abilities of this device's file system (`st_dev`), judging only by the mount table."""
    return kind_of(-1, mount_of_device(number, proc).type)


def passable(name: str) -> bool:
    """Return `StorageFacts.passable` for a kind's name."""
    return named_kind(name).one_cache


def durability_of(kind: Kind, release: str) -> str:
    """Return `syncfs` or `fsync`, according to the table. `release` is the kernel's release (`uname -r`)."""
    version = re.match(r"(\d+)\.(\d+)", release)
    kernel = (int(version[1]), int(version[2])) if version else (0, 0)
    return "syncfs" if kind.syncfs_reaches(kernel) else "fsync"


# The process that reads the facts about a folder whose file system may never respond.
#
# `watched_facts` starts it for each folder that is on a network mount, or is reached through such a mount,
# and kills it after a deadline. Its argument is the folder. If the folder does not exist yet, the nearest
# existing folder above it counts. It writes a JSON object, {"facts": ...} or {"errno": number}, to standard
# output.


def main(path: str) -> None:
    """Write `facts` of the folder, or the number of its OSError (EIO if it has no number)."""
    try:
        storage = facts(Path(path))
    except OSError as error:
        answer: dict[str, object] = {"errno": error.errno or errno.EIO}
    else:
        # `traits` is a row of the table `kinds`. Its name is sent, so that the parent can find the row.
        answer = {"facts": {**vars(storage), "traits": storage.kind, "proof": storage.proof._asdict()}}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])
