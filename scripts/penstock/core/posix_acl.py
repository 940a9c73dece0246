"""POSIX access control lists: entries in the form of setfacl(1), and lists in the form of the kernel's
xattrs.

A list has an entry for the owner, the owning group and others (the nine bits of the mode), and for named
users and groups. Its mask limits the rights of named entries and the owning group. If a file has a list, the
group bits of its mode are the mask (acl(5)), so a chmod changes the mask and no group's entry.

The xattr's form (linux/posix_acl_xattr.h): a little-endian version, 2, then tag, rights and number of each
entry, in the order of the tags (linux/posix_acl.h), with ascending numbers within a tag.
"""

from __future__ import annotations

import re
from struct import Struct, error
from typing import NamedTuple

OWNER, USER, OWNING_GROUP, GROUP, MASK, OTHERS = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_NOBODY = 0xFFFFFFFF  # uid or gid in entries without a name (ACL_UNDEFINED_ID)
_VERSION = (2).to_bytes(4, "little")
_ENTRY = Struct("<HHI")
_WRITTEN = re.compile(r"(user|u|group|g):([^\x00-\x1f\x7f:]{1,255}):(?=.)(r?-?w?-?[xX]?-?)", re.ASCII)
_RIGHTS = {"r": 4, "w": 2, "x": 1}
_LETTERS = {USER: "user", GROUP: "group", OWNER: "user", OWNING_GROUP: "group", MASK: "mask", OTHERS: "other"}


class NamedEntry(NamedTuple):
    """The rights of a named user or group, as configured."""

    tag: int  # USER or GROUP
    who: str  # name or number
    rights: str  # letters of `rwxX`; `X`: execute for folders, and for files that anybody may execute

    def bits(self, mode: int, *, folder: bool) -> int:
        """Return the rights on a file or folder with this mode as three bits: 4 read, 2 write, 1 execute."""
        bits = sum(_RIGHTS.get(letter, 0) for letter in self.rights)
        return bits | ("X" in self.rights and (folder or mode & 0o111 != 0))

    def __str__(self) -> str:
        shown = "".join(letter if letter in self.rights else "-" for letter in "rw")
        last = self.rights[-1:] if self.rights[-1:] in ("x", "X") else "-"
        return f"{_LETTERS[self.tag]}:{self.who}:{shown}{last}"


class AclEntry(NamedTuple):
    """An entry of a list; `bits` as from `NamedEntry.bits`."""

    tag: int
    bits: int
    number: int = _NOBODY  # uid or gid, if `tag` is USER or GROUP


Acl = tuple[AclEntry, ...]


def parse(text: str) -> NamedEntry:
    """Parse `group:genomics:r-X`. Raises ValueError for anything but a named user's or group's entry."""
    match = _WRITTEN.fullmatch(text)
    if match is None:
        raise ValueError("is no entry of a named user or group such as group:genomics:r-X")
    kind, who, rights = match.groups()
    return NamedEntry(USER if kind.startswith("u") else GROUP, who, rights.replace("-", ""))


def made(mode: int, named: dict[tuple[int, int], int]) -> Acl:
    """Return the list for a mode and named entries, `{(tag, number): bits}`. Like setfacl, set the mask to
    all rights that groups and named users have."""
    owning = mode >> 3 & 7
    mask = owning
    for bits in named.values():
        mask |= bits
    return (
        AclEntry(OWNER, mode >> 6 & 7),
        *(AclEntry(tag, bits, number) for (tag, number), bits in sorted(named.items()) if tag == USER),
        AclEntry(OWNING_GROUP, owning),
        *(AclEntry(tag, bits, number) for (tag, number), bits in sorted(named.items()) if tag == GROUP),
        AclEntry(MASK, mask),
        AclEntry(OTHERS, mode & 7),
    )


def mask_of(acl: Acl) -> int:
    """Return the rights that the mask allows or, without a mask, those of the owning group."""
    by_tag = {entry.tag: entry.bits for entry in acl}
    return by_tag.get(MASK, by_tag.get(OWNING_GROUP, 0))


def shown_mode(mode: int, acl: Acl) -> int:
    """Return the mode that lstat shows for this mode and list."""
    return mode & ~0o070 | mask_of(acl) << 3


def effective(acl: Acl) -> frozenset[AclEntry]:
    """Return the entries with the mask applied, for comparison. Owner and others are left out (the mode)."""
    mask = mask_of(acl)
    return frozenset(
        entry._replace(bits=entry.bits & mask) for entry in acl if entry.tag in (USER, OWNING_GROUP, GROUP)
    )


def encode(acl: Acl) -> bytes:
    """Return the xattr's value for this list."""
    return _VERSION + b"".join(_ENTRY.pack(*entry) for entry in acl)


def decode(raw: bytes) -> Acl:
    """Parse an xattr's value. Raises ValueError unless it is a list of version 2."""
    if raw[:4] != _VERSION:
        raise ValueError(f"an ACL of version {int.from_bytes(raw[:4], 'little')}, not 2")
    try:
        return tuple(AclEntry(*entry) for entry in _ENTRY.iter_unpack(raw[4:]))
    except error as broken:
        raise ValueError(f"an ACL that ends early: {broken}") from None


def size(named: int) -> int:
    """Return the number of bytes of the xattr for a list with this number of named entries."""
    return len(_VERSION) + _ENTRY.size * (named + 4)


def in_words(acl: Acl | None) -> str:
    """Return the named entries with their effective rights in words, or `none` if there are none."""
    named_entries = [entry for entry in sorted(effective(acl or ())) if entry.tag != OWNING_GROUP]
    return (
        ",".join(f"{_LETTERS[tag]}:{number}:{letters(bits)}" for tag, bits, number in named_entries) or "none"
    )


def letters(bits: int) -> str:
    """Return the bits as `r-x`."""
    return "".join(letter if bits & right else "-" for letter, right in _RIGHTS.items())
