"""Grades state how strongly a file is proven: by its source's checksum (source grade), and by how it was read
back from the target (storage grade). Also decides when a linked file is read back again. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


# The grades, weakest first.

# source grades: how strongly the source's statement proved the bytes in transit
SOURCE_GRADES = ("size", "etag-md5", "composite", "full")
# Storage grades, in order. The stored bytes were not read since they were written; or were read, perhaps from
# memory; or past the caches of the reading host; or past the caches of a host other than the writing host.
STORAGE_GRADES = ("written", "reread", "cold", "cold-other-node")

# Replaces grade and method, in a release's evidence, for a file that was not read back for this release. The
# file is the very inode that an earlier release read back, with unchanged size and times.
CARRIED = "carried"
# Storage grades that a release's evidence counts, weakest first.
EVIDENCE_GRADES = ("written", CARRIED, *STORAGE_GRADES[1:])

SERVERS = "the servers"  # servers of a file system, which may answer a read from memory instead of disk
SIZE_ONLY = SOURCE_GRADES[0]  # no source checksum proved the file: only its size was compared
SOON = 600  # seconds after a file's writing in which the servers may answer a read from memory


def audit_grade(methods: Iterable[str], *, whole: bool, servers: bool = False, owner: bool = True) -> str:
    """Return an audit's grade, judging by how it read the stored bytes, with an addition after a comma.

    `whole`: the audit read all of the release. `servers`: the file system may have servers. `owner`: the
    account that ran it owns the files. The kernel hides from other accounts which pages of the files are in
    memory (mincore(2)), so these accounts never get more than `reread`.

    | read                                        | servers | grade                                    |
    |---------------------------------------------|---------|------------------------------------------|
    | nothing                                     | any     | none: nothing was read                   |
    | all past this node's caches                 | no      | cold                                     |
    | all by `disk`                               | any     | cold                                     |
    | all past this node's caches, not all `disk` | yes     | cold, perhaps from the servers' memory   |
    | some perhaps from this node's memory, or by | any     | reread                                   |
    | another account than the owner              |         |                                          |

    If not all of the release was read, `, of the files that were read` follows.
    """
    ways = set(methods)
    if not ways:
        return "none: nothing was read"
    memory = answered_by(ways, servers=servers, owner=owner)
    grade = in_words("cold", ways, servers=servers) if memory in ("", SERVERS) else "reread"
    return grade if whole else f"{grade}, of the files that were read"


def in_words(grade: str, methods: Iterable[str], *, servers: bool) -> str:
    """Return a storage grade in words. `methods`: how files were read; `servers`: as for `audit_grade`."""
    text = grade.replace("cold-other-node", "cold, another node")
    behind = grade.startswith("cold") and answered_by(methods, servers=servers) == SERVERS
    return f"{text}, perhaps from {SERVERS}' memory" if behind else text


def answered_by(methods: Iterable[str], *, servers: bool, owner: bool = True) -> str:
    """Return the machines that may have answered an audit's reads from memory instead of the disks, or "" if
    there are none. Arguments as for `audit_grade`.

    | read                                        | servers | memory of               |
    |---------------------------------------------|---------|-------------------------|
    | nothing, or all by `disk`                   | any     |                         |
    | all past this node's caches                 | no      |                         |
    | all past this node's caches, not all `disk` | yes     | the servers             |
    | some perhaps from this node's memory, or by | no      | this node               |
    | another account than the owner              |         |                         |
    | some perhaps from this node's memory, or by | yes     | this node, the servers  |
    | another account than the owner              |         |                         |
    """
    ways = set(methods)
    if not ways:
        return ""
    here = "cached" in ways or not owner
    behind = servers and ways != {"disk"}
    return " or ".join(["this node"] * here + [SERVERS] * behind)


def read_delay(size: int, ctime_ns: int, read_at: int, shared: int) -> int | None:
    """Return the seconds, rounded down, from a file's writing to its reading for its release, or None if not
    known.

    | the file                                          | seconds                            |
    |---------------------------------------------------|------------------------------------|
    | is empty, or was never read                       | None                               |
    | is `shared`: its ctime is no time of its writing  | None                               |
    | changed after its element had begun to read       | 0                                  |
    | any other                                         | from its ctime to that moment      |

    The delay may be too short, but never too long. A change of the file's mode also moves its ctime, and
    `read_at` is the time at which the element began, on the clock that shows the earlier time.
    """
    if shared or not size or not read_at:
        return None
    return max(0, read_at - -(-ctime_ns // 10**9))


def is_soon(size: int, ctime_ns: int, read_at: int, shared: int) -> bool:
    """Return whether the file was read back within `SOON` of its writing, according to `read_delay`."""
    seconds = read_delay(size, ctime_ns, read_at, shared)
    return seconds is not None and seconds < SOON


def is_proven(source_grade: str) -> bool:
    """Return whether a source checksum proved the file. Unproven files have "" in older rows."""
    return source_grade not in (SIZE_ONLY, "")


def source_rank(grade: str) -> int:
    """Return the grade's rank; higher is stronger. Raises ValueError."""
    return SOURCE_GRADES.index(grade)


def storage_rank(grade: str) -> int:
    """Return the grade's rank; higher is stronger. Raises ValueError."""
    return STORAGE_GRADES.index(grade)


# Decides when a linked file, which shares an inode with an earlier release, is read back again
# (`verify.linked`).
#
# The problem: all files of a first release were read in the same night, and would be due in the same night.
# So each file's path decides the age at which the file is due, between half of the duration and all of it.
#
# | the last reading                                    | the file is                |
# |-----------------------------------------------------|----------------------------|
# | is not known, or lies more than `AHEAD` ahead       | due                        |
# | is as old as the duration, or older                 | due                        |
# | is younger than half of the duration                | not due                    |
# | is of any other age                                 | due from the file's own age|

AHEAD = 86_400.0  # most seconds by which clocks may differ; a reading further in the future is ignored


class Now(NamedTuple):
    """The time in seconds since the epoch, on two clocks: a host's and a file system's. If a clock is wrong,
    files are read too early, and readings are stated as too old, never the reverse."""

    earliest: float  # the time given to a reading, and the limit for readings in the future
    latest: float  # the moment up to which ages count


def is_known(read_at: float, now: Now) -> bool:
    """Return whether this can be the time of a reading. 0 means that there was none."""
    return 0 < read_at <= now.earliest + AHEAD


def is_overdue(read_at: float, now: Now, longest: float) -> bool:
    """Return whether every file last read at `read_at` is due. `longest`: the duration in seconds."""
    return not is_known(read_at, now) or now.latest - read_at >= longest


def due_fraction(read_at: float, now: Now, longest: float) -> float:
    """Return what fraction of the files last read at `read_at` is due. Due is a file whose own fraction,
    which its path decides, is lower."""
    if is_overdue(read_at, now, longest):
        return 1.0
    return max(0.0, 2.0 * (now.latest - read_at) / longest - 1.0)
