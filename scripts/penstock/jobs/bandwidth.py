"""The cap on a network link. An administrator sets, in a file, the rate at which all elements (processes of
job arrays) together may read. This module has that file, its folder, and the share of one process or of a
run's controller.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import secrets
import stat
import threading
from typing import TYPE_CHECKING, NamedTuple

from penstock.config import quantities
from penstock.core.errors import PreflightError
from penstock.core.human import in_quotes, printable
from penstock.dataset import holder as processes
from penstock.fs import small_files
from penstock.host.pacing import Allowance, clock
from penstock.jobs import share_rule
from penstock.jobs.share_rule import PARTS, Post, run_digits
from penstock.jobs.shares import Hold, HolderShare, Share, look, sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.config.settings import BandwidthConfig
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context


# The file in which an administrator sets the cap on a network link, for all elements of all runs.
#
# The file is read while elements run. Its owner and mode decide whether it is trusted.
#
# ```
# limit: 40Gbit/s
# requests: 2000
# ```
#
# `limit` is a rate, or `none`. `requests`, which may be left out, is a number a second, or `none`. Lines that
# begin with `#` are comments.

NAME = "cap"
LONGEST = 4096  # bytes of the file that are read
_WIDTH = 128  # fewest bytes that `write` leaves in the file, in one write that no reader sees half done
_MODE = 0o644
ANEW = "its owner writes it anew: penstock limit RATE"
_COUNT = re.compile("[1-9][0-9]{0,8}", re.ASCII)
OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Cap(NamedTuple):
    """The limits for all elements together. A field is None if it has no limit."""

    rate: int | None = None  # bytes a second
    requests: int | None = None  # requests a second

    @classmethod
    def configured(cls, link: BandwidthConfig) -> Cap:
        return cls(link.rate, link.requests)

    def lower(self, other: Cap) -> Cap:
        pairs = zip(self, other, strict=True)
        return Cap(*(min((n for n in pair if n is not None), default=None) for pair in pairs))


def parse(content: bytes) -> Cap:
    """Return the cap from a file's content. Raises ValueError with a phrase that states what is accepted."""
    limits: dict[str, int | None] = {}
    for line in content.decode("ascii", "replace").splitlines():
        if not (text := line.strip()) or text.startswith("#"):
            continue
        key, colon, value = (side.strip() for side in text.partition(":"))
        if not colon or key not in ("limit", "requests") or key in limits:
            raise ValueError(f"{in_quotes(text)} is not `limit: RATE` or `requests: NUMBER`")
        if value == "none":
            limits[key] = None
        elif key == "limit":
            try:
                limits[key] = quantities.read_rate(value)
            except ValueError as error:
                raise ValueError(f"limit: {in_quotes(value)} {error}") from None
        elif _COUNT.fullmatch(value):
            limits[key] = int(value)
        else:
            raise ValueError(f"requests: {in_quotes(value)} must be a number a second, or none")
    if "limit" not in limits:
        raise ValueError("it has no line `limit: RATE`")
    return Cap(limits["limit"], limits.get("requests"))


def render(limit: str, requests: int | None) -> bytes:
    """Return the content for a limit as people write it (40Gbit/s, none) and requests a second."""
    text = f"# penstock limit RATE writes this file\nlimit: {limit}\n"
    text += f"requests: {requests}\n" if requests is not None else ""
    return text.encode().ljust(_WIDTH - 1) + b"\n"


def judged(path: Path, status: os.stat_result, owner: int) -> tuple[str, str]:
    """Return what is wrong with a cap file, and what its owner can do; "" and "" if it may be trusted.

    `status` is that of the file itself, not of a link's target. `owner` is the uid of its folder's owner.

    | the file is                                        | then    |
    |----------------------------------------------------|---------|
    | no plain file, or has a second name                | stop    |
    | of an account that is neither root nor the folder's| stop    |
    | writable by its group or others                    | stop    |
    | anything else                                      | nothing |
    """
    where = printable(str(path))
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        return f"{where} is no plain file of one name", f"remove it; {ANEW}"
    if status.st_uid not in (0, owner):
        fault = f"{where} belongs to uid {status.st_uid}; the folder's owner is uid {owner}"
        return fault, f"chown {owner} {where}, as root"
    if status.st_mode & OTHERS:
        fault = f"{where} has mode {stat.S_IMODE(status.st_mode):04o}: others than its owner may write it"
        return fault, f"chmod {_MODE:o} {where}, as its owner"
    return "", ""


class CapFile:
    """The cap of a folder, updated as it changes. One thread calls `look`; any thread may read attributes."""

    def __init__(self, folder: Path) -> None:
        """Read only the folder's owner. Raises OSError."""
        self._path, self._owner = folder / NAME, folder.stat().st_uid
        self._there = False  # whether a file was ever trusted
        self.wrong = self.mend = ""  # why the last content was not trusted, and what helps
        self.cap = Cap()  # the last trusted cap; no limits if there never was a file
        self.known = False  # whether `cap` counts: a file was trusted, or found to be absent

    def look(self) -> None:
        """Read the file again. The cap does not change if the content is not trusted, such as that of a
        half-written file. Raises OSError if the folder cannot be read."""
        where, wrong, mend = printable(str(self._path)), "", ANEW
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            self.known = True
            wrong = f"{where} is gone: what it said last still holds" if self._there else ""
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            wrong = f"{where} is a symbolic link, whose target others may choose"
        else:
            try:
                wrong, mend = judged(self._path, os.fstat(fd), self._owner)
                if not wrong:
                    self.cap, self.known, self._there = parse(os.read(fd, LONGEST)), True, True
            except ValueError as error:
                wrong, mend = f"{where}: {error}", ANEW
            finally:
                os.close(fd)
        self.wrong, self.mend = wrong, mend if wrong else ""


def write(folder: Path, content: bytes) -> None:
    """Set the cap to `content` (`render`), durably, in the existing file: a new file might be unknown to a
    node for a while. Replaces a file that would not be trusted (`judged`). Raises OSError."""
    path = folder / NAME
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP, errno.EACCES):
            raise
        small_files.write_file(path, content, mode=_MODE)
        return
    try:
        status = os.fstat(fd)
        if judged(path, status, folder.stat().st_uid)[0]:
            small_files.write_file(path, content, mode=_MODE)
            return
        # One write covers the whole old content; a rest beyond the new content is cut off afterwards.
        os.pwrite(fd, content[:-1].ljust(status.st_size - 1) + b"\n", 0)
        with contextlib.suppress(OSError):
            os.ftruncate(fd, len(content))
        os.fsync(fd)
    finally:
        os.close(fd)


# The folder of the cap on a network link, and the cap that applies now.
#
# | in `bandwidth.folder` | content                                  | written by                            |
# |-----------------------|------------------------------------------|---------------------------------------|
# | `cap`                 | the cap that applies now (`CapFile`)     | the folder's owner, the administrator |
# | `holders/`            | holders and their shares (`share_rule`)  | every account that stages; sticky     |
# | `slots/`              | holders of penstock before 1.0           | nobody any more                       |

HOLDERS = "holders"
_OLDER = "slots"
_STICKY = 0o1777


def unusable(path: Path, why: OSError | str) -> PreflightError:
    where = why.filename if isinstance(why, OSError) and isinstance(why.filename, str) else str(path)
    return PreflightError(
        "the bandwidth folder cannot be used",
        where=printable(where),
        why=why if isinstance(why, str) else why.strerror or str(why),
        hint="the link's administrator makes it by `penstock limit RATE`, in a folder that is there; each "
        "account that stages must be able to list and write its folder `holders`, on each node",
    )


def looked_at(folder: Path) -> Path:
    """Return the path of `holders` in a usable folder, even if `holders` must still be made. Changes nothing.
    Raises PreflightError with advice, also if an older penstock copies over the link."""
    holders = folder / HOLDERS
    try:
        above = folder.stat()
        if above.st_mode & OTHERS and not above.st_mode & stat.S_ISVTX:
            raise PreflightError(
                "the bandwidth folder is not safe",
                where=printable(str(folder)),
                why=f"mode {stat.S_IMODE(above.st_mode):04o}: others than its owner may replace the cap file",
                hint=f"chmod 755 {printable(str(folder))}, as its owner",
            )
        share_rule.refuse_older(folder / _OLDER, PreflightError)
        if os.path.lexists(holders):
            os.listdir(holders)
        elif not os.access(folder, os.W_OK | os.X_OK):
            raise unusable(folder, "it has no folder `holders` yet")
        if os.path.lexists(holders) and not os.access(holders, os.R_OK | os.W_OK | os.X_OK):
            raise unusable(holders, "this account may not write there")
    except OSError as error:
        raise unusable(folder, error) from None
    return holders


def prepared(folder: Path) -> Path:
    """Make `holders`, in which any account may make files; return its path as `looked_at` does."""
    holders = looked_at(folder)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(holders, 0o700)
            os.chmod(holders, _STICKY)
    except OSError as error:
        raise unusable(holders, error) from None
    return holders


@contextlib.contextmanager
def marked(folder: Path) -> Iterator[str]:
    """Yield the name of a new file in `holders`, or "" if none could be made. It is removed after the
    context. The file shows whether a node sees this folder, or another folder at the same path."""
    # The file is a beat without a holder, which `sweep` removes if this process is killed.
    name = f"begin.{secrets.token_hex(8)}.{secrets.token_hex(4)}.0"
    path = folder / HOLDERS / name
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
    except OSError:
        yield ""
        return
    try:
        yield name
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def has_mark(folder: Path, mark: str) -> bool:
    return os.path.lexists(folder / HOLDERS / mark)


def swept(folder: Path) -> None:
    """Remove the files of this account's ended processes, also those of older versions. Raises nothing."""
    sweep(folder / HOLDERS)
    share_rule.remove_dead_older(folder / _OLDER)


class Overview(NamedTuple):
    """One look at the folder, as old as the file system's listings may be."""

    said: Cap  # the cap in the cap file
    wrong: str  # why the cap file is not trusted; "" if it is trusted, or absent
    mend: str  # what the file's owner can do about that
    held: list[HolderShare]  # the shares, the largest first


def overview(folder: Path) -> Overview:
    """Look at the folder, changing only its time. Raises PreflightError if it cannot be read."""
    try:
        file = _read(folder)
        return Overview(file.cap, file.wrong, file.mend, look(folder / HOLDERS))
    except OSError as error:
        raise unusable(folder, error) from None


def _read(folder: Path) -> CapFile:
    file = CapFile(folder)
    file.look()
    return file


def cap_now(link: BandwidthConfig) -> Cap:
    """Return the lower of the configured cap and the cap file's, if readable. For estimates."""
    said = Cap()
    if link.folder is not None:
        with contextlib.suppress(OSError):
            said = _read(link.folder).cap
    return Cap.configured(link).lower(said)


def set_cap(folder: Path, rate: str) -> None:
    """Write the cap file; make the folder and its `holders` if missing.

    `rate` is a rate as people write it, or `none`. The file's requests stay. Raises PreflightError if this
    account is neither root nor the folder's owner, if the folder is unusable, or if the written file would
    not be trusted.
    """
    try:
        if not folder.is_dir():
            # Never make the parents: if their file system is not mounted, they would be on another one.
            folder.parent.stat()
            small_files.make_dirs(folder, 0o755)
        owner = folder.stat().st_uid
        if os.geteuid() not in (0, owner):
            raise PreflightError(
                "this account may not set the bandwidth cap",
                where=printable(str(folder)),
                why=f"it is uid {os.geteuid()}, and the folder belongs to uid {owner}",
                hint="ask the administrator of the link; `engine.limit` bounds each of your own elements",
            )
        prepared(folder)
        write(folder, render(rate, _read(folder).cap.requests))
        wrong, mend = judged(folder / NAME, (folder / NAME).lstat(), owner)
        if wrong:
            raise PreflightError("the cap file does not count", why=wrong, hint=mend)
    except OSError as error:
        raise unusable(folder, error) from None


# Shares of a network link: a run's share, held by its controller, and a copying process's own share.
#
# The share's thread reads the cap file and passes each allowance, with its end, to the engine's workers. The
# workers thus obey it even while a file system blocks the engine's main thread (`host.pacing.Allowances`).

TOLD = 30.0  # seconds without a share after which the element's log reports it


def link_hold(context: Context, layout: DatasetLayout, step: str, run: str) -> Hold:
    """Return the holder, on the configured link, for this step's reading. List, plan and copy of a run have
    the same holder. Raises PreflightError if the folder cannot be used."""
    link, early = context.config.bandwidth, step in ("list", "plan")
    assert link.folder is not None

    def rate() -> float:
        cap = cap_now(link)
        # Use is counted only in bytes, which do not show the use of a cap on requests.
        return math.inf if cap.rate is None or cap.requests is not None else cap.rate

    return Hold(
        prepared(link.folder),
        run_digits(layout.lock, "copy" if early else step),
        processes.this_process(run, f"{step} {layout.dataset}"),
        rate=rate,
        per_process=context.config.engine.limit,
        lowers=False,  # elements of an interrupted run may read
        ends=not early,
        stopped=context.cluster.abilities.elements_end_with_controller,
    )


@contextlib.contextmanager
def reading(
    link: BandwidthConfig,
    holder: str,
    what: str,
    run: str,
    say: Callable[[str], None],
    wait: Callable[[float], object],
) -> Iterator[LinkShare | None]:
    """Yield a process's `LinkShare`, before it reads a byte, or None if no cap is configured. Until a
    share is granted, calls `wait`, which may raise."""
    if link.folder is None:
        yield None
        return
    with LinkShare(link, holder, what, run, say) as share:
        while share().rate <= 0:
            wait(0.2)
        yield share


class LinkShare(Share):
    """A copying process's share. Call `hand_to` when workers exist, and `share()` several times a second.

    `holder` is the run's holder, or "" if the process is its own holder. `what` is a readable phrase for the
    process's work: `copy imagenet, an element`. `say` writes a line into the element's log.
    """

    def __init__(
        self,
        link: BandwidthConfig,
        holder: str,
        what: str,
        run: str,
        say: Callable[[str], None],
    ) -> None:
        """Raises PreflightError if the folder cannot be used."""
        assert link.folder is not None
        self._configured, self._say = Cap.configured(link), say
        self._link = printable(str(link.folder))
        who, wanted = processes.this_process(run, what), None if holder else lambda: Post(PARTS, 1)
        holders = prepared(link.folder)
        try:
            self._file = CapFile(link.folder)
            self._file.look()
            super().__init__(holders, holder, who, wanted)
        except OSError as error:
            raise unusable(link.folder, error) from None
        self._writing = threading.Lock()
        self._write: Callable[[Allowance], None] | None = None
        self._written: Allowance | None = None
        self._wrong = ""  # what is wrong with the cap file, as logged
        self._had, self._waits = clock(), False  # when a share was held last; whether waiting is logged

    def tick(self) -> None:
        with contextlib.suppress(OSError):
            self._file.look()
        self._hand_on()

    def __call__(self) -> Allowance:
        """Return the element's allowance now; log changes. Raises FailedError if the folder is unusable."""
        has, wrong, counts = self.now() > 0, self._file.wrong, self._file.known
        if wrong != self._wrong:
            self._wrong = wrong
            now = (
                "the bandwidth cap is as it was"
                if counts
                else "nothing is read before the bandwidth cap is known"
            )
            self._say(f"warning: {now}: {wrong}" if wrong else "the cap is right again")
        self._had = clock() if has else self._had
        if self._waits != (clock() - self._had >= TOLD):
            self._waits, trouble = not has, self.member.trouble
            why = " now" if has else f": {printable(trouble)}" if trouble else ""
            self._say(f"{'has' if has else 'waits for'} a share of the bandwidth below {self._link}{why}")
        return self._now()

    def hand_to(self, write: Callable[[Allowance], None] | None) -> None:
        """See `host.pacing.Allowances`."""
        with self._writing:
            self._write, self._written = write, None
        self._hand_on()

    def _hand_on(self) -> None:
        # This lock is held only for a store to memory, so neither thread waits for a folder.
        with self._writing:
            now = self._now()
            if self._write is not None and now != self._written:
                self._written = now
                self._write(now)

    def _now(self) -> Allowance:
        part, until = self.member.usable
        if not self._file.known:
            return Allowance(0.0, 0.0, until, 0.0)
        cap = self._configured.lower(self._file.cap)
        rate, requests = (math.inf if limit is None else limit for limit in cap)
        if not part:
            return Allowance(0.0, 0.0, until, rate)
        return Allowance(rate * part, requests * part, until, rate)
