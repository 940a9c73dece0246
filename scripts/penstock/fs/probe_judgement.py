"""Draws conclusions from a probe: which abilities in the table of file systems (`fs.kinds`) do not work here,
and what people should know. A "row" is the entry for this kind of file system in that table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.core.human import printable
from penstock.core.posix_acl import size
from penstock.core.run_documents import ABILITIES, ERROR, NO, NOT_TRIED, VALUE, YES
from penstock.core.run_steps import VERDICTS, CheckResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.run_documents import ProbeReport
    from penstock.core.run_steps import Verdict
    from penstock.fs.capabilities import StorageFacts
    from penstock.fs.kinds import Kind


DIRECT_ALIGN = 4096  # bytes to which penstock's direct reads are aligned (`libc.ALIGN`)
# {ability without which no release can be staged: reason}
NEEDED = {
    "rename_over_file": "every small file of the state is replaced by such a rename",
    "rename_over_symlink": "`current` leads to a release by such a rename",
    "exclusive_create": "two runs could hold the dataset's lock at a time",
    "fsync_file": "no file would be known to be on the disk",
}
# {ability that improves a release: consequence of its absence}
MISSED = {
    "link_between_folders": "files that did not change are copied again, and take room in each release",
    "inode_stable": "a staging folder that was replaced by another of its name is not noticed",
    "chmod_kept": "files keep other modes than `permissions` asks for",
    "owner_kept": "files of this account are shown as another's: root squash, or an id-mapped mount",
}


def limited(facts: StorageFacts, report: ProbeReport) -> StorageFacts:
    """Return the facts without the abilities that the file system refused in the probe.

    The probe adds no ability: a call's success does not prove durability, or that bytes came from no cache.

    | ability in the row  | removed if                                      | consequence                 |
    |---------------------|-------------------------------------------------|-----------------------------|
    | durable by syncfs   | syncfs failed                                   | each file gets an fsync     |
    | blocks are reserved | fallocate was refused, or reserved nothing      | files grow as they are      |
    |                     |                                                 | written                     |
    | read by O_DIRECT    | O_DIRECT was refused, or needs more alignment   | files are read back after   |
    |                     | than 4,096; the probed kind is the present kind | their pages were dropped    |
    """
    preallocate = facts.traits.preallocate and not report.refused("fallocate")
    # If the plan was made on a gateway's mount, the probed kind differs: the probe proves nothing about reads
    # on this machine.
    direct = facts.traits.direct and not (report.kind == facts.kind and _refuses_direct(report))
    return replace(
        facts,
        traits=facts.traits._replace(preallocate=preallocate, direct=direct),
        durability="fsync" if report.refused("syncfs") else facts.durability,
    )


def links_work(report: ProbeReport) -> bool:
    """Return whether unchanged files may be linked from a release. Returns True also if links could not be
    tried (no room), since each link is checked when it is made."""
    tried = (report["link_between_folders"], report["link_between_trees"])
    return all(outcome.answer in (YES, NOT_TRIED) for outcome in tried)


def reflinks_work(report: ProbeReport) -> bool:
    """Return whether a file may share blocks with a file of another release; False if not tried."""
    return report["reflink"].answer == YES


def differences(facts: StorageFacts, report: ProbeReport) -> list[CheckResult]:
    """Return the results of a probe that people should know, beginning with the gravest. `facts` contain the
    row. A result has no `wanted` if the row states no value.

    | finding of the probe                                             | verdict   |
    |------------------------------------------------------------------|-----------|
    | an ability of `NEEDED` refused                                   | `stop`    |
    | an ability of `MISSED` refused                                   | `warning` |
    | an ability that `limited` removes                                | `warning` |
    | O_DIRECT refused, or only above 4,096, though the row has it     | `warning` |
    | a link or rename refused between the two folders, not within one | `warning` |
    | an errno that is no refusal                                      | `warning` |
    | any other difference from the row                                | `note`    |
    | nothing could be tried                                           | `note`    |
    """
    if all(report[name].answer == NOT_TRIED for name in ABILITIES):
        why = next((outcome.why for outcome in report.abilities.values()), "")
        return [CheckResult("what the file system can do", f"not tried: {why}", "note")]
    results: dict[str, CheckResult] = {}
    for result in (
        *_wrong(facts, report),
        *_trees(report),
        *_failed(report),
        *_otherwise(facts.traits, report),
    ):
        results.setdefault(result.about, result)
    return sorted(results.values(), key=lambda result: -VERDICTS.index(result.verdict))


def acls(report: ProbeReport, named: int, mend: str) -> list[CheckResult]:
    """Judge whether a release's ACLs, with `named` users and groups, can be set. `mend` is the advice of
    `Kind.acls`.

    | named | finding of the probe                                   | verdict   |
    |-------|--------------------------------------------------------|-----------|
    | 0     | anything                                               |           |
    | some  | an ACL refused, or changed                             | `stop`    |
    | some  | no room for a folder's two ACLs among its xattrs       | `stop`    |
    | some  | a default ACL that new files do not inherit            | `warning` |
    """
    if not named:
        return []
    if report.refused("acl"):
        why = f"{mend or 'mount it with POSIX ACLs'}; or take `permissions.acl` out"
        return [_result(report, "acl", "stop", why, wanted=YES)]
    room, need = report["xattr_bytes"], 2 * size(named)
    if room.answer == VALUE and (room.value or 0) < need:
        why = f"a folder's two ACLs with {named} entries take {need} bytes: name fewer users and groups"
        return [_result(report, "xattr_bytes", "stop", why, wanted=f"at least {need}")]
    if report.refused("acl_inherited"):
        why = "the ACL of each file is set by a call of its own"
        return [_result(report, "acl_inherited", "warning", why, wanted=YES)]
    return []


def _wrong(facts: StorageFacts, report: ProbeReport) -> Iterator[CheckResult]:
    for name, why in NEEDED.items():
        if report.refused(name):
            mend = f"{why}: choose another file system for `target.root`"
            yield _result(report, name, "stop", mend, wanted=YES)
    row = facts.traits
    unstated = {"link_between_folders": row.links != YES, "inode_stable": row.inodes != "stable"}
    for name, why in MISSED.items():
        if report.refused(name):
            yield _result(report, name, "warning", why, wanted="" if unstated.get(name) else YES)
    now = limited(facts, report)
    if now.durability != facts.durability:
        yield _result(report, "syncfs", "warning", "each file is synced by itself", wanted=YES)
    if now.traits.preallocate != facts.traits.preallocate:
        why = "large files are written without a reservation: a full disk shows later"
        yield _result(report, "fallocate", "warning", why, wanted=YES)
    if facts.direct and _refuses_direct(report):
        why = "files are read back after their pages were dropped from the cache"
        yield _result(report, "direct_alignment", "warning", why, wanted=f"at most {DIRECT_ALIGN}")


def _trees(report: ProbeReport) -> Iterator[CheckResult]:
    cloned = "share their blocks by reflinks" if reflinks_work(report) else "are copied again"
    what = {
        "link": f"files that did not change cannot be linked: they {cloned}",
        "rename": "what another run staged is copied again",
    }
    for call, why in what.items():
        beyond = f"{call}_between_trees"
        if report.refused(beyond) and report[f"{call}_between_folders"].answer == YES:
            mend = f"the two folders are of two quota trees, so {why}: give the dataset one quota tree"
            yield _result(report, beyond, "warning", mend, wanted=YES)


def _failed(report: ProbeReport) -> Iterator[CheckResult]:
    for name in ABILITIES:
        if report[name].answer == ERROR:
            yield _result(report, name, "warning", "look at the mount and its servers")


def _otherwise(row: Kind, report: ProbeReport) -> Iterator[CheckResult]:
    """Return differences from the row that affect no decision."""
    says = {
        "rename_over_empty_folder": {"empty folder": YES, "nothing": NO}.get(row.folder_over),
        "flock": YES if row.flock == "machine" else None,
        "holes": YES if row.holes_told else None,
        "holes_before_writeback": YES if row.holes_told else None,
    }
    for name, wanted in says.items():
        if wanted is not None and report[name].answer in (YES, NO) and report[name].answer != wanted:
            yield _result(report, name, "note", wanted=f"{wanted}, by the table of file systems")


def _result(
    report: ProbeReport, name: str, verdict: Verdict, mend: str = "", *, wanted: str = ""
) -> CheckResult:
    return CheckResult(ABILITIES[name], printable(str(report[name])), verdict, wanted, mend)


def _refuses_direct(report: ProbeReport) -> bool:
    outcome = report["direct_alignment"]
    return report.refused("direct_alignment") or (
        outcome.answer == VALUE and (outcome.value or 0) > DIRECT_ALIGN
    )
