"""Who stages a dataset now (the notice `<dataset>/under-way.json`), how the last command that staged it
failed, and when such a command last succeeded.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shlex
import stat
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import dataset_documents, run_steps
from penstock.core import dataset_documents as document
from penstock.core.dataset_documents import Publication, StillToWrite, UnderWay
from penstock.core.errors import (
    NewerFormatError,
    OlderVersionError,
    PenstockError,
    PreflightError,
    signal_name,
)
from penstock.core.human import SECOND, brief, nanoseconds
from penstock.core.layout import DATASET_NAME, DatasetLayout
from penstock.dataset import release_records, submitted_arrays
from penstock.fs import capabilities, small_files
from penstock.host import kernel_facts
from penstock.target import access, dataset_folders, notices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cluster.port import Cluster
    from penstock.core.dataset_documents import LastEnd
    from penstock.core.step_results import RunState


# The notice `<dataset>/under-way.json`: who stages a dataset now, in which job, and how much it will still
# write.
#
# It is for readers, their jobs and the plans of other runs, whose accounts see neither lock nor run. Each
# step writes it under the dataset's lock. The lock's heartbeat and the elements touch it. Publication, a
# failed or stopped step (unless its elements go on) and `penstock cancel` remove it. Repairs and rehearsals
# have their own notices. A killed process leaves its notice behind:
#
# | the notice                                 | is shown as          | advice                               |
# | ------------------------------------------ | -------------------- | ------------------------------------ |
# | touched within `capabilities.BOUND` of now | being staged         | wait for its job, or ask again later |
# | of a submitted controller that has         | submitted            | wait for its job: SLURM knows if it  |
# | not begun, written within `UNSEEN`         |                      | still exists (`penstock after`)      |
# | any other                                  | with the time of its | as if no notice existed              |
# |                                            | last sign of life    |                                      |
# | of another account than the dataset's      | nothing              | as if no notice existed              |
# | folder, no plain file, longer than         |                      |                                      |
# | `LONGEST`, or with other fields            |                      |                                      |
#
# A notice is *living* if the first or second row applies. Plans add up the bytes that living notices announce
# (`jobs.forecast`). The other fields are for people. A step continues if its notice cannot be written:
# functions that write raise neither OSError nor PenstockError.

LONGEST = 4096  # most bytes of a notice
UNSEEN = 7 * 86400.0  # seconds for which a submitted controller counts as waiting without asking SLURM
SUBMITTED = "submit"  # value in place of a step: the controller was submitted as a job, and has not begun
_STEPS = frozenset({*run_steps.OF_RUN, SUBMITTED, "repair", "rehearse"})
_JOB = re.compile(r"[0-9]{0,20}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


class StagingNotice(NamedTuple):
    """A notice worth showing, and the facts of its file."""

    path: Path
    notice: UnderWay
    uid: int  # the account that stages: the file's owner
    touched: float  # time of the last touch, in seconds since the epoch
    alive: bool  # touched lately, or its controller's job waits to begin

    @property
    def dataset(self) -> str:
        return self.path.parent.name

    @property
    def writes(self) -> StillToWrite:
        return self.notice.writes

    def __str__(self) -> str:
        notice, who = self.notice, access.in_words([str(self.uid)])
        on = f" of cluster {brief(notice.cluster)}" if notice.cluster else ""
        job = f"SLURM job {notice.job}{on}, " if notice.job else ""
        if notice.step == SUBMITTED:
            return f"{who} submitted its staging: {job}since {notice.since}, which had not begun then"
        where = f"step {notice.step} on {brief(notice.host)}, {job}since {notice.since}"
        if self.alive:
            return f"it is being staged by {who}: {where}"
        return f"{who} was staging it: {where}; last sign of life at {_stamp(self.touched)}"


def _stamp(seconds: float) -> str:
    """Format a time as the notice does; as a plain number if its owner set it beyond the calendar."""
    with contextlib.suppress(ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{seconds:.0f}"


class Notice:
    """The notice of one step that holds the dataset's lock."""

    def __init__(self, layout: DatasetLayout, path: Path, step: str, controller: str = "") -> None:
        environment = kernel_facts.current_job()
        job = (environment.array or environment.job) if environment.proven else ""
        self._layout, self._path = layout, path
        self._notice = UnderWay(
            step=step,
            since=_stamp(capabilities.now(layout.folder)),
            host=kernel_facts.host_name(),
            job=job,
            cluster=environment.cluster if job else "",
            controller=controller,
        )

    def begin(self) -> None:
        """Write the notice. If an earlier step of the same job or controller wrote one, its `since` and
        `writes` are kept."""
        before = find(self._layout, self._path)
        if before is not None:
            self._notice = self._notice._replace(writes=before.notice.writes)
            if self._notice.continues(before.notice):
                self._notice = self._notice._replace(since=before.notice.since)
        _write(self._path, self._notice)

    def end(self) -> None:
        """Remove the notice, unless another process replaced it."""
        standing = find(self._layout, self._path)
        if standing and standing.notice._replace(writes=self._notice.writes) == self._notice:
            _forget(self._path)


def touch(path: Path) -> None:
    """Touch the notice, to show that its run is still running."""
    with contextlib.suppress(OSError):
        notices.touch(path.parent, path.name)


def restate(layout: DatasetLayout, path: Path, **writes: int | str) -> None:
    """Change fields of `writes` in the notice, if it exists. The holder of the dataset's lock calls it."""
    if standing := find(layout, path):
        changed = standing.notice._replace(writes=standing.writes._replace(**writes))  # type: ignore[arg-type]
        if changed != standing.notice:
            _write(path, changed)


def written(layout: DatasetLayout, path: Path) -> None:
    """Set `writes` to nothing, if the notice exists. The holder of the dataset's lock calls it."""
    restate(layout, path, bytes=0, files=0, chunk_files=0)


def submitted(layout: DatasetLayout, job: str, cluster: Cluster) -> None:
    """Note that this controller's job waits to begin, if the dataset belongs to this account. If an ended
    controller's elements still work, their notice then names this job as the job to wait for. For a first
    release this makes the dataset's folder."""
    with contextlib.suppress(OSError, PenstockError):
        standing, name = find(layout), cluster.name()
        waiting = UnderWay(SUBMITTED, _stamp(capabilities.now(layout.root)), job=job, cluster=name)
        if standing is not None and standing.alive and standing.notice.step != SUBMITTED:
            if not _has_ended(standing, cluster):
                return
            waiting = standing.notice._replace(job=job, cluster=name, controller="")
        made = dataset_folders.make_folder(layout) or (standing is not None and standing.notice.made)
        _write(layout.under_way, waiting._replace(made=made))


def forget(layout: DatasetLayout) -> None:
    """Remove the notices of runs and repairs, and a dataset's folder that a submission made and no run used.
    The dataset's owner calls it."""
    standing = find(layout)
    _forget(layout.repair_under_way)
    _take_back(layout, standing)


def withdraw(layout: DatasetLayout, job: str) -> None:
    """Remove the notice of a job that ended before any of its steps held the dataset's lock."""
    standing = find(layout)
    if standing and (standing.notice.step, standing.notice.job) == (SUBMITTED, job):
        _take_back_unchanged(layout, standing)


def forget_ended(layout: DatasetLayout, cluster: Cluster) -> None:
    """Remove a submitted controller's notice if this cluster no longer knows its job."""
    with contextlib.suppress(OSError, PenstockError):
        standing = find(layout)
        if standing and standing.notice.step == SUBMITTED and _has_ended(standing, cluster):
            _take_back_unchanged(layout, standing)


def _has_ended(standing: StagingNotice, cluster: Cluster) -> bool:
    """Check whether this account made the notice and this cluster no longer knows its job."""
    if not standing.notice.job or standing.notice.cluster != cluster.name() or standing.uid != os.geteuid():
        return False
    live = cluster.live_job(standing.notice.job)
    return live is None or live.uid is None  # no cluster hides an account's own jobs from that account


def _take_back_unchanged(layout: DatasetLayout, standing: StagingNotice) -> None:
    if (again := find(layout)) is not None and again.notice == standing.notice:
        _take_back(layout, standing)


def _take_back(layout: DatasetLayout, standing: StagingNotice | None) -> None:
    """Remove the notice, and the dataset's folder if a submission made it and it is empty."""
    _forget(layout.under_way)
    if standing is not None and standing.notice.made:
        with contextlib.suppress(OSError):
            layout.folder.rmdir()


def _forget(path: Path) -> None:
    with contextlib.suppress(OSError, PenstockError):
        notices.forget_notice(path)


def _write(path: Path, notice: UnderWay) -> None:
    with contextlib.suppress(OSError, PenstockError):
        if path.parent.is_dir():  # `remove --all` removes the folder
            writes = notice.writes._replace(uid=os.geteuid())
            value = document.UNDER_WAY.to_json(notice._replace(writes=writes))
            notices.write_notice(path, value)


def find(layout: DatasetLayout, path: Path | None = None, now: float | None = None) -> StagingNotice | None:
    """Return the notice to show, according to the module's table. Raises nothing. `path`: the notice's path
    (None: the run's notice). `now`: seconds since the epoch by the file system's clock (None: read it)."""
    path = layout.under_way if path is None else path
    try:
        fd = small_files.descriptor(path)
        status = os.fstat(fd)
        notice = document.UNDER_WAY.from_json(small_files.content(fd, LONGEST), path)
        folder = layout.folder.lstat()
    except (OSError, ValueError, PenstockError):
        return None
    valid = notice.step in _STEPS and _JOB.fullmatch(notice.job) and _TIME.fullmatch(notice.since)
    if not valid or not stat.S_ISDIR(folder.st_mode) or status.st_uid != folder.st_uid:
        return None
    now = capabilities.now(layout.pins) if now is None else now
    alive = abs(now - status.st_mtime) <= (UNSEEN if notice.step == SUBMITTED else capabilities.BOUND)
    notice = notice._replace(writes=notice.writes._replace(uid=status.st_uid))
    return StagingNotice(path, notice, status.st_uid, status.st_mtime, alive)


def living_below(layout: DatasetLayout) -> Iterator[StagingNotice]:
    """Yield the living notices of all datasets and accounts below the root, by dataset. Raises nothing.
    Those of submitted controllers are left out: they write nothing yet."""
    names: list[str] = []
    with contextlib.suppress(OSError):
        names += sorted(filter(DATASET_NAME.fullmatch, os.listdir(layout.root)))
    now = capabilities.now(layout.folder)
    for dataset in (DatasetLayout(layout.root, name) for name in names):
        for notice in map(partial(find, dataset, now=now), dataset.under_ways):
            if notice is not None and notice.alive and notice.notice.step != SUBMITTED:
                yield notice


def advice(layout: DatasetLayout, staging: StagingNotice | None) -> str:
    """Advise an account that finds nothing published: wait for the job, ask the owner, or stage it."""
    if staging is not None and staging.alive:
        job = staging.notice.job
        if job:
            after = f"penstock after {layout.dataset} --root {shlex.quote(str(layout.root))}"
            return f"wait for job {job}: w=$({after}) && sbatch $w train.sh"
        return (
            "it is in no SLURM job that a job could wait for: give the same command again when it has ended"
        )
    try:
        owner = layout.folder.lstat().st_uid
    except OSError:
        owner = os.geteuid()
    if owner != os.geteuid():
        return f"ask its owner, {access.in_words([str(owner)])}, to stage it"
    return f"run `penstock run {layout.dataset}`"


# How the last command that staged a dataset failed, and when such a command last succeeded. Also where an
# account keeps the state of its audit or comparison of another account's dataset.


def own_layout(layout: DatasetLayout) -> DatasetLayout:
    """Return the dataset's paths with the state below XDG_STATE_HOME or `~/.local/state`. Creates nothing.
    Without a home the path is relative and does not exist."""
    configured = os.environ.get("XDG_STATE_HOME")
    home = Path(configured).absolute() if configured else Path(os.path.expanduser("~/.local/state"))
    place = hashlib.sha256(os.fsencode(layout.root.absolute())).hexdigest()[:16]
    return replace(layout, state_root=home / "penstock" / place)


def state_beside(layout: DatasetLayout, what: str) -> DatasetLayout:
    """Return the paths of `own_layout`, and make the state's folder durably with its version marker. `what`
    names the state for people, such as `this audit`. Raises PreflightError if the folder cannot be made,
    OlderVersionError and NewerFormatError if another version made it."""
    own = own_layout(layout)
    try:
        if not own.state.is_absolute():
            raise FileNotFoundError(errno.ENOENT, "this account has no home", str(own.state))
        small_files.make_dirs(own.state)
        dataset_folders.mark_state(own)
    except OlderVersionError as error:
        hint = f"remove {own.state.parent}: the same command begins anew"
        raise OlderVersionError(error.what, where=error.where, why=error.why, hint=hint) from None
    except OSError as error:
        raise PreflightError(
            f"there is no place for the state of {what}",
            where=str(own.state),
            why=str(error.strerror),
            hint="set XDG_STATE_HOME to a folder of yours that the nodes see, too",
        ) from None
    return own


# How the last unsuccessful command on a dataset ended, and when a command last succeeded.
#
#     <state>/ended.json       `core.dataset_documents.LastEnd`, in SIZE bytes
#     <state>/.ended.room      the same file while no failure is noted: it keeps room for the next note, since
#                              a full file system may be the failure
#
# If a first run fails before the dataset has a state, `ended.json` is in the account's own state
# (`own_layout`).
#
#     <state>/succeeded        empty; touched when a run publishes, or finds its release unchanged, and the
#                              gate is open
#
# A step that begins renames the note back. So a killed step shows no older reason. Errors while
# writing notes are ignored.

SIZE = 4096  # bytes of the note, padded with blanks: one block on most file systems
_LONGEST = 600  # most characters in the note's reason and in its hint
_REASONS = {5: "the source changed", 6: "no space"}  # exit statuses that name a cause
_OPEN = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def begin_staging(layout: DatasetLayout, *, reserve: bool) -> None:
    """Withdraw an earlier note as a step begins. With `reserve`, also make room for the next note. Raises no
    OSError. The holder of the dataset's lock calls it."""
    with contextlib.suppress(OSError):
        own_layout(layout).ended.unlink(missing_ok=True)
    with contextlib.suppress(OSError, NewerFormatError):
        try:
            os.rename(layout.ended, layout.ended_room)
        except FileNotFoundError:
            if reserve and not os.path.lexists(layout.ended_room):
                small_files.create_file(layout.ended_room, b" " * SIZE)
        if reserve and not os.path.lexists(layout.succeeded):
            before, fresh = last_success(layout) or 0.0, layout.succeeded.with_suffix(".new")
            small_files.write_file(fresh, b"")
            os.utime(fresh, (before, before))
            os.rename(fresh, layout.succeeded)


def note_end(layout: DatasetLayout, end: LastEnd) -> None:
    """Write this note durably, if this account stages the dataset. Raises neither OSError nor PenstockError.
    For a first run it makes the dataset's folders. Only list makes a root, or a state below
    `target.state_root`. Until then the note is in the account's own state."""
    try:
        if os.path.lexists(layout.folder) and not dataset_folders.owns(layout):
            return
        if not dataset_folders.check_marker(layout):
            if layout.state_root is not None or not layout.root.is_dir():
                layout = state_beside(layout, "how the run ended")
            else:
                dataset_folders.prepare(layout)
    except (PenstockError, OSError):
        return
    shortened = end._replace(why=end.why[:_LONGEST], hint=end.hint[:_LONGEST], given=submitted_arrays.given())
    content = small_files.json_line(dataset_documents.LAST_END.to_json(shortened)).ljust(SIZE)
    with contextlib.suppress(OSError):
        try:
            fd = os.open(layout.ended_room, _OPEN)
        except FileNotFoundError:
            small_files.write_file(layout.ended, content)
            return
        try:
            os.pwrite(fd, content, 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        small_files.rename(layout.ended_room, layout.ended)


def find_end(layout: DatasetLayout) -> LastEnd | None:
    """Return the note; None if it does not exist or cannot be read. For a dataset without a state, the note
    is in the account's own state."""
    if not os.path.lexists(layout.state):
        layout = own_layout(layout)
    try:
        return dataset_documents.LAST_END.from_json(small_files.read(layout.ended, SIZE), layout.ended)
    except (OSError, ValueError, NewerFormatError):
        return None


def note_success(layout: DatasetLayout) -> None:
    """Record that a run ended with exit status 0. The dataset's lock holder calls it. Raises no OSError."""
    with contextlib.suppress(OSError):
        try:
            os.utime(layout.succeeded)
        except FileNotFoundError:
            small_files.create_file(layout.succeeded, b"")


def last_success(layout: DatasetLayout) -> float | None:
    """Return when a run last ended with exit status 0, in seconds since the epoch by the file system's clock;
    None: never. Times ahead of that clock are ignored. For an older state without the file `succeeded`, the
    history decides. Raises OSError if this account may not read the file, NewerFormatError."""
    now = capabilities.now(layout.pins)
    try:
        moments = [os.lstat(layout.succeeded).st_mtime]
    except FileNotFoundError:
        published = (
            line.at for line in release_records.history_lines(layout) if isinstance(line, Publication)
        )
        moments = [nanoseconds(at) / SECOND for at in published]
    return max((min(at, now) for at in moments if 0 < at <= now + capabilities.BOUND), default=None)


def described_end(layout: DatasetLayout, end: LastEnd) -> RunState:
    """Return the state, cause and remedy for a dataset whose last command ended as `end` says."""
    state: RunState = {"exit": end.exit}
    state["at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end.given.at))
    if end.step:
        state["step"] = end.step
    if not end.stopped:
        named = not end.step or end.why.startswith(f"{end.step}: ")
        why = end.why if named else f"{end.step}: {end.why}"
        why = f"{_REASONS[end.exit]}: {why}" if end.exit in _REASONS else why
        return {**state, "state": "failed", "why": why, "to_do": to_do_after(layout, end)}
    state |= {"state": "stopped", "to_do": how_it_goes_on(layout)}
    if end.why.startswith("stopped by "):
        return {**state, "signal": signal_name(end.exit - 128)}
    return {**state, "why": end.why.removeprefix("stopped: ")}


def to_do_after(layout: DatasetLayout, end: LastEnd) -> str:
    """Return advice about the error that ended a step.

    | exit status | the message's hint        | advice                                           |
    |-------------|---------------------------|--------------------------------------------------|
    | 5           | any                       | list the source anew                             |
    | 6           | any                       | make room, then go on                            |
    | any other   | names "the same command"  | the hint, with the command                       |
    | any other   | any other                 | the hint, then go on                             |
    | 2, 3        | none                      | a retry would fail again: change what the error  |
    |             |                           | message names, or the dataset's configuration    |
    | any other   | none                      | go on                                            |
    """
    run, again = f"`penstock run {layout.dataset}`", how_it_goes_on(layout, end.step)
    if end.exit == 5:
        return f"{run} lists the source anew"
    if end.exit == 6:
        return f"make room (`penstock gc {layout.dataset}` removes old releases); then {again}"
    if "the same command" in end.hint:
        return end.hint.replace("the same command", run)
    if end.hint:
        return f"{end.hint}; then {again}"
    if end.exit in (2, 3):
        return f"correct what it names, or `datasets.{layout.dataset}` of the configuration; then {again}"
    return again


def how_it_goes_on(layout: DatasetLayout, step: str = "copy") -> str:
    """Return the command that continues; if plan has not begun, the command that starts from list again."""
    run = f"`penstock run {layout.dataset}`"
    return run if step in ("preflight", "list") else f"{run} goes on where it stopped"
