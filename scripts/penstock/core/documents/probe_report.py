"""`runs/<run>/probe.json`: what the target's file system did when plan tried it (`fs.probe`).

| answer      | means                                                                        |
|-------------|------------------------------------------------------------------------------|
| `yes`, `no` | the file system does it, or refuses it or does something else (`error`, `why`)|
| `value`     | how much of it: a number in the unit of `ABILITIES`                          |
| `error`     | the call failed by an errno that is no refusal: nothing is known             |
| `not tried` | it could not be tried, for the reason in `why`                               |
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.core.documents.typed_json import Document

YES, NO, VALUE, ERROR, NOT_TRIED = "yes", "no", "value", "error", "not tried"

# each tried ability, in the order of tables, and its name for people
ABILITIES: Mapping[str, str] = {
    "rename_over_file": "rename over a file",
    "rename_over_symlink": "rename of a symbolic link over another",
    "rename_over_empty_folder": "rename of a folder over an empty one",
    "rename_noreplace": "renameat2 with RENAME_NOREPLACE",
    "rename_exchange": "renameat2 with RENAME_EXCHANGE",
    "rename_between_folders": "rename between folders",
    "rename_open_between_folders": "rename between folders of a file that is open",
    "rename_between_trees": "rename to the folder beside (quota tree)",
    "link": "hard link in one folder",
    "link_between_folders": "hard link between folders",
    "link_between_trees": "hard link to the folder beside (quota tree)",
    "reflink": "reflink (FICLONE) between folders",
    "exclusive_create": "O_EXCL creates a name once",
    "open_unlink": "a removed file that is open can be read",
    "inode_stable": "inode numbers stay",
    "fsync_file": "fsync of a file",
    "fsync_folder": "fsync of a folder",
    "syncfs": "syncfs",
    "direct_alignment": "O_DIRECT reads, alignment in bytes",
    "fallocate": "fallocate reserves blocks",
    "tmpfile": "O_TMPFILE, then a link",
    "holes": "holes take no room and are reported",
    "holes_before_writeback": "bytes that wait for write-back are no hole",
    "xattr_bytes": "largest user xattr, bytes",
    "acl": "POSIX ACLs",
    "acl_inherited": "default ACLs are inherited",
    "flock": "flock between two processes of this machine",
    "name_bytes": "longest name, bytes",
    "name_not_utf8": "names that are not UTF-8",
    "case_sensitive": "names differ by case",
    "owner_kept": "new files belong to their maker",
    "create_mode": "modes are given as asked",
    "chmod_kept": "chmod is kept",
    "setgid_inherited": "folders inherit group and setgid",
    "time_resolution": "times are kept in steps of, ns",
}


class TrialOutcome(NamedTuple):
    """The result of one trial."""

    answer: str = NOT_TRIED
    value: int | None = None
    error: str = ""  # the errno's name (`EOPNOTSUPP`), if a call failed
    why: str = ""  # for people: what was seen instead, or why it was not tried

    def __str__(self) -> str:
        """Return a line for people: `no (EXDEV)`, `4096`, `not tried: the file system is read-only`."""
        said = str(self.value) if self.answer == VALUE else self.answer
        if self.answer == NOT_TRIED:
            return ": ".join(filter(None, (said, self.why)))
        reasons = ", ".join(filter(None, (self.error, self.why)))
        return f"{said} ({reasons})" if reasons else said


class LinkCost(NamedTuple):
    """Median duration of a call in microseconds, as this client saw it. All 0: not measured."""

    first_stat: float = 0.0  # of a file with one name
    linked_stat: float = 0.0  # of a file with a second name in another folder
    first_open: float = 0.0
    linked_open: float = 0.0

    def __bool__(self) -> bool:
        return self.linked_open > 0

    def __str__(self) -> str:
        return (
            f"stat {self.linked_stat:g} µs, open {self.linked_open:g} µs; of a file with one name "
            f"{self.first_stat:g} and {self.first_open:g} µs"
        )


UNMEASURED = LinkCost()


@dataclass(frozen=True)
class ProbeReport:
    """A probe. Runs from before there were probes have no abilities: none was tried."""

    folder: str = ""  # where it was tried
    beside: str = ""  # the second folder, to and from which links and renames were tried; "": none
    kind: str = ""  # the file system, by its row of the table
    host: str = ""
    kernel: str = ""  # its release, as of `uname -r`
    at: str = ""  # UTC, ISO 8601
    seconds: float = 0.0
    abilities: Mapping[str, TrialOutcome] = field(default_factory=dict)
    link_cost: LinkCost = UNMEASURED
    # what one process does a second, in sequence: `files` (small, written and renamed), `links`; empty: not
    # measured
    rates: Mapping[str, float] = field(default_factory=dict)

    def __getitem__(self, ability: str) -> TrialOutcome:
        """Return the outcome of one of `ABILITIES`."""
        return self.abilities.get(
            ability, TrialOutcome(why="the probe did not get so far" if self.abilities else "")
        )

    def refused(self, ability: str) -> bool:
        """Return whether the file system failed at it. What was not tried is not refused."""
        return self[ability].answer in (NO, ERROR)


PROBE_REPORT = Document(ProbeReport, "what a file system did when it was tried")
