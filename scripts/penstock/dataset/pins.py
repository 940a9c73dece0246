"""Pins: small files by which readers say that they read a release, so that gc does not remove it.

A job, or a script or shell, places one by `penstock path --job`; gc and remove read them, and views of
releases show them. Touches the folder of pins; a reader also gives up a file of the dataset's reserve on a
full target.

    <dataset>/pins/<uid>-<cluster>-<job>-<restart>-<digest of the release's name>-<nonce>

The folder is sticky, and those may write in it who may read the release
(`cross_account_files.make_folder_for_readers`).
A pin is made by O_EXCL, and its account is the one that the kernel names. How long it stands:

| the pin                                                       | stands                               |
|---------------------------------------------------------------|--------------------------------------|
| is older than `GcConfig.longest_pin`                          | no                                   |
| is of a job that its own cluster says has ended               | no                                   |
| is of a job that runs, or waits to be started again           | yes                                  |
| is of a job of another cluster, or the scheduler is silent    | yes                                  |
| is of a newer format than this version reads                  | yes                                  |
| is of a process here that has ended                           | no                                   |
| is of a process that lives, or on another machine             | yes                                  |
| is not whole (its maker is writing it, or died)               | no: its maker looks again, see below |

A reader that pins and a removal that begins at the same time: one of both sees the other, always.

    the reader                                       the removal, under the dataset's lock
    R1  writes its pin, durably                      G1  writes a mark for the release, durably
    R2  looks for a mark, and for the release        G2  waits for twice the time T for which a client
                                                         of this file system may show what was before
                                                     G3  reads the pins; where one stands: no removal
                                                     G4  renames the release

A reader that sees a mark, or no release, takes its pin back and begins again with what `current` names by
then. Say that a reader's R2, at time r, saw no mark. What it saw was true at r - T or later, so the mark came
after r - T: G1 > r - T. The removal's look at the pins, at a time g of at least G1 + 2T, shows what was true
at g - T >= G1 + T > r, when the pin was there. So it sees the pin, and does not rename. T is 0 on file
systems of one machine (`collection.settling`).

So each reader's pin is its own, and none but its maker takes it back: two processes of a job that pin at once
must not share one, since the one that sees a mark would take the other's away. A reader whose pin stands
removes older ones of the same job and release, which hold nothing more than it does.
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
from penstock.core import events
from penstock.core.documents import pin_file
from penstock.core.documents.pin_file import LastPin, LastPins, PinFile
from penstock.core.errors import FailedError, FindingsError, PenstockError, PreflightError
from penstock.core.layout import DATA
from penstock.core.text import brief, printable
from penstock.dataset import holder as holders
from penstock.dataset import reserve
from penstock.dataset.holder import Holder
from penstock.dataset.pin_owner import this_owner
from penstock.fs import clock, plain_files
from penstock.fs.errno_map import storage_error
from penstock.fs.owners import user_name
from penstock.host import waits
from penstock.target import cross_account_files, dataset_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.dataset.gate import Published
    from penstock.target.cross_account_files import Posting

TRIES = 5
"""How often a reader begins again, where the release that it pins is being removed."""
NAMED = 20
"""Pins of a release that are named to people; the others are counted."""
OPENED = 100
"""Pins of a release that are opened to name those that stand: those of jobs that ended stay until gc."""
DAY = 86400.0
"""Seconds."""
_FOREIGN = re.compile(r"[^A-Za-z0-9._-]")
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class ReleasePin(NamedTuple):
    """One pin, as it lies there."""

    name: str
    uid: int
    """Who made it, by the kernel's word."""
    made: float
    """Its last change, in seconds since the epoch, by the file system's clock."""
    said: PinFile
    newer: int = 0
    """Its format, where a newer version placed it: only its release and its age are known."""

    @property
    def release(self) -> str:
        return self.said.release

    def words(self) -> str:
        """`pin 1000-...: alice, job 17 of cluster x, since 2026-11-23T18:00:00Z`."""
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
    """Who holds a release."""

    words: Sequence[str] = ()
    """One line each."""
    unopened: int = 0
    """Further pins, by their names: whether they stand is not known."""


def read_strictly(layout: DatasetLayout) -> list[ReleasePin]:
    """All pins, as `read` has them, for a removal. Raises PreflightError where the folder of pins is there
    and cannot be looked into: a removal must not take that for an answer."""
    dataset_folders.check_shape(layout)
    try:
        return _pins(cross_account_files.postings(layout.pins).posted)
    except OSError as error:
        raise PreflightError(
            "the pins cannot be read",
            where=str(layout.pins),
            why=f"{error.strerror}: nobody knows which releases are read, and nothing was removed",
            hint="give the folder back to the dataset's owner",
        ) from None


def names(layout: DatasetLayout, prefix: str = "") -> list[str]:
    """The names of all pins that begin with `prefix`, none of them opened: any reader may make as many as
    there is room for. None where there is no folder, or this account may not look. Raises FindingsError where
    the dataset's folders are damaged."""
    dataset_folders.check_shape(layout)
    try:
        return [name for name in cross_account_files.posting_names(layout.pins) if name.startswith(prefix)]
    except PermissionError:
        return []


def last(layout: DatasetLayout) -> dict[str, LastPin]:
    """Who pinned each release last that is there and was ever pinned: by what gc noted, and by the pins that
    lie there, of which none is opened. Raises as `names`."""
    digests = {_digest(release): release for release in dataset_folders.releases(layout)}
    answer: dict[str, LastPin] = {}
    with contextlib.suppress(OSError, ValueError, PenstockError):
        noted = pin_file.LAST_PINS.from_json(plain_files.read(layout.last_pins), layout.last_pins)
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
    """Note what `last` says before pins are removed. By the dataset's owner. Raises OSError, and as it."""
    if pinned := last(layout):
        value = pin_file.LAST_PINS.to_json(LastPins(pinned))
        cross_account_files.write_notice(layout.last_pins, value)


def read(layout: DatasetLayout, of: Sequence[str] | None = None) -> list[ReleasePin]:
    """The pins `of` these names that are whole, None: all, by name; also those that stand no more. None where
    there is no folder, or this account may not look. Raises as `names`."""
    dataset_folders.check_shape(layout)
    try:
        return _pins(cross_account_files.postings(layout.pins, of).posted)
    except PermissionError:
        return []


def _pins(posted: Sequence[Posting]) -> list[ReleasePin]:
    pins = []
    for posting in posted:
        with contextlib.suppress(ValueError):
            said, newer = pin_file.from_json(posting.value), pin_file.newer(posting.value)
            pins.append(ReleasePin(posting.name, posting.uid, posting.made, said, newer))
    return pins


def strays(layout: DatasetLayout, known: Container[str], now: float) -> Iterator[str]:
    """Names in the folder of pins that are none of these `known` ones, and have not changed for a day: what
    readers left there that is no pin, or broke off. By the inode's own time, which no account can set.
    Folders are not among them."""
    try:
        names = os.listdir(layout.pins)
    except FileNotFoundError:
        return
    for name in sorted(names):
        with contextlib.suppress(FileNotFoundError):
            seen = os.lstat(layout.pins / name)
            if name not in known and not stat.S_ISDIR(seen.st_mode) and now - seen.st_ctime > DAY:
                yield name


def ended(pin: ReleasePin, now: float, longest: float, scheduler: Callable[[str, str], bool | None]) -> str:
    """Why the pin stands no more (keeps its release no longer), in words; "" while it stands: by the table
    above. `now` is in seconds since the epoch, by the file system's clock; `longest` in seconds.
    `scheduler(job, cluster)` says whether the job has ended, None where it cannot."""
    said = pin.said
    if now - pin.made > longest:
        return f"it is older than {longest / DAY:.0f} days"
    if pin.newer:
        return ""
    if said.job:
        return f"job {brief(said.job)} has ended" if scheduler(said.job, said.cluster) is True else ""
    # A process is looked up here alone; elsewhere it counts as alive.
    return f"process {said.pid} has ended" if holders.lives(_holder(pin)) is False else ""


def held(
    layout: DatasetLayout,
    longest: float,
    scheduler: Callable[[str, str], bool | None],
    of: Sequence[str] | None = None,
) -> dict[str, list[ReleasePin]]:
    """The pins `of` these names, None: all, that stand, by release: by the file system's clock, as the times
    of pins are."""
    return standing(read(layout, of), clock.now(layout.pins), longest, scheduler)


def standing(
    pins: Iterable[ReleasePin], now: float, longest: float, scheduler: Callable[[str, str], bool | None]
) -> dict[str, list[ReleasePin]]:
    """Those that stand at `now`, by release."""
    by_release: dict[str, list[ReleasePin]] = {}
    for pin in pins:
        if not ended(pin, now, longest, scheduler):
            by_release.setdefault(pin.release, []).append(pin)
    return by_release


def words(pins: Sequence[ReleasePin]) -> list[str]:
    """NAMED of them in words, and a line that counts the others."""
    more = len(pins) - NAMED
    return [*(pin.words() for pin in pins[:NAMED]), *([f"and {more:,} more pins"] if more > 0 else [])]


def shown(
    layout: DatasetLayout,
    longest: float,
    scheduler: Callable[[str, str], bool | None],
) -> dict[str, ShownPins]:
    """The pins that stand, by release, for people. Of each release OPENED at most are opened, and the others
    counted by their names; under "" those whose names are of no release that is there. Raises as `names`."""
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
    """The pins that stand, by release, without those of this job, or of the script or shell above this
    process. A release that has no other is not in it."""
    own = _safe(this_owner().key)
    by_release: dict[str, list[ReleasePin]] = {}
    for release, pins in held(layout, longest, scheduler).items():
        for pin in pins:
            if not (pin.uid == os.geteuid() and pin.name.startswith(own)):
                by_release.setdefault(release, []).append(pin)
    return by_release


def holding(longest: float = LONGEST_PIN) -> Callable[[DatasetLayout], Mapping[str, ShownPins]]:
    """A function that gives, for a dataset, what `shown` does, for tables of releases. It asks no scheduler:
    a job's pin is shown until it is older than `longest` seconds, or gc removes it."""
    return lambda layout: shown(layout, longest, lambda *_: None)


def pinned(layout: DatasetLayout, look: Callable[[], Published]) -> tuple[Published, ReleasePin]:
    """What `look` names, pinned: for this job, or the script or shell above this process; raises what
    `look` raises, PreflightError where this account cannot pin, FindingsError where each release that `look`
    names is being removed."""
    for number in range(TRIES):
        published = look()
        pin = _place(layout, published.release)
        if not is_going(layout, published.release):
            _replace_older(layout, pin)
            return published, pin
        cross_account_files.withdraw(layout.pins, pin.name)
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
    """The release that this reader was given first, as `look` has it; where it was given none, that of
    `look(None)`. It is pinned. The reader is the job, also where it was started again since; outside of a job
    that the kernel proves, the script or shell above this process. Of several processes that ask at once all
    get the same. Raises as `pinned` and `look`."""
    reader = this_owner().holder
    while True:
        given = first(layout)
        if given is None:
            published, pin = pinned(layout, partial(look, None))
        elif _start(given.said) == _start(reader) and not is_going(layout, given.release):
            return look(given.release), given
        else:
            # A pin of each start, so that the oldest one need not last as long as the job.
            published, pin = pinned(layout, partial(look, given.release))
        given = first(layout)
        if given is None or given.release == published.release:
            return published, pin
        cross_account_files.withdraw(layout.pins, pin.name)


def first(layout: DatasetLayout) -> ReleasePin | None:
    """The oldest pin of this reader; None where it has none."""
    reader = _reader(this_owner().holder)
    mine = [
        pin
        for pin in read(layout, names(layout, f"{os.geteuid()}-"))
        if pin.uid == os.geteuid() and _reader(pin.said) == reader
    ]
    return min(mine, key=lambda pin: (pin.made, pin.name), default=None)


def _reader(who: PinFile | Holder) -> tuple[object, ...]:
    """What is the same for all pins of a job, in whichever start, or of a process."""
    if who.job:
        return who.cluster, who.job
    return who.host, who.boot, who.namespace, who.pid, who.start


def _start(who: PinFile | Holder) -> str:
    return who.restart if who.job else ""


def is_going(layout: DatasetLayout, release: str) -> bool:
    """Whether the release is marked for its removal, or gone."""
    return os.path.lexists(layout.removing(release)) or not layout.release(release).is_dir()


def make_folder(context: Context, layout: DatasetLayout, release: str) -> None:
    """Make the folder of pins, for those who may read this release, or give it to them. By the dataset's
    owner. Where that cannot be, a warning says so: nothing else depends on it."""
    try:
        cross_account_files.make_folder_for_readers(layout.pins, layout.release(release) / DATA)
    except (OSError, FailedError) as error:
        text = f"readers cannot pin releases: the folder {layout.pins} cannot be made: {error}"
        context.emit(events.Warned(layout.dataset, "pins", text))


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
            cross_account_files.make_folder_for_readers(layout.pins, layout.release(release) / DATA)
        while True:
            try:
                if not cross_account_files.post(layout.pins, name, pin_file.PIN.to_json(said)):
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
    """Take back older pins of the same job (or process) and release. Of several that do it at once, the
    newest stays."""
    same = pin.name.rpartition("-")[0] + "-"
    mine = [one for one in read(layout, names(layout, same)) if one.uid == os.geteuid()]
    own = next(((one.made, one.name) for one in mine if one.name == pin.name), None)
    for candidate in mine:
        if own is not None and (candidate.made, candidate.name) < own:
            with contextlib.suppress(OSError):
                cross_account_files.withdraw(layout.pins, candidate.name)


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
