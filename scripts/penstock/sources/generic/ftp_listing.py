"""Parses lines of FTP listings: the facts of MLSD and MLST (RFC 3659, 7), and LIST like `ls -l` or DOS.

RFC 959 leaves the form of LIST to the server. If any field of a line cannot be understood, the line gives no
entry, and the caller reports it, since it may hide a file.
"""

from __future__ import annotations

import re
from typing import NamedTuple

FILE, FOLDER, LINK = "file", "directory", "link"
ITSELF = (".", "..")  # names by which a folder lists itself and its parent


class FtpEntry(NamedTuple):
    """One entry of a folder. `kind` is FILE, FOLDER, LINK, or the server's word for anything else."""

    name: str
    kind: str
    # bytes; None if not stated. None also for a link, since the line states the link's own length.
    size: int | None = None
    # The modification time as MLSD and MDTM write it, in UTC; "" if not stated. LIST's dates are not used,
    # since their time zone is unnamed, and they often lack the year or the seconds.
    modify: str = ""
    # MLSD's fact `unique`, which is equal for all names of one file or folder; "" if not stated
    unique: str = ""


_UNIX = re.compile(
    r"(?P<kind>[-a-zA-Z])[-rwxsStTlL]{9}[.+@]?\s+(?:\S.*?\s)??"  # links, owner and group, as far as stated
    r"(?:\d+,\s*)?(?P<size>\d+)\s+"  # a device has two numbers
    r"(?:[A-Z][a-z]{2}\s+\d{1,2}\s+(?:\d{4}|\d{1,2}:\d\d)|\d{4}-\d\d-\d\d\s+\d\d:\d\d(?::\d\d)?)"
    r" (?P<name>.+)",
    re.ASCII | re.DOTALL,
)
_DOS = re.compile(
    r"\d\d-\d\d-(?:\d{4}|\d\d)\s+\d\d:\d\d(?:[AP]M)?\s+"
    r"(?:<DIR>(?: {10}| {1,9}(?! ))|(?P<size>\d+) )(?P<name>.+)",
    re.ASCII | re.DOTALL,
)
_KINDS = {"-": FILE, "d": FOLDER, "l": LINK, "b": "device", "c": "device", "p": "FIFO", "s": "socket"}
_FACT_KINDS = {"file": FILE, "dir": FOLDER, "cdir": FOLDER, "pdir": FOLDER}
ARROW = " -> "


def listed_entry(line: str) -> FtpEntry | None:
    """Parse a line of LIST. Return None if the line cannot be understood.

    | line                                               | entry                              |
    |----------------------------------------------------|------------------------------------|
    | `-rw-r--r-- 1 owner group 5 Nov 26 12:05 a b`      | the file `a b` of 5 bytes          |
    | `drwxr-xr-x 2 owner group 4096 2026-11-26 12:05 d` | the folder `d`                     |
    | `lrwxrwxrwx 1 owner group 4 Nov 26 2025 x -> y`    | the link `x`                       |
    | a link's line with two arrows                      | None: the name's end is unclear    |
    | `crw-rw-rw- 1 root root 1, 3 Nov 26 12:05 null`    | a device                           |
    | `02-10-26  01:45PM       <DIR>          d`         | the folder `d`                     |
    | `02-10-2026  13:45                 5 a b`          | the file `a b` of 5 bytes          |
    | `Access denied.`, VMS, NetWare, other languages    | None                               |
    """
    if dos := _DOS.fullmatch(line):
        size = dos["size"]
        return _entry(
            FtpEntry(dos["name"], FOLDER) if size is None else FtpEntry(dos["name"], FILE, int(size))
        )
    unix = _UNIX.fullmatch(line)
    if unix is None or unix["kind"] not in _KINDS:
        return None
    kind, name = _KINDS[unix["kind"]], unix["name"]
    if kind == LINK:
        if name.count(ARROW) != 1:
            return None
        return _entry(FtpEntry(name.partition(ARROW)[0], LINK))
    return _entry(FtpEntry(name, kind, int(unix["size"])))


def is_total(line: str) -> bool:
    """Return whether a line is the first of `ls -l`, the count of blocks."""
    return re.fullmatch(r"total \d+", line, re.ASCII) is not None


def stated_cut(said: str) -> str:
    """Return the line of a listing's final answer that reports missing names, or "".

    | the answer                                                        | reports |
    |-------------------------------------------------------------------|---------|
    | `226 Output truncated to 100 matches` (Pure-FTPd)                 | yes     |
    | `226 Anzeige auf 100 Einträge beschränkt.` (Pure-FTPd)            | yes     |
    | `226 Transfer done (but failed to open directory).` (vsftpd)      | yes     |
    | `226 Successfully transferred "/truncated"` (FileZilla Server)    | no      |
    | `226-Maximum disk quota limited to 100 kBytes` (Serv-U)           | no      |
    """
    return next((line for line in said.split("\n") if _CUT.search(_PATHS.sub("", line))), "")


_PATHS = re.compile(r'"[^"]*"|\S*/\S*')
_CUT = re.compile(
    r"trunc|incomplete|abridged|\bfailed\b|\bnot all\b|\btoo many\b|\bmore than\b|\bcut (?:off|short)\b"
    r"|\bfirst \d|\blimit (?:was |is )?(?:reached|exceeded)|\bmax(?:imum)? (?:\S+ )?(?:\S+ )?reached"
    # Pure-FTPd in its other languages
    r"|tronq|tronc|trunk|beschr|afrundet|afgekort|avkort|csonk|obci|skrat|zkr.cen|shkurt|k.saltmas",
    re.ASCII | re.IGNORECASE,
)


def stated_entry(line: str) -> FtpEntry | None:
    """Parse `fact=value;fact=value; name` of MLSD or MLST; None for another form, or if no type is stated."""
    facts, blank, name = line.partition(" ")
    if not blank or not facts.endswith(";"):
        return None
    values: dict[str, str] = {}
    for fact in facts[:-1].split(";"):
        word, equals, value = fact.partition("=")
        if not equals or word.lower() in values:
            return None
        values[word.lower()] = value
    kind, size = values.get("type", "").lower(), values.get("size", "")
    if not kind or (size and not re.fullmatch(r"\d+", size, re.ASCII)):
        return None
    if kind in ("cdir", "pdir"):
        return FtpEntry(".", FOLDER)
    if kind.startswith(("os.unix=slink", "os.unix=symlink")):
        return _entry(FtpEntry(name, LINK))
    kind = _FACT_KINDS.get(kind, kind)
    modify, unique = values.get("modify", ""), values.get("unique", "")
    return _entry(FtpEntry(name, kind, int(size) if size else None, modify, unique))


def _entry(entry: FtpEntry) -> FtpEntry | None:
    """Return the entry, or None if no command can send its name, or no folder can contain it."""
    return None if not entry.name or any(char in entry.name for char in "/\0\r\n") else entry
