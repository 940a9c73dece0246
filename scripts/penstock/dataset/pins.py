"""Pins are small files by which readers keep a release from gc (`penstock path --job` places them). This
module also chooses the release that a command reads, and checks that the release is not removed before the
command ends.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import stat
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from penstock.config.settings import LONGEST_PIN
from penstock.core import dataset_documents, run_steps
from penstock.core.dataset_documents import LastPin, LastPins, PinFile
from penstock.core.errors import (
    ConfigError,
    FailedError,
    FindingsError,
    InterruptedRunError,
    PenstockError,
    PreflightError,
)
from penstock.core.human import brief, printable
from penstock.core.layout import DATA
from penstock.dataset import gate, reserve
from penstock.dataset import holder as holders
from penstock.dataset.holder import Holder, this_owner
from penstock.fs import capabilities, small_files
from penstock.fs.owners import user_name
from penstock.fs.safe_open import storage_error
from penstock.host import waits
from penstock.target import dataset_folders, notices

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.dataset.gate import Published
    from penstock.target.notices import Posting


# The path of a pin:
#
#     <dataset>/pins/<uid>-<cluster>-<job>-<restart>-<digest of the release's name>-<nonce>
#
# The folder is sticky, and writable for those who may read the release
# (`notices.make_folder_for_readers`). A pin is created with O_EXCL; the account that pinned is the file's
# owner.
#
# | the pin                                                       | stands                               |
# |---------------------------------------------------------------|--------------------------------------|
# | is older than `GcConfig.longest_pin`                          | no                                   |
# | is of a job that its own cluster says has ended               | no                                   |
# | is of a job that runs, or waits to be started again           | yes                                  |
# | is of another cluster's job, or the scheduler gives no answer | yes                                  |
# | is of a newer format than this version reads                  | yes                                  |
# | is of a process here that has ended                           | no                                   |
# | is of a running process, or one on another machine            | yes                                  |
# | is incomplete (its maker is writing it, or died)              | no: its maker has not done R2 below  |
#
# If a reader pins while a removal begins, at least one of them notices the other:
#
#     the reader                                  the removal, under the dataset's lock
#     R1  writes its pin, durably                 G1  writes a mark for the release, durably
#     R2  looks for a mark, and for the release   G2  waits twice the time T for which a client of this
#                                                     file system may show an older state
#                                                 G3  reads the pins; if one stands, it stops
#                                                 G4  renames the release
#
# A reader that sees a mark, or no release, withdraws its pin and starts again with the release that `current`
# names by then.
#
# Proof: suppose R2, at time r, saw no mark. The state that it saw was true at r - T or later, so G1 > r - T.
# The removal reads the pins at g >= G1 + 2T. It sees the state of g - T >= G1 + T > r, when the pin existed.
# So it sees the pin and does not rename. T is 0 on file systems of one machine (`collection.settling`).
#
# A reader withdraws only its own pin (older pins are the exception, see below). If two processes of a job
# shared a pin, the process that sees a mark would remove the other's pin. A reader whose pin stands removes
# older pins of the same job and release.

TRIES = 5  # attempts of a reader whose release is being removed
NAMED = 20  # most pins of one release that a message lists; the rest are only counted
# At most this many pins of one release are opened for display, since pins of ended jobs pile up until gc.
OPENED = 100
DAY = 86400.0  # seconds
_FOREIGN = re.compile(r"[^A-Za-z0-9._-]")
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class ReleasePin(NamedTuple):
    """A pin file and its content."""

    name: str
    uid: int  # the account that made the pin: the file's owner
    made: float  # time of its last change, in seconds since the epoch by the file system's clock
    said: PinFile
    newer: int = 0  # the format of a newer version's pin: only its release and age are known

    @property
    def release(self) -> str:
        return self.said.release

    def words(self) -> str:
        """Describe the pin: `pin 1000-...: alice, job 17 of cluster x, since 2026-11-23T18:00:00Z`."""
        said = self.said
        if self.newer:
            reader = f"of a newer penstock (format {self.newer})"
        elif said.job:
            reader = f"job {brief(said.job)} of cluster {brief(said.cluster) or 'without a name'}"
        else:
            reader = f"process {said.pid} ({brief(said.program) or '?'}) on {brief(said.host)}"
        who = user_name(self.uid) or f"uid {self.uid}"
        return printable(f"pin {self.name}: {who}, {reader}, since {brief(said.at)}")


class ShownPins(NamedTuple):
    """The pins that keep a release, for people."""

    words: Sequence[str] = ()  # one line per pin
    unopened: int = 0  # number of further pins, not opened: whether they stand is unknown


def read_strictly(layout: DatasetLayout) -> list[ReleasePin]:
    """Return all pins, for a removal. Raises PreflightError if their folder cannot be read."""
    dataset_folders.check_shape(layout)
    try:
        return _pins(notices.postings(layout.pins).posted)
    except OSError as error:
        raise PreflightError(
            "the pins cannot be read",
            where=str(layout.pins),
            why=f"{error.strerror}: nobody knows which releases are read, and nothing was removed",
            hint="give the folder back to the dataset's owner",
        ) from None


def names(layout: DatasetLayout, prefix: str = "") -> list[str]:
    """Return the names of all pins that begin with `prefix`. No pin is opened, since readers may make many.
    Empty if this account may not read the folder. Raises FindingsError if the dataset's folders are damaged.
    """
    dataset_folders.check_shape(layout)
    try:
        return [name for name in notices.posting_names(layout.pins) if name.startswith(prefix)]
    except PermissionError:
        return []


def last(layout: DatasetLayout) -> dict[str, LastPin]:
    """Return who last pinned each existing release, from gc's notes and the names of existing pins. Raises as
    `names`."""
    digests = {_digest(release): release for release in dataset_folders.releases(layout)}
    answer: dict[str, LastPin] = {}
    with contextlib.suppress(OSError, ValueError, PenstockError):
        noted = dataset_documents.LAST_PINS.from_json(small_files.read(layout.last_pins), layout.last_pins)
        answer = {release: pin for release, pin in noted.releases.items() if release in digests.values()}
    for name in names(layout):
        release = digests.get(name.rpartition("-")[0].rpartition("-")[2], "")
        with contextlib.suppress(OSError):
            status = os.lstat(layout.pins / name) if release else None
            if status is None or not stat.S_ISREG(status.st_mode):
                continue
            made = min(status.st_mtime, status.st_ctime)
            if release not in answer or made > answer[release].at:
                answer[release] = LastPin(status.st_uid, made)
    return answer


def note_last(layout: DatasetLayout) -> None:
    """Store the result of `last`, before the dataset's owner removes pins. Raises OSError and the errors of
    `last`."""
    if pinned := last(layout):
        value = dataset_documents.LAST_PINS.to_json(LastPins(pinned))
        notices.write_notice(layout.last_pins, value)


def read(layout: DatasetLayout, of: Sequence[str] | None = None) -> list[ReleasePin]:
    """Return the complete pins with these names (None: all), also those that no longer stand. Empty if this
    account may not read the folder. Raises as `names`."""
    dataset_folders.check_shape(layout)
    try:
        return _pins(notices.postings(layout.pins, of).posted)
    except PermissionError:
        return []


def _pins(posted: Sequence[Posting]) -> list[ReleasePin]:
    pins = []
    for posting in posted:
        with contextlib.suppress(ValueError):
            said, newer = (
                dataset_documents.pin_from_json(posting.value),
                dataset_documents.newer_pins(posting.value),
            )
            pins.append(ReleasePin(posting.name, posting.uid, posting.made, said, newer))
    return pins


def strays(layout: DatasetLayout, pin_names: Container[str], now: float) -> Iterator[str]:
    """Yield names that are not among the `pin_names` and have not changed for a day: leftovers of readers.
    Age is by ctime, which no account can set. Folders are left out."""
    try:
        names = os.listdir(layout.pins)
    except FileNotFoundError:
        return
    for name in sorted(names):
        with contextlib.suppress(FileNotFoundError):
            status = os.lstat(layout.pins / name)
            if name not in pin_names and not stat.S_ISDIR(status.st_mode) and now - status.st_ctime > DAY:
                yield name


def ended(pin: ReleasePin, now: float, longest: float, scheduler: Callable[[str, str], bool | None]) -> str:
    """Say in words why the pin no longer keeps its release, according to the module's table; "" while it
    stands. `now`: seconds since the epoch by the file system's clock. `longest`: in seconds. `scheduler(job,
    cluster)` says whether the job has ended (None: unknown)."""
    said = pin.said
    if now - pin.made > longest:
        return f"it is older than {longest / DAY:.0f} days"
    if pin.newer:
        return ""
    if said.job:
        return f"job {brief(said.job)} has ended" if scheduler(said.job, said.cluster) is True else ""
    # A process on another machine counts as running.
    return f"process {said.pid} has ended" if holders.lives(_holder(pin)) is False else ""


def held(
    layout: DatasetLayout,
    longest: float,
    scheduler: Callable[[str, str], bool | None],
    of: Sequence[str] | None = None,
) -> dict[str, list[ReleasePin]]:
    """Return the standing pins with these names (None: all), by release, as of the file system's clock."""
    return standing(read(layout, of), capabilities.now(layout.pins), longest, scheduler)


def standing(
    pins: Iterable[ReleasePin], now: float, longest: float, scheduler: Callable[[str, str], bool | None]
) -> dict[str, list[ReleasePin]]:
    """Return the pins that stand at `now`, by release."""
    by_release: dict[str, list[ReleasePin]] = {}
    for pin in pins:
        if not ended(pin, now, longest, scheduler):
            by_release.setdefault(pin.release, []).append(pin)
    return by_release


def words(pins: Sequence[ReleasePin]) -> list[str]:
    """Describe the first NAMED pins, and count the others in a last line."""
    more = len(pins) - NAMED
    return [*(pin.words() for pin in pins[:NAMED]), *([f"and {more:,} more pins"] if more > 0 else [])]


def shown(
    layout: DatasetLayout,
    longest: float,
    scheduler: Callable[[str, str], bool | None],
) -> dict[str, ShownPins]:
    """Return the standing pins by release, for people. Raises as `names`. At most OPENED pins of a release
    are opened; the others are counted. The key "" has the pins whose release does not exist."""
    groups: dict[str, list[str]] = {}
    digests = {_digest(release): release for release in dataset_folders.releases(layout)}
    for name in names(layout):
        groups.setdefault(digests.get(name.rpartition("-")[0].rpartition("-")[2], ""), []).append(name)
    opened = [name for group in groups.values() for name in group[:OPENED]]
    by_release = held(layout, longest, scheduler, opened)
    unopened = {release: max(0, len(group) - OPENED) for release, group in groups.items()}
    return {
        release: ShownPins([pin.words() for pin in by_release.get(release, [])], unopened.get(release, 0))
        for release in by_release.keys() | {release for release, count in unopened.items() if count}
    }


def of_others(
    layout: DatasetLayout,
    longest: float,
    scheduler: Callable[[str, str], bool | None],
) -> dict[str, list[ReleasePin]]:
    """Return the standing pins by release, without this reader's own pins. The reader is this job, or the
    script or shell above this process."""
    own = _safe(this_owner().key)
    by_release: dict[str, list[ReleasePin]] = {}
    for release, pins in held(layout, longest, scheduler).items():
        for pin in pins:
            if not (pin.uid == os.geteuid() and pin.name.startswith(own)):
                by_release.setdefault(release, []).append(pin)
    return by_release


def holding(longest: float = LONGEST_PIN) -> Callable[[DatasetLayout], Mapping[str, ShownPins]]:
    """Return a variant of `shown` that asks no scheduler; tables of releases use it. A job's pin is shown
    until it is older than `longest` seconds, or gc removes it."""
    return lambda layout: shown(layout, longest, lambda *_: None)


def pinned(layout: DatasetLayout, look: Callable[[], Published]) -> tuple[Published, ReleasePin]:
    """Pin the release that `look` returns, for this job or the script or shell above this process. Raises
    the errors of `look`; PreflightError if this account cannot pin; FindingsError if every release that was
    tried is being removed."""
    for number in range(TRIES):
        published = look()
        pin = _place(layout, published.release)
        if not is_going(layout, published.release):
            _replace_older(layout, pin)
            return published, pin
        notices.withdraw(layout.pins, pin.name)
        waits.pause(number / 10)
    raise FindingsError(
        "the release is being removed",
        where=str(layout.release(published.release)),
        hint=f"`penstock releases {layout.dataset}` names those that stay",
    )


def of_reader(
    layout: DatasetLayout,
    look: Callable[[str | None], Published],
) -> tuple[Published, ReleasePin]:
    """Pin and return the release that this reader got first, or the release of `look(None)` if it has none.
    The reader is the job, across restarts. Outside a proven job, it is the script or shell above this
    process. Concurrent calls get the same release. Raises as `pinned` and `look`."""
    reader = this_owner().holder
    while True:
        earliest = first(layout)
        if earliest is None:
            published, pin = pinned(layout, partial(look, None))
        elif _start(earliest.said) == _start(reader) and not is_going(layout, earliest.release):
            return look(earliest.release), earliest
        else:
            # The oldest pin is from an earlier start of the job, or its release is being removed. The pin may
            # lapse before the job ends, so this start places its own.
            published, pin = pinned(layout, partial(look, earliest.release))
        earliest = first(layout)
        if earliest is None or earliest.release == published.release:
            return published, pin
        notices.withdraw(layout.pins, pin.name)


def first(layout: DatasetLayout) -> ReleasePin | None:
    """Return this reader's oldest pin."""
    reader = _reader(this_owner().holder)
    mine = [
        pin
        for pin in read(layout, names(layout, f"{os.geteuid()}-"))
        if pin.uid == os.geteuid() and _reader(pin.said) == reader
    ]
    return min(mine, key=lambda pin: (pin.made, pin.name), default=None)


def _reader(who: PinFile | Holder) -> tuple[object, ...]:
    """Return the identity shared by all pins of a job, across restarts, or of a process."""
    if who.job:
        return who.cluster, who.job
    return who.host, who.boot, who.namespace, who.pid, who.start


def _start(who: PinFile | Holder) -> str:
    return who.restart if who.job else ""


def is_going(layout: DatasetLayout, release: str) -> bool:
    """Check whether the release is marked for removal, or gone."""
    return os.path.lexists(layout.removing(release)) or not layout.release(release).is_dir()


def make_folder(context: Context, layout: DatasetLayout, release: str) -> None:
    """Make the folder of pins, or update its permissions, for this release's readers. Failure only warns."""
    try:
        notices.make_folder_for_readers(layout.pins, layout.release(release) / DATA)
    except (OSError, FailedError) as error:
        text = f"readers cannot pin releases: the folder {layout.pins} cannot be made: {error}"
        context.emit(run_steps.Warned(layout.dataset, "pins", text))


def _place(layout: DatasetLayout, release: str) -> ReleasePin:
    owner = this_owner()
    holder = owner.holder
    said = PinFile(
        release, _text(datetime.now(UTC).timestamp()), holder.user, holder.host, holder.boot,
        holder.namespace, holder.pid, holder.start, owner.program, holder.job, holder.cluster,
        holder.restart if holder.job else "",
    )  # fmt: skip
    name = f"{_safe(owner.key)}-{_digest(release)}-{secrets.token_hex(4)}"
    try:
        if not os.path.lexists(layout.pins) and dataset_folders.owns(layout):
            notices.make_folder_for_readers(layout.pins, layout.release(release) / DATA)
        while True:
            try:
                if not notices.post(layout.pins, name, dataset_documents.PIN.to_json(said)):
                    raise FileExistsError(errno.EEXIST, "its name is taken", str(layout.pins))
                break
            except OSError as error:
                if not reserve.is_full(error) or not reserve.give(layout.dataset_reserve, 1):
                    raise
    except FileNotFoundError:
        raise PreflightError(
            "this dataset takes no pins yet",
            where=str(layout.pins),
            why="the folder of pins is not there",
            hint="the next publish or rollback of its owner makes the folder",
        ) from None
    except OSError as error:
        if reserve.is_full(error):
            raise storage_error(error, "there is no room for a pin", str(layout.pins)) from None
        raise PreflightError(
            "this account cannot pin a release",
            where=str(layout.pins),
            why=str(error.strerror or error),
            hint="the folder takes pins of those who may read the release: where its group changed since, "
            "the owner's next publish or rollback corrects it; on a mount that is read-only nobody can pin",
        ) from None
    return ReleasePin(name, os.geteuid(), datetime.now(UTC).timestamp(), said)


def _digest(release: str) -> str:
    return hashlib.sha256(release.encode("utf-8", "surrogateescape")).hexdigest()[:8]


def _replace_older(layout: DatasetLayout, pin: ReleasePin) -> None:
    """Withdraw older pins of the same job (or process) and release. If several processes call it at once, the
    newest pin remains."""
    same = pin.name.rpartition("-")[0] + "-"
    mine = [candidate for candidate in read(layout, names(layout, same)) if candidate.uid == os.geteuid()]
    own = next(((candidate.made, candidate.name) for candidate in mine if candidate.name == pin.name), None)
    for candidate in mine:
        if own is not None and (candidate.made, candidate.name) < own:
            with contextlib.suppress(OSError):
                notices.withdraw(layout.pins, candidate.name)


def _safe(key: str) -> str:
    return _FOREIGN.sub("_", key)[:180]


def _holder(pin: ReleasePin) -> Holder:
    said = pin.said
    return Holder(
        run="", command="gate", user=said.user, host=said.host, boot=said.boot, namespace=said.namespace,
        pid=said.pid, start=said.start, job=said.job, restart=said.restart, nonce="", since=said.at,
        cluster=said.cluster,
    )  # fmt: skip


def _text(seconds: float) -> str:
    return (datetime.fromtimestamp(0, UTC) + timedelta(seconds=seconds)).strftime(_TIME)


def choose_release(context: Context, layout: DatasetLayout, name: str | None, doing: str) -> str:
    """Return the named release, or the current one. `doing` is the command's verb, for the message. Raises
    ConfigError for an unknown name, PreflightError if nothing is published, FindingsError if the dataset's
    folders are damaged or `current` names no release."""
    dataset_folders.check_shape(layout)
    release, releases = name or dataset_folders.current(layout), dataset_folders.releases(layout)
    if release is not None and release in releases:
        return release
    stages = f"`{context.program} run {layout.dataset}` stages a release"
    hint = f"there are: {', '.join(releases)}" if releases else stages
    if release is None:
        raise PreflightError("nothing is published yet", where=layout.dataset, hint=hint)
    if name is None:
        raise FindingsError(
            gate.named_by_current(release),
            where=str(layout.current),
            hint=f"`{context.program} rollback {layout.dataset} RELEASE` makes another one current; {hint}",
        )
    raise ConfigError(f"there is no such release to {doing}", where=f"{layout.dataset}/{release}", hint=hint)


@contextlib.contextmanager
def release_standing(layout: DatasetLayout, release: str, doing: str) -> Iterator[None]:
    """Guard a release while a command reads it. Enter it only after the command's lock names the release.
    Entering detects a removal that marked the release earlier; a later removal sees the lock (by the proof at
    the top of this module, with the lock in place of the pin). Raises PreflightError if the release is marked
    or gone, FailedError if it was removed meanwhile."""
    if is_going(layout, release):
        raise PreflightError(
            f"the release is being removed: there is nothing to {doing}",
            where=str(layout.release(release)),
            hint=f"`penstock releases {layout.dataset}` names those that stay; where a removal was killed, "
            f"`penstock gc {layout.dataset}` brings it to its end",
        )
    try:
        yield
    except InterruptedRunError:
        raise
    except (PenstockError, OSError) as error:
        check_release_stands(layout, release, doing)
        raise error from None


def check_release_stands(layout: DatasetLayout, release: str, doing: str) -> None:
    """Raise FailedError if the release is gone, since the data read from it then prove nothing."""
    if not layout.release(release).is_dir():
        raise FailedError(
            f"the release was removed while this command was to {doing} it",
            where=str(layout.release(release)),
            why="what was seen of it says nothing, and was not noted",
            hint=f"`penstock history {layout.dataset}` says who removed it; pin a release that is to stay",
        )
