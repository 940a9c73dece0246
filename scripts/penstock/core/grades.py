"""Grades: how strongly a file is proven, weakest first, by its source's checksum (source grade) and by what
was read back from the target (storage grade). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SOURCE_GRADES = ("size", "etag-md5", "composite", "full")
"""How strongly the source's own statement proved the bytes on their way."""
STORAGE_GRADES = ("written", "reread", "cold", "cold-other-node")
"""What was seen of the stored bytes: nothing since they were written; read back, perhaps from memory; past
the caches of the host that read; the same, on another node than the one that wrote."""

CARRIED = "carried"
"""In the evidence of a release, in place of grade and method of a file that was not read back for it: it is
the very inode that an earlier release read back, with size and times as they were left."""
EVIDENCE_GRADES = ("written", CARRIED, *STORAGE_GRADES[1:])
"""The storage grades that a release's evidence counts, weakest first."""

SERVERS = "the servers"
"""Those of a file system, whose memory may answer a read in place of their disks."""
SIZE_ONLY = SOURCE_GRADES[0]
"""No checksum of the source proved the file: its size is all that was compared."""
SOON = 600
"""Seconds: what is read back within so many of its writing may come from the memory of the servers."""


def audit_grade(methods: Iterable[str], *, whole: bool, servers: bool = False, owner: bool = True) -> str:
    """What an audit saw of the stored bytes, by the ways in which it read. `whole`: it read all of the
    release. `servers`: the file system may have servers. `owner`: by the account that owns the files; to
    others the kernel does not tell which of their pages are in memory (mincore(2)), so they never claim more
    than `reread`. The grade's word stands before the first comma.

    | read                                        | servers | grade                                    |
    |---------------------------------------------|---------|------------------------------------------|
    | nothing                                     | any     | none: nothing was read                   |
    | all past this node's caches                 | no      | cold                                     |
    | all by `disk`                               | any     | cold                                     |
    | all past this node's caches, not all `disk` | yes     | cold, perhaps from the servers' memory   |
    | some perhaps from this node's memory, or by | any     | reread                                   |
    | another account than the owner              |         |                                          |

    Where not all of the release was read, `, of the files that were read` follows.
    """
    ways = set(methods)
    if not ways:
        return "none: nothing was read"
    memory = answered_by(ways, servers=servers, owner=owner)
    grade = in_words("cold", ways, servers=servers) if memory in ("", SERVERS) else "reread"
    return grade if whole else f"{grade}, of the files that were read"


def in_words(grade: str, methods: Iterable[str], *, servers: bool) -> str:
    """A storage grade for people, of files that were read in these ways; `servers` as of `audit_grade`."""
    text = grade.replace("cold-other-node", "cold, another node")
    behind = grade.startswith("cold") and answered_by(methods, servers=servers) == SERVERS
    return f"{text}, perhaps from {SERVERS}' memory" if behind else text


def answered_by(methods: Iterable[str], *, servers: bool, owner: bool = True) -> str:
    """Whose memory may have answered an audit's reads in place of the disks; "" nobody's. `servers`: the
    file system may have servers; `owner` as of `audit_grade`.

    | read                                        | servers | memory of               |
    |---------------------------------------------|---------|-------------------------|
    | nothing, or all by `disk`                   | any     |                         |
    | all past this node's caches                 | no      |                         |
    | all past this node's caches, not all `disk` | yes     | the servers             |
    | some perhaps from this node's memory, or by | no      | this node               |
    | another account than the owner              |         |                         |
    | the same                                    | yes     | this node, the servers  |
    """
    ways = set(methods)
    if not ways:
        return ""
    here = "cached" in ways or not owner
    behind = servers and ways != {"disk"}
    return " or ".join(["this node"] * here + [SERVERS] * behind)


def read_delay(size: int, ctime_ns: int, read_at: int, shared: int) -> int | None:
    """Seconds between the writing of a file and its reading for its release, by fields of its record, rounded
    down; None where it is not known.

    | the file                                          | seconds                            |
    |---------------------------------------------------|------------------------------------|
    | is empty, or was never read                       | None                               |
    | is `shared`: its ctime is no time of its writing  | None                               |
    | changed after its element had begun to read       | 0                                  |
    | any other                                         | from its ctime to that moment      |

    They are never too many. The ctime moves when a file's mode changes after the writing, too, and
    `read_at` is the earlier of two clocks' times at which the element began.
    """
    if shared or not size or not read_at:
        return None
    return max(0, read_at - -(-ctime_ns // 10**9))


def is_soon(size: int, ctime_ns: int, read_at: int, shared: int) -> bool:
    """Whether the file was read back within `SOON` of its writing, by `read_delay`."""
    seconds = read_delay(size, ctime_ns, read_at, shared)
    return seconds is not None and seconds < SOON


def is_proven(source_grade: str) -> bool:
    """Whether a checksum of the source proved the file. Older rows have "" for what nothing proved."""
    return source_grade not in (SIZE_ONLY, "")


def source_rank(grade: str) -> int:
    """Higher is stronger. Raises ValueError for what is no source grade."""
    return SOURCE_GRADES.index(grade)


def storage_rank(grade: str) -> int:
    """Higher is stronger. Raises ValueError for what is no storage grade."""
    return STORAGE_GRADES.index(grade)
