"""The lock of a dataset, a file on the target whose holder alone may change the dataset; and claims, which
say for which run it is staged. A step holds the lock until it ends; a run keeps its claim from step to step.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple, Self

from penstock.core import dataset_documents
from penstock.core.dataset_documents import ClaimFile
from penstock.core.errors import (
    STATE_ANEW,
    FailedError,
    LockedError,
    NoSpaceError,
    OvertakenError,
    PenstockError,
    PreflightError,
)
from penstock.dataset import documents, release_records
from penstock.dataset import holder as holders
from penstock.fs import small_files
from penstock.fs.safe_open import NO_SPACE, storage_error
from penstock.fs.small_files import NO_LINKS, give_name
from penstock.host import waits
from penstock.host.waits import HEARTBEAT, PATIENCE, SHORT, stands_still
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.holder import Holder


# The lock of a dataset: a file on the target. Its holder alone may change the dataset.
#
# Each step that changes a dataset holds it (`jobs.dataset_state`). An audit has a lock file of its
# own. Creating the file is atomic between nodes on every file system (link, or O_EXCL); flock is not, since
# BeeGFS may keep it on one node. The holder touches the file every `HEARTBEAT`. Others take it over by these
# rules:
#
# | holder's process (holder.lives) | scheduler says   | heartbeat seen unchanged | then                 |
# |---------------------------------|------------------|--------------------------|----------------------|
# | dead                            | not asked        | not awaited              | taken over at once   |
# | alive                           | not asked        | not awaited              | LockedError          |
# | unknown                         | alive (False)    | not awaited              | LockedError          |
# | unknown                         | ended (True)     | no: it changed           | LockedError          |
# | unknown                         | ended (True)     | for `SHORT`              | taken over           |
# | unknown                         | unknown (None),  | no: it changed           | LockedError          |
# |                                 | or another's job |                          |                      |
# | unknown                         | unknown (None),  | for `PATIENCE`           | taken over           |
# |                                 | or another's job |                          |                      |
#
# The heartbeat counts even if SLURM reports the job as ended: if only its slurmd died, the job still writes.
# Only jobs of this cluster are queried, since job numbers repeat. Waits use the monotonic clock, without the
# time in which the file system was unresponsive. File times are compared only with each other. A nonce
# identifies a lock, because inode numbers may change (FUSE without `use_ino`). If the lock is taken over
# while its holder is frozen, the holder learns it from `assert_held`.

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# names of files left behind by a process killed during a takeover
_LEFT = re.compile(r"\.(dead|lock)\.[0-9a-f]{32}|\.try-[0-9a-f]{16}")
_TEMPORARY = ".lock."  # prefix of a lock being made
LONGEST = 65_536  # bytes; a longer file is no lock


class _LockState(NamedTuple):
    """A lock file's state at one moment: two equal states mean that nobody touched or replaced the file."""

    mtime_ns: int
    content: bytes


def _nobody(text: str) -> None:
    del text


def _nothing() -> None:
    pass


class DatasetLock:
    """A context manager that holds the dataset. It is not reentrant, and only one thread may use it.

    Entering it may wait as the module's table says. Entering raises LockedError naming the holder, any error
    of `pause`, and the errors of `safe_open.storage_error` if the file system refuses.

    | argument                    | meaning                                                                  |
    |-----------------------------|--------------------------------------------------------------------------|
    | path                        | the lock file; an audit has its own, since it changes nothing            |
    | holder_ended(job, cluster)  | True: the scheduler knows the job as ended; False: alive; None: unknown  |
    | pause(seconds)              | waits between two checks; may raise to give up                           |
    | tell(text)                  | receives a sentence about a wait or a takeover                           |
    | beat()                      | runs after each heartbeat, in the lock's thread; must not raise          |
    | patience, heartbeat         | seconds                                                                  |
    """

    def __init__(
        self,
        path: Path,
        dataset: str,
        *,
        run: str,
        command: str,
        holder_ended: Callable[[str, str], bool | None],
        pause: Callable[[float], None] = waits.pause,
        tell: Callable[[str], None] = _nobody,
        beat: Callable[[], None] = _nothing,
        patience: float = PATIENCE,
        heartbeat: float = HEARTBEAT,
    ) -> None:
        self._path = path
        self._dataset = dataset
        self._run, self._command = run, command
        self._holder_ended = holder_ended
        self._pause = pause
        self._tell = tell
        self._also = beat
        self._patience = patience
        self._short = min(patience, SHORT * heartbeat / HEARTBEAT)
        self._heartbeat = heartbeat
        self._fd = -1
        self._nonce = ""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        me = holders.this_process(self._run, self._command)
        try:
            while not self._create(me):
                self._wait_or_refuse(me)
        except OSError as error:
            raise storage_error(error, "cannot take the dataset's lock", str(self._path)) from None
        self._nonce = me.nonce
        self._sweep()
        self._ended.clear()
        self._thread = threading.Thread(target=self._beat, name="lock heartbeat", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        try:
            # A lock that was taken over is left to its new holder.
            with contextlib.suppress(OSError):
                if self._ours():
                    self._give_back()
        finally:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)

    def assert_held(self) -> None:
        """Raise LockedError (OvertakenError) if the lock file is no longer this lock's. Call it right before
        each change that readers see, and before removing files that a new holder may own."""
        for last in (False, False, True):
            try:
                if self._fd >= 0 and self._ours():
                    return
            except OSError as error:
                raise storage_error(error, "cannot read the dataset's lock", str(self._path)) from None
            if not last:
                # Another process may have removed this lock by mistake, in place of an older lock. It then
                # restores this lock at once.
                self._ended.wait(0.2)
        state = self._look()
        holder = holders.parse(state.content) if state else None
        raise OvertakenError(
            f"the lock of dataset {self._dataset} was lost",
            where=str(self._path),
            why=holder.describe() if holder else "it is gone",
            hint="nothing more was changed; the same command goes on when the other run has ended",
        )

    def beats(self) -> bool:
        """Check that a heartbeat reaches the path: set the open file's time, and read it by name."""
        try:
            os.utime(self._fd, ns=(10**18, 10**18))
            state = self._look()
            os.utime(self._fd)
        except OSError as error:
            raise storage_error(error, "cannot touch the dataset's lock", str(self._path)) from None
        return state is not None and state.mtime_ns == 10**18

    def _create(self, me: Holder) -> bool:
        """Create the lock file; return False if another lock exists. The file appears complete, or empty for
        a moment if the file system lacks hard links."""
        temporary = self._path.with_name(f"{_TEMPORARY}{me.nonce}")
        fd = os.open(temporary, _NEW, 0o600)
        try:
            _write(fd, me.to_json())
            outcome = self._link(temporary, me.nonce)
        except BaseException as error:
            os.close(fd)
            if isinstance(error, OSError) and error.errno == errno.ESTALE:
                return False  # swept while this process was frozen, as in `_link`; NFS reports ESTALE
            raise
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        if outcome == "made":
            self._fd = fd
            return True
        os.close(fd)
        return outcome == "impossible" and self._create_in_place(me)

    def _create_in_place(self, me: Holder) -> bool:
        try:
            fd = os.open(self._path, _NEW, 0o600)
        except FileExistsError:
            return False
        try:
            _write(fd, me.to_json())
        except BaseException:
            os.close(fd)
            os.unlink(self._path)
            raise
        self._fd = fd
        return True

    def _link(self, temporary: Path, nonce: str) -> str:
        """Make the hard link. Return `made`, `taken`, or `impossible` on a file system without hard links."""
        try:
            give_name(temporary, self._path)
        except FileExistsError:
            pass  # NFS also reports this if its first reply was lost, so the nonce is compared below
        except FileNotFoundError:
            return "taken"  # a holder swept the temporary file while this process was frozen
        except OSError as error:
            if error.errno in NO_LINKS:
                return "impossible"
            raise
        made = self._look()
        return "made" if made is not None and _nonce(made.content) == nonce else "taken"

    def _wait_or_refuse(self, me: Holder) -> None:
        """Return when the lock may be free; raise LockedError otherwise."""
        first = self._look()
        if first is None:
            return
        holder = holders.parse(first.content)
        alive = holders.lives(holder) if holder else None
        patience = self._patience
        if alive is None and holder is not None and holder.job:
            ended = self._before(holder, me) or self._holder_ended(holder.job, holder.cluster)
            if ended:
                patience = self._short
            elif ended is False:
                alive = True
        if alive:
            raise self._locked(holder)
        who = holder.describe() if holder else "somebody who does not say who"
        if alive is None:
            why = (
                "its job has ended, says SLURM" if patience < self._patience else "nothing says that it ended"
            )
            self._tell(
                f"waiting for {who}: {why}; the lock is taken over when its heartbeat stands still for "
                f"{patience:.0f} s"
            )
            self._watch(first, patience)
        asked = time.monotonic()
        unchanged = self._look() == first
        if time.monotonic() - asked > self._heartbeat:
            return  # as in `stands_still`: the caller waits again
        if unchanged and self._remove(lambda content: content == first.content, me.nonce):
            how = "that process is dead" if alive is False else f"no heartbeat for {patience:.0f} s"
            self._tell(f"took over the lock of {who}: {how}")

    def _watch(self, first: _LockState, patience: float) -> None:
        """Return once the lock is unchanged for `patience` seconds or gone; raise LockedError if it
        changed."""
        state: _LockState | None = first

        def moved() -> bool:
            nonlocal state
            state = self._look()
            return state != first

        if not stands_still(patience, self._heartbeat, self._pause, moved) and state is not None:
            raise self._locked(holders.parse(state.content))

    @staticmethod
    def _before(holder: Holder, me: Holder) -> bool:
        """Check whether the holder is an earlier start of this job. SLURM restarts a job only after it
        considers the previous start ended."""
        numbers = holder.restart.isdecimal() and me.restart.isdecimal()
        same = (holder.job, holder.cluster) == (me.job, me.cluster)
        return same and numbers and int(holder.restart) < int(me.restart)

    def _locked(self, holder: Holder | None) -> LockedError:
        return LockedError(
            f"another run holds dataset {self._dataset}",
            where=str(self._path),
            why=holder.describe() if holder else "it does not say who",
            hint=f"wait for it, or stop it (`penstock cancel {self._dataset}` ends a run); penstock itself "
            "takes over the lock of a dead holder "
            "(remove the file only where the cluster still shows a job that has certainly ended)",
        )

    def _look(self) -> _LockState | None:
        try:
            return _state(self._path)
        except FileNotFoundError:
            return None

    def _ours(self) -> bool:
        state = self._look()
        return state is not None and _nonce(state.content) == self._nonce

    def _give_back(self) -> None:
        """Remove this lock, by `_remove` if possible. If a full XFS has no room for the name that `_remove`
        needs, the lock is unlinked in place. Should another process take the lock over at that moment, its
        `assert_held` notices the loss."""
        try:
            self._remove(lambda content: _nonce(content) == self._nonce, self._nonce)
        except OSError as error:
            if error.errno not in NO_SPACE or not self._ours():
                raise
            os.unlink(self._path)

    def _remove(self, is_judged: Callable[[bytes], bool], nonce: str) -> bool:
        """Remove the lock file if its content is still the judged content; return whether it was removed. If
        several processes try, one succeeds. A process that removed a newer lock by accident restores it."""
        dead = self._path.with_name(f".dead.{nonce}")
        try:
            os.rename(self._path, dead)
            right = is_judged(_state(dead).content)
        except FileNotFoundError:
            return False  # another process was faster, or swept the renamed file
        if not right:
            # If a third process holds a lock by now, the removed lock's owner notices in assert_held.
            with contextlib.suppress(FileExistsError):
                try:
                    give_name(dead, self._path)
                except OSError as error:
                    if error.errno not in NO_LINKS:
                        raise
                    os.rename(dead, self._path)
                    return False
        with contextlib.suppress(FileNotFoundError):
            os.unlink(dead)
        return right

    def _sweep(self) -> None:
        """Remove files of killed takeovers that were untouched for `patience` when this lock was made. Ages
        come from the file system's times. Younger files may belong to a takeover that is still running."""
        with contextlib.suppress(OSError):
            made = os.fstat(self._fd).st_ctime
            with os.scandir(self._path.parent) as entries:
                for entry in entries:
                    if _LEFT.fullmatch(entry.name):
                        status = entry.stat(follow_symlinks=False)
                        if made - max(status.st_ctime, status.st_mtime) > self._patience:
                            os.unlink(entry.path)

    def _beat(self) -> None:
        while not self._ended.wait(self._heartbeat):
            # A missed beat is harmless: others wait for twelve of them, and assert_held notices a lost lock.
            with contextlib.suppress(OSError):
                os.utime(self._fd)
            self._also()


def try_out(folder: Path, dataset: str) -> None:
    """Test in `folder` that a lock can be created, touched, seen to change, and removed. Raises
    PreflightError if not; nothing is left behind."""
    path = folder / f".try-{secrets.token_hex(8)}"
    lock = DatasetLock(path, dataset, run="", command="preflight", holder_ended=lambda *_: None)
    try:
        with lock:
            lock.assert_held()
            if not lock.beats():
                raise LockedError(
                    "a heartbeat cannot be seen",
                    why="the file's time stays as it is",
                    hint="look at the mount: a file's time must move when it is written",
                )
    except NoSpaceError:
        raise
    except PenstockError as error:
        raise PreflightError(
            "this file system cannot hold the dataset's lock",
            where=str(folder),
            why=error.why or error.what,
            hint="choose a `target.root` on another file system, or `target.state_root` for the state alone",
        ) from None


def _write(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.fsync(fd)


def _state(path: Path) -> _LockState:
    """Read the lock that has this name now. Raises OSError. NFS reports ESTALE if another node replaced the
    file between open and read. The next open finds the new file."""
    for _ in range(small_files.STALE_LOOKS - 1):
        try:
            return _read_state(path)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
    return _read_state(path)


def _read_state(path: Path) -> _LockState:
    """Read a lock, which may be a symbolic link: for a moment (`small_files.give_name`), or forever if its
    maker died. Such a link counts as a lock of an unknown holder. Other links and files that were never locks
    raise NotPlainError, since waiting for them would be useless."""
    try:
        fd = os.open(path, small_files.FLAGS)
    except OSError as error:
        if error.errno == errno.ELOOP:
            status, target = os.lstat(path), os.readlink(path)
            if os.path.basename(target).startswith(_TEMPORARY):
                return _LockState(status.st_mtime_ns, os.fsencode(target))
        raise small_files.refused(error, path) from None
    status = os.fstat(small_files.checked(fd, path))
    return _LockState(status.st_mtime_ns, small_files.content(fd, LONGEST, path))


def _nonce(content: bytes) -> str:
    holder = holders.parse(content)
    return holder.nonce if holder else ""


# Claims: for which run a dataset is staged. A step holds the dataset's lock until it ends; a run keeps its
# claim from step to step. `HeldDataset` has both.

# Claims, in which the highest number counts:
#
#     <state>/claims/00000007.json   the seventh claim; made by O_EXCL, durable, never changed
#
# `list` claims the dataset for its run. Steps of other runs then exit with 7 at their next check. Publish
# checks right before each rename. So a frozen run that wakes later changes nothing that readers see.
#
# | the highest claim is | its run is alive (`dataset_state.of_claim`) | list            | a step of run R |
# |----------------------|---------------------------------------------|-----------------|-----------------|
# | none                 |                                             | claims          | continues       |
# | run R's              | any                                         | claims again    | continues       |
# | another run's        | yes                                         | LockedError (7) | OvertakenError  |
# | another run's        | no                                          | claims          | OvertakenError  |

CLAIMS_KEPT = 8  # claims kept for people; only the highest counts
_NAME = re.compile(r"(\d{8,})\.json")


def highest_claim(layout: DatasetLayout) -> ClaimFile | None:
    """Return the highest claim; None if nothing was listed yet. Raises FailedError, NewerFormatError."""
    return next(kept_claims(layout), None)


def kept_claims(layout: DatasetLayout) -> Iterator[ClaimFile]:
    """Yield the existing claims, the highest first. During iteration it raises as `highest_claim`."""
    try:
        names = os.listdir(layout.claims)
    except FileNotFoundError:
        names = []
    except OSError as error:
        raise FailedError(
            "the claims cannot be read", where=str(layout.claims), why=str(error), hint=STATE_ANEW
        ) from error
    numbered = [(int(match[1]), match[0]) for name in names if (match := _NAME.fullmatch(name))]
    yield from (_read(layout, number, name) for number, name in sorted(numbered, reverse=True))


def make_claim(layout: DatasetLayout, run: str, above: ClaimFile | None, controller: str) -> ClaimFile:
    """Claim the dataset for `run`, durably, with a number above that of `above`, the claim found when the
    lock was taken. `controller` is the workflow's process, as in `Context`. Raises LockedError if another run
    was faster, and the errors of `safe_open.storage_error`."""
    try:
        # The number also exceeds all in the history, so numbers rise even if somebody removed the claims.
        number = 1 + max(above.number if above else 0, release_records.last_claim(layout))
        claim = ClaimFile(run, number, asdict(holders.this_process(run, "list")), controller)
        text = (
            json.dumps(
                dataset_documents.CLAIM_FILE.to_json(claim), sort_keys=True, ensure_ascii=True, indent=1
            )
            + "\n"
        )
        small_files.make_dirs(layout.claims)
        made = small_files.create_file(layout.claims / _file(number), text.encode())
        if not made:
            # Read the file itself: on NFS a folder's listing may be stale.
            standing = _read(layout, number, _file(number))
            if standing.run != run:
                raise overtaken(layout, run, standing)
        check_claim(layout, run)
        # This comes after the claim: a run that saw no higher claim may be about to move `current`
        # (`reveal.point`).
        dataset_folders.sweep_pointers(layout)
        for old in range(number - CLAIMS_KEPT, 0, -1):
            if not _remove(layout, old):
                break
    except OSError as error:
        raise storage_error(error, "the dataset cannot be claimed", str(layout.claims)) from error
    return claim


def check_claim(layout: DatasetLayout, run: str) -> None:
    """Raise LockedError if another run has claimed the dataset. Otherwise raises as `highest_claim`."""
    standing = highest_claim(layout)
    if standing is not None and standing.run != run:
        raise overtaken(layout, run, standing)


def claim_number(layout: DatasetLayout) -> int:
    """Return the highest claim's number; 0 if the dataset has no claim."""
    standing = highest_claim(layout)
    return standing.number if standing else 0


def last_claim_of(layout: DatasetLayout, run: str) -> int:
    """Return the highest number of a claim that may have been the run's. Raises FailedError. Only the newest
    CLAIMS_KEPT claims remain: if none of them is the run's, any lower number may have been."""
    standing = highest_claim(layout)
    if standing is None:
        return 0
    for number in range(standing.number, 0, -1):
        name = _file(number)
        if not os.path.lexists(layout.claims / name) or _read(layout, number, name).run in (run, ""):
            return number
    return 0


def claim_made_by(claim: ClaimFile) -> str:
    """Say by whom, where and when the claim was made."""
    by = holders.from_json(claim.by)
    if by is None:
        return "by somebody who does not say who"
    return f"by {by.user} on {by.host}, at {by.since}"


def overtaken(layout: DatasetLayout, run: str, standing: ClaimFile | None) -> OvertakenError:
    """Return the error for a run whose dataset another run has claimed."""
    other = (standing.run if standing else "") or "that cannot be read"
    return OvertakenError(
        f"run {run} of dataset {layout.dataset} was overtaken by run {other}",
        where=str(layout.claims),
        why=f"claimed {claim_made_by(standing)}" if standing else "",
        hint=f"nothing more was changed; `penstock run {layout.dataset}` stages what the source holds now",
    )


def _file(number: int) -> str:
    return f"{number:08d}.json"


def _remove(layout: DatasetLayout, number: int) -> bool:
    try:
        os.unlink(layout.claims / _file(number))
    except FileNotFoundError:
        return False
    return True


def _read(layout: DatasetLayout, number: int, name: str) -> ClaimFile:
    claim = documents.find_whole(dataset_documents.CLAIM_FILE, layout.claims / name)
    if claim is None:
        return ClaimFile("", number, None, "")
    return claim._replace(number=number)


class HeldDataset:
    """A dataset locked for a step. `run`: the id of the step's run; "" if it has none yet, as in list."""

    def __init__(self, layout: DatasetLayout, lock: DatasetLock, run: str) -> None:
        self.layout, self.run = layout, run
        self._lock = lock
        # the highest claim when a step without a run began
        self.above = highest_claim(layout) if not run else None
        # the number of the run's claim when the step began; 0 if it has no run
        self.number = claim_number(layout) if run else 0

    def assert_held(self) -> None:
        """Raise LockedError if another run claimed the dataset or the lock was lost. Call it right before
        each change that readers or another run could see."""
        if self.run:
            check_claim(self.layout, self.run)
        self._lock.assert_held()
