"""How unchanged files of the current release come into a new one: one decision for all of a plan's files."""

from __future__ import annotations

LINK = "link"  # a hard link: one inode, so one mode, group and ACL, in both releases
REFLINK = "reflink"  # an inode of its own that shares the blocks
COPY = "copy"  # copied on the target
NONE = "none"  # fetched from the source, as new files are
REFUSED = "refused"  # nothing without being asked for: plan stops if files are unchanged


def choose(reuse: str, *, reflinks: bool, links: bool, other_policy: bool, copy_unchanged: bool) -> str:
    """Choose by `plan.reuse`, the probe of the file system, a changed policy, and `--copy-unchanged`.

    `other_policy`: the current release has other permissions than the new one.

    | plan.reuse         | reflinks | links | permissions | --copy-unchanged | files are |
    |--------------------|----------|-------|-------------|------------------|-----------|
    | none               | any      | any   | any         | any              | none      |
    | copy               | any      | any   | any         | any              | copy      |
    | auto, reflink      | yes      | any   | any         | any              | reflink   |
    | link               | yes      | any   | any         | yes              | reflink   |
    | any other          | no       | any   | any         | yes              | copy      |
    | reflink            | no       | any   | any         | no               | refused   |
    | link               | any      | any   | other       | no               | refused   |
    | auto               | no       | any   | other       | no               | refused   |
    | link               | any      | yes   | same        | no               | link      |
    | auto               | no       | yes   | same        | no               | link      |
    | auto, link         | no       | no    | same        | no               | none      |
    """
    if reuse in (NONE, COPY):
        return reuse
    if reflinks and (reuse != LINK or copy_unchanged):
        return REFLINK
    if copy_unchanged:
        return COPY
    if reuse == REFLINK or other_policy:
        return REFUSED
    return LINK if links else NONE
