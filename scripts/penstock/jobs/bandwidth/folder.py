"""The folder of the cap on a network link: judged, made, marked, shown; and the cap that holds.

| in `bandwidth.folder` | is                                    | is written by                         |
|-----------------------|---------------------------------------|---------------------------------------|
| `cap`                 | the cap that holds now (`cap_file`)   | the folder's owner, the administrator |
| `holders/`            | who has which share (`shares.rule`)   | every account that stages; sticky     |
| `slots/`              | the same, of penstock before 1.0      | nobody any more                       |
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.errors import PreflightError
from penstock.core.text import printable
from penstock.fs import durable
from penstock.jobs import older_versions
from penstock.jobs.bandwidth import cap_file
from penstock.jobs.bandwidth.cap_file import Cap, CapFile
from penstock.jobs.shares.share import HolderShare, look, sweep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.config.settings import BandwidthConfig

HOLDERS = "holders"
_OLDER = "slots"
_STICKY = 0o1777


def unusable(path: Path, why: OSError | str) -> PreflightError:
    """The error of a folder that cannot be used."""
    where = why.filename if isinstance(why, OSError) and isinstance(why.filename, str) else str(path)
    return PreflightError(
        "the bandwidth folder cannot be used",
        where=printable(where),
        why=why if isinstance(why, str) else why.strerror or str(why),
        hint="the link's administrator makes it by `penstock limit RATE`, in a folder that is there; each "
        "account that stages must be able to list and write its folder `holders`, on each node",
    )


def looked_at(folder: Path) -> Path:
    """The path of the folder of the holders, of a folder that can be used; it passes without them where this
    account can make them. Changes nothing. Raises PreflightError with what to do, also where an older
    penstock copies over the link."""
    holders = folder / HOLDERS
    try:
        above = folder.stat()
        if above.st_mode & cap_file.OTHERS and not above.st_mode & stat.S_ISVTX:
            raise PreflightError(
                "the bandwidth folder is not safe",
                where=printable(str(folder)),
                why=f"mode {stat.S_IMODE(above.st_mode):04o}: others than its owner may replace the cap file",
                hint=f"chmod 755 {printable(str(folder))}, as its owner",
            )
        older_versions.refuse(folder / _OLDER, PreflightError)
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
    """As `looked_at`; the folder of the holders is made where it is missing, and any account may make files
    there."""
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
    """The name of a new file in `holders`, which stays within this context: another node that sees the file
    sees this folder, and not another one at the same path. "" where none could be made."""
    # A beat without a holder: `sweep` removes it where this process is killed.
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
    """Whether the folder, as this node sees it, is the one in which `marked` made the file `mark`."""
    return os.path.lexists(folder / HOLDERS / mark)


def swept(folder: Path) -> None:
    """Remove what this account's ended processes left, of this version and of older ones. Raises nothing."""
    sweep(folder / HOLDERS)
    older_versions.remove_dead(folder / _OLDER)


class Overview(NamedTuple):
    """What one look at the folder shows; as old as the file system shows folders."""

    said: Cap  # by the cap file
    wrong: str  # why the cap file is not believed: a phrase; "" where it is, or there is none
    mend: str  # what its owner can do about that
    held: list[HolderShare]  # the largest first


def overview(folder: Path) -> Overview:
    """Changes nothing but a folder's time. Raises PreflightError where the folder cannot be read."""
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
    """The cap that holds now: the lower one of what is configured and what the cap file says, if it can be
    read. For estimates."""
    said = Cap()
    if link.folder is not None:
        with contextlib.suppress(OSError):
            said = _read(link.folder).cap
    return Cap.configured(link).lower(said)


def set_cap(folder: Path, rate: str) -> None:
    """Write the cap file; the folder and its `holders` are made where they are missing. `rate`: as people
    write it, or `none`; what the file says of requests stays. Raises PreflightError where this account is
    neither root nor the folder's owner, where the folder cannot be used, and where the file would not be
    believed after it was written."""
    try:
        if not folder.is_dir():
            # Not what is above it: where its file system is not mounted, that would be made on another one.
            folder.parent.stat()
            durable.make_dirs(folder, 0o755)
        owner = folder.stat().st_uid
        if os.geteuid() not in (0, owner):
            raise PreflightError(
                "this account may not set the bandwidth cap",
                where=printable(str(folder)),
                why=f"it is uid {os.geteuid()}, and the folder belongs to uid {owner}",
                hint="ask the administrator of the link; `engine.limit` bounds each of your own elements",
            )
        prepared(folder)
        cap_file.write(folder, cap_file.render(rate, _read(folder).cap.requests))
        wrong, mend = cap_file.judged(folder / cap_file.NAME, (folder / cap_file.NAME).lstat(), owner)
        if wrong:
            raise PreflightError("the cap file does not count", why=wrong, hint=mend)
    except OSError as error:
        raise unusable(folder, error) from None
