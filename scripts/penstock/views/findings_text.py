"""What an audit found and what a repair did, as text: one line a finding, the mark first.

Guarantee: plain text; every name is escaped, so that no file can steer a terminal; at most SHOWN findings,
the most serious first, then the count of the others and the file that has them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import human
from penstock.views import text_block

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.core.documents.findings import Finding
    from penstock.core.documents.step_results import AuditResult, OverruleResult, RepairResult
    from penstock.core.documents.verdict import AuditShown

SHOWN = 50
WIDTH = 12
METHODS = {
    "direct": "read past the page cache by direct I/O",
    "dropped": "read after the page cache was emptied of it",
    "cached": "read, perhaps from memory",
}
KINDS = ("manifest", "missing", "folder", "changed", "replaced", "unread", "mode", "extra")


def audit(result: AuditResult) -> str:
    """The table of one audit (`steps.audit_step.run`); ends in a line feed."""
    title = f"{result['dataset']}/{result['release']}"
    amount = f"{human.count(result['files'])} of {human.counted(result['of_files'], 'file')}"
    amount += f", {human.size(result['bytes'])} in {human.duration(result['seconds'])}"
    lines = [human.printable(title), line("Read", amount)]
    for name, count in sorted(result["methods"].items()):
        lines.append(line("How", f"{human.count(count)} {METHODS.get(name, name)}"))
    lines += _skipped(result)
    lines.append(line("Grade", result["grade"]))
    lines.append(line("Means", result["promise"]))
    lines += _findings(result)
    counts = result["counts"]
    told = ", ".join(f"{human.count(counts[kind])} {kind}" for kind in KINDS if counts.get(kind))
    left = ", ".join(f"{human.count(one['files'])} {kind}" for kind, one in sorted(result["skipped"].items()))
    told = ", ".join(filter(None, (told, left and f"not read: {left}")))
    told = "no file was read" if result["status"] == "PARTLY" and not told else told
    lines.append(line("STATUS", f"{result['status']} ({told})" if told else result["status"]))
    return "".join(f"{line}\n" for line in lines)


def repair(result: RepairResult) -> str:
    """What one repair did (`steps.repair_step.run`); ends in a line feed."""
    lines = [human.printable(f"{result['dataset']}/{result['release']}"), line("By audit", result["audit"])]
    rows = [("=", path, how) for path, how in result["repaired"]]
    rows += [("!", path, f"left as it is: {why}") for path, why in result["unrepairable"]]
    rows += [("+", path, "not published, left for you to remove") for path in result["left"]]
    rows.sort(key=lambda row: "!+=".index(row[0]))
    lines += table(rows[:SHOWN])
    if len(rows) > SHOWN:
        lines.append(f"    and {human.count(len(rows) - SHOWN)} more")
    for name, paths in sorted(result["also_repaired"].items()):
        lines.append(line("Also", also_repaired(name, len(paths))))
    for name, count in sorted(result["also_in"].items()):
        lines.append(line("Also", also_in(name, count)))
    fetched = f"{human.size(result['fetched_bytes'])} in {human.duration(result['seconds'])}"
    lines.append(line("Fetched", fetched))
    if ends := result.get("fsync_ends"):
        lines.append(line("Durable", f"each fsync ended {ends}"))
    left = len(result["unrepairable"]) + len(result["left"])
    told = f"{human.count(len(result['repaired']))} repaired, {human.count(left)} left"
    if not rows:
        told = "the audits found nothing to repair"
    lines.append(line("STATUS", f"{result['status']} ({told})"))
    return "".join(f"{line}\n" for line in lines)


def also_repaired(release: str, count: int) -> str:
    """The sentence for a release that shared damaged files with the repaired one, and was repaired, too."""
    them = "1 file is" if count == 1 else f"{human.count(count)} files are"
    return f"{them} the same in release {release}, and repaired there, too"


def also_in(release: str, count: int) -> str:
    """The sentence for a release that shared damaged files with the repaired one, and still has them."""
    them = "1 damaged file is" if count == 1 else f"{human.count(count)} damaged files are"
    return f"{them} the same in release {release}, and not repaired there"


def overruled(result: OverruleResult) -> str:
    """What was overruled (`steps.audit_step.overrule`); ends in a line feed."""
    told = ", ".join(f"{human.count(n)} {kind}" for kind, n in sorted(result["counts"].items()))
    lines = [human.printable(f"{result['dataset']}/{result['release']}"), line("Reason", result["why"])]
    lines.append(line("STATUS", f"{result['status']} ({told or 'no finding stood'})"))
    return "".join(f"{line}\n" for line in lines)


def last(shown: AuditShown) -> str:
    """The last audit of a release in one line: when, how much, the result, and what closed its findings."""
    audit = shown.audit
    counts = ", ".join(f"{human.count(n)} {kind}" for kind, n in sorted(audit.counts.items()))
    much = f"{human.count(audit.files)} of {human.counted(audit.of_files, 'file')}, {human.size(audit.bytes)}"
    left = ", ".join(f"{human.count(n)} {kind}" for kind, n in sorted(audit.skipped.items()))
    told = ", ".join(filter(None, (counts, left and f"not read: {left}")))
    text = f"{audit.ended}, {audit.choice}, {much}: {audit.status}" + (f" ({told})" * bool(told))
    return f"{text}, {shown.closed}" if shown.closed else text


def _skipped(result: AuditResult) -> list[str]:
    """What was not opened, since its data is not here."""
    lines = []
    for kind, one in sorted(result["skipped"].items()):
        amount = f"{human.counted(one['files'], 'file')}, {human.size(one['bytes'])}: {kind}"
        lines.append(line("Not read", amount))
        lines += table(("?", path, f"{kind}: {why}") for path, why in one["paths"])
        if one["files"] > len(one["paths"]):
            lines.append(f"    and {human.count(one['files'] - len(one['paths']))} more")
    if result["all_skipped"]:
        lines.append(line("All of them", result["all_skipped"]))
    return lines


def _findings(result: AuditResult) -> list[str]:
    total = sum(result["counts"].values())
    ordered = sorted(result["findings"], key=lambda finding: KINDS.index(finding.kind))
    lines = table((finding.mark, finding.path, _why(finding)) for finding in ordered[:SHOWN])
    if total > len(lines):
        lines.append(f"    and {human.count(total - len(lines))} more")
    if total:
        lines.append(line("All", human.printable(result["all_findings"])))
    return lines


def _why(finding: Finding) -> str:
    parts = finding.parts
    if not parts:
        return finding.why
    shown = ", ".join(map(str, parts[:10])) + (", ..." if len(parts) > 10 else "")
    return f"part{'s' if len(parts) > 1 else ''} {shown}: {finding.why}"


def table(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    """A line for each (mark, path, why)."""
    return [f"  {mark} {human.printable(path)}  ({human.printable(why)})" for mark, path, why in rows]


def line(title: str, value: object) -> str:
    """A line of a table, with its title."""
    return text_block.field(title, str(value), width=WIDTH)[0]
