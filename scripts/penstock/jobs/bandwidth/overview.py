"""Who holds which share of a network link, for people and programs; and setting its cap.

`penstock limit` and preflight show an `overview`; copy, plan and repair ask `cap_now` for their estimates.
These read the link's folder and look at processes of this machine. `set_cap`, of `penstock limit`, makes the
folder and writes the cap file.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.errors import PreflightError
from penstock.core.text import printable
from penstock.dataset import holder as processes
from penstock.fs import durable
from penstock.jobs.bandwidth import cap_file
from penstock.jobs.bandwidth.cap_file import Cap, CapFile
from penstock.jobs.bandwidth.folder import SLOTS_FOLDER, SlotFolder, prepared
from penstock.jobs.bandwidth.holder import ReadFile
from penstock.jobs.bandwidth.slots import parse

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.config.settings import BandwidthConfig


GBIT = 125_000_000
"""Bytes of a gigabit."""


class HolderShare(NamedTuple):
    """The share of one holder: an element that copies over the link."""

    slots: int
    """How many of the `slots.SLOTS` equal parts of the cap its last beat names."""
    who: str
    """For people; safe on a terminal."""
    ended: bool
    """Its process, of this machine, has ended: its slots are about to be taken over."""


class Overview(NamedTuple):
    """One look at the folder: what it shows may be as old as the file system shows folders."""

    said: Cap
    """By the cap file."""
    wrong: str
    """Why the cap file is not believed: a phrase; "" where it is, or there is none."""
    held: list[HolderShare]
    mend: str = ""
    """What the owner of a cap file that is not believed can do."""


def overview(folder: Path) -> Overview:
    """What the folder shows now; holders with the most slots come first. Changes nothing. Raises
    PreflightError where the folder cannot be read."""
    try:
        said, wrong, mend = _said(folder)
        slots = folder / SLOTS_FOLDER
        names = os.listdir(slots) if os.path.lexists(slots) else []
        reader = SlotFolder(slots, lambda: None)
        held = []
        for beat in parse(names).beats.values():
            content: object = b""
            with contextlib.suppress(OSError):
                content = reader.carry_out(ReadFile(beat.name))
            holder = processes.parse(content) if isinstance(content, bytes) else None
            who = (
                printable(holder.describe())
                if holder
                else "not known: it has just begun, or ended, or cannot be read"
            )
            ended = holder is not None and processes.lives(holder) is False
            held.append(HolderShare(len(beat.slots), who, ended))
    except OSError as error:
        raise _refused(folder, error) from None
    return Overview(said, wrong, sorted(held, key=lambda one: (-one.slots, one.who)), mend)


def _said(folder: Path) -> tuple[Cap, str, str]:
    """What the cap file says, why it is not believed, and what to do about that. Raises OSError."""
    file = CapFile(folder)
    try:
        file.look()
        return file.cap, file.wrong, file.mend
    finally:
        file.close()


def cap_now(config: BandwidthConfig) -> Cap:
    """The cap that holds now: the lower one of what is configured and what the cap file says; what is
    configured where that file cannot be read, or is not believed. For estimates. Reads the cap file; raises
    nothing."""
    said = Cap()
    if config.folder is not None:
        with contextlib.suppress(OSError):
            said, _, _ = _said(config.folder)
    return Cap(config.rate, config.requests).lower(said)


def set_cap(folder: Path, limit: str | None, requests: int | None) -> None:
    """Write the cap file; the folder, and in it `slots`, are made where they are missing. `limit`: a rate as
    people write it, or `none`; None: as it is. `requests`: a number a second, 0 for no cap; None: as it is.
    Raises PreflightError where this account is neither root nor the folder's owner, where the folder cannot
    be used, where the rate is to stay that of a cap file that is not believed, and where the file would not
    be believed after it was written."""
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
        said, wrong, mend = _said(folder)
        if wrong and limit is None:
            raise _not_believed(wrong, mend)
        text = limit or _written(said.rate)
        cap_file.write(folder, cap_file.render(text, said.requests if requests is None else requests or None))
        path = folder / cap_file.NAME
        if results := cap_file.judged(path, path.lstat(), owner):
            raise _not_believed(results[0].found, results[0].mend)
    except OSError as error:
        raise _refused(folder, error) from None


def _written(rate: int | None) -> str:
    """As people write it: `60Gbit/s` rather than 7500000000B/s."""
    if rate is None:
        return "none"
    return f"{rate // GBIT}Gbit/s" if rate % GBIT == 0 else f"{rate}B/s"


def _not_believed(why: str, mend: str) -> PreflightError:
    return PreflightError("the cap file does not count", why=why, hint=mend)


def _refused(folder: Path, error: OSError) -> PreflightError:
    return PreflightError(
        "the bandwidth folder cannot be used",
        where=printable(error.filename if isinstance(error.filename, str) else str(folder)),
        why=error.strerror or str(error),
        hint="the link's administrator makes it by `penstock limit RATE`, in a folder that is there",
    )
