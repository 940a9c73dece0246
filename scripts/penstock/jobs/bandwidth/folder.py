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
from penstock.core.human import printable
from penstock.fs import small_files
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
    where = why.filename if isinstance(why, OSError) and isinstance(why.filename, str) else str(path)
    return PreflightError(
        "the bandwidth folder cannot be used",
        where=printable(where),
        why=why if isinstance(why, str) else why.strerror or str(why),
        hint="the link's administrator makes it by `penstock limit RATE`, in a folder that is there; each "
        "account that stages must be able to list and write its folder `holders`, on each node",
    )


def looked_at(folder: Path) -> Path:
    """Return the path of `holders` in a usable folder, even if this account must still make it. Changes
    nothing. Raises PreflightError with what to do, also where an older penstock copies over the link."""
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
    """Return as `looked_at`, after making `holders`, where any account may make files."""
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
    """Yield the name of a new file in `holders`, removed after the context; "" if none could be made. A node
    that sees the file sees this folder, and not another one at the same path."""
    # A beat without a holder: `sweep` removes it if this process is killed.
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
    """Remove what this account's ended processes left, of this version and of older ones. Raises nothing."""
    sweep(folder / HOLDERS)
    older_versions.remove_dead(folder / _OLDER)


class Overview(NamedTuple):
    """One look at the folder, as old as the file system shows folders."""

    said: Cap  # by the cap file
    wrong: str  # why the cap file is not believed; "": it is, or is absent
    mend: str  # what its owner can do about that
    held: list[HolderShare]  # the largest first


def overview(folder: Path) -> Overview:
    """Look at the folder, changing only its time. Raises PreflightError where it cannot be read."""
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
    """Return the lower of the configured cap and a readable cap file's, for estimates."""
    said = Cap()
    if link.folder is not None:
        with contextlib.suppress(OSError):
            said = _read(link.folder).cap
    return Cap.configured(link).lower(said)


def set_cap(folder: Path, rate: str) -> None:
    """Write the cap file; make the folder and its `holders` if missing.

    `rate`: as people write it, or `none`; the file's requests stay. Raises PreflightError if this account is
    neither root nor the folder's owner. Raises it, too, for an unusable folder, and if the written file would
    not be believed.
    """
    try:
        if not folder.is_dir():
            # Never its parents: on an unmounted file system they would be made on another one.
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
        cap_file.write(folder, cap_file.render(rate, _read(folder).cap.requests))
        wrong, mend = cap_file.judged(folder / cap_file.NAME, (folder / cap_file.NAME).lstat(), owner)
        if wrong:
            raise PreflightError("the cap file does not count", why=wrong, hint=mend)
    except OSError as error:
        raise unusable(folder, error) from None
