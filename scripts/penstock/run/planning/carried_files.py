"""Whether verify may carry linked files over instead of reading them again (`verify.linked`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import human
from penstock.core.errors import FailedError, NewerFormatError
from penstock.core.layout import MANIFEST
from penstock.dataset import receipts, seals, verdicts
from penstock.run.planning.reuse_choice import LINK
from penstock.target import hold

if TYPE_CHECKING:
    from penstock.dataset.run import Run
    from penstock.jobs.forecast import Totals
    from penstock.run.planning.previous_release import BaseRelease


def decide(run: Run, base: BaseRelease, totals: Totals, *, stable: bool) -> tuple[bool, str]:
    """Return whether verify may carry files over, and the sentence for it; "" where nothing is linked.

    `stable`: whether the file system always shows a file under one inode number. The base is the release
    whose files are linked.

    | what                                                      | linked files that are read |
    |-----------------------------------------------------------|----------------------------|
    | files are reflinked or copied: inodes of their own        | all                        |
    | inode numbers change                                      | all                        |
    | the base's manifest is not the one that its seal states   | all                        |
    | an audit found other bytes in the base                    | all                        |
    | an administrator holds the base (`target.hold`)           | all                        |
    | else                                                      | as `verify.linked` says    |
    """
    release = base.release
    if release is None or base.manifest is None or not totals.unchanged:
        return False, ""
    if base.way != LINK:
        return False, f"all unchanged files are read back: they are new inodes ({base.way})"
    if not stable:
        return False, "all linked files are read back: the inode numbers here change"
    try:
        stored = seals.find(run.layout, release)
        verdict = verdicts.read(run.layout, release)
        held = hold.standing(run.layout, release)
        whole = stored is not None and stored.seal.manifests[MANIFEST].sha256 == receipts.file_digest(
            base.manifest
        )
    except (FailedError, NewerFormatError, KeyError, OSError):
        whole, verdict, held = False, None, None
    if not whole:
        return False, f"all linked files are read back: the manifest of release {release} is damaged"
    if verdicts.BYTES & verdicts.standing(verdict).keys():
        return False, f"all linked files are read back: an audit found other bytes in release {release}"
    if held is not None:
        return False, f"all linked files are read back: release {release} is held: {held}"
    verify = run.config.verify
    if verify.carries_for is not None:
        return (
            True,
            f"linked files that were read back within {human.duration(verify.carries_for)} are carried over",
        )
    key = "minimum_grade" if verify.linked is not None else "linked"
    value = verify.minimum_grade if verify.linked is not None else "all"
    return True, f"all linked files are read back: `verify.{key}` is {value}"
