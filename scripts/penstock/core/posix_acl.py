"""POSIX access control lists: entries as setfacl(1) writes them, and lists as the kernel's xattrs hold them.
Pure: `fs.acl_xattrs` reads and writes them.

A list has an entry for the owner, the owning group and others (the nine bits of the mode), named users and
groups, and the mask: what named entries and the owning group may do at most. Where a file has a list, the
group bits of its mode are the mask (acl(5)), so a chmod changes the mask and no entry of a group.

The xattr's form is that of linux/posix_acl_xattr.h: a little-endian version, 2, then tag, rights and number
of each entry, in the order of the tags (linux/posix_acl.h), numbers ascending within one.
"""

from __future__ import annotations

import re
from struct import Struct, error
from typing import NamedTuple

OWNER, USER, OWNING_GROUP, GROUP, MASK, OTHERS = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_NOBODY = 0xFFFFFFFF
"""The number of entries that name nobody (ACL_UNDEFINED_ID)."""
_VERSION = (2).to_bytes(4, "little")
_ENTRY = Struct("<HHI")
_WRITTEN = re.compile(r"(user|u|group|g):([^\x00-\x1f\x7f:]{1,255}):(?=.)(r?-?w?-?[xX]?-?)", re.ASCII)
_RIGHTS = {"r": 4, "w": 2, "x": 1}
_LETTERS = {USER: "user", GROUP: "group", OWNER: "user", OWNING_GROUP: "group", MASK: "mask", OTHERS: "other"}


class NamedEntry(NamedTuple):
    """What one user or group, beside the owner and the owning group, may do, as the configuration writes
    it."""

    tag: int
    """USER or GROUP."""
    who: str
    """Name or number."""
    rights: str
    """Of `r`, `w`, and `x` or `X`: execute for folders, and for files that anybody may execute."""

    def bits(self, mode: int, *, folder: bool) -> int:
        """The rights to something of this mode, as three bits: 4 read, 2 write, 1 execute."""
        bits = sum(_RIGHTS.get(letter, 0) for letter in self.rights)
        return bits | ("X" in self.rights and (folder or mode & 0o111 != 0))

    def __str__(self) -> str:
        shown = "".join(one if one in self.rights else "-" for one in "rw")
        last = self.rights[-1:] if self.rights[-1:] in ("x", "X") else "-"
        return f"{_LETTERS[self.tag]}:{self.who}:{shown}{last}"


class AclEntry(NamedTuple):
    """One entry of a list; `bits` as of `NamedEntry.bits`."""

    tag: int
    bits: int
    number: int = _NOBODY
    """The uid or gid, where `tag` is USER or GROUP."""


Acl = tuple[AclEntry, ...]


def parse(text: str) -> NamedEntry:
    """`group:genomics:r-X`. Raises ValueError for what is no entry of a named user or group."""
    match = _WRITTEN.fullmatch(text)
    if match is None:
        raise ValueError("is no entry of a named user or group such as group:genomics:r-X")
    kind, who, rights = match.groups()
    return NamedEntry(USER if kind.startswith("u") else GROUP, who, rights.replace("-", ""))


def made(mode: int, named: dict[tuple[int, int], int]) -> Acl:
    """The list of something of this mode, with entries for these tags and numbers. The mask allows what any
    of the groups and named users may do, as setfacl computes it."""
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
    """What the mask allows; of a list without one, what the owning group may do."""
    by_tag = {entry.tag: entry.bits for entry in acl}
    return by_tag.get(MASK, by_tag.get(OWNING_GROUP, 0))


def shown_mode(mode: int, acl: Acl) -> int:
    """The mode that lstat shows of something of this mode with this list."""
    return mode & ~0o070 | mask_of(acl) << 3


def effective(acl: Acl) -> frozenset[AclEntry]:
    """What a list allows, the mask applied: lists that allow the same are equal in it. The entries of the
    owner and of others are left out: they are bits of the mode."""
    mask = mask_of(acl)
    return frozenset(
        entry._replace(bits=entry.bits & mask) for entry in acl if entry.tag in (USER, OWNING_GROUP, GROUP)
    )


def encode(acl: Acl) -> bytes:
    """The value of the xattr of this list."""
    return _VERSION + b"".join(_ENTRY.pack(*entry) for entry in acl)


def decode(raw: bytes) -> Acl:
    """The list that this value of the xattr holds. Raises ValueError for what is no list of version 2."""
    if raw[:4] != _VERSION:
        raise ValueError(f"an ACL of version {int.from_bytes(raw[:4], 'little')}, not 2")
    try:
        return tuple(AclEntry(*entry) for entry in _ENTRY.iter_unpack(raw[4:]))
    except error as broken:
        raise ValueError(f"an ACL that ends early: {broken}") from None


def size(named: int) -> int:
    """Bytes of the xattr of a list with so many named entries."""
    return len(_VERSION) + _ENTRY.size * (named + 4)


def in_words(acl: Acl | None) -> str:
    """For people: the named entries with what they may do in effect; `none` without any."""
    found = [entry for entry in sorted(effective(acl or ())) if entry.tag != OWNING_GROUP]
    return ",".join(f"{_LETTERS[tag]}:{number}:{letters(bits)}" for tag, bits, number in found) or "none"


def letters(bits: int) -> str:
    """`r-x`."""
    return "".join(one if bits & right else "-" for one, right in _RIGHTS.items())
