"""`penstock audit`: reads a published release back and compares it with its manifest."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from penstock.cli import flags, step_runner
from penstock.cli.command_table import CommandFunctions
from penstock.config.quantities import read_rate
from penstock.core import human
from penstock.core.findings import AuditSelection, parse_fraction, parse_turns
from penstock.look.views.result_texts import (
    METHODS,
    SHOWN,
    line,
    table,
)

if TYPE_CHECKING:
    from penstock.cli.session import Session
    from penstock.core.findings import Finding
    from penstock.core.step_results import AuditResult, OverruleResult

EXAMPLES = ("penstock audit imagenet --fraction 1/30", "penstock audit imagenet --limit 200MiB/s")
KINDS = ("manifest", "missing", "folder", "changed", "replaced", "unread", "mode", "extra")


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.datasets(parser)
    flags.release_option(parser)
    much = parser.add_mutually_exclusive_group()
    much.add_argument(
        "--overrule", type=_reason, metavar="REASON",
        help="read nothing: the findings that stand need not keep jobs from the release",
    )  # fmt: skip
    much.add_argument(
        "--sample",
        type=flags.value(parse_fraction, flags.FRACTION),
        metavar="SHARE",
        help="read a random sample, such as 1%%",
    )
    much.add_argument(
        "--fraction", type=flags.value(parse_turns, "a fraction such as 1/30"), metavar="1/N",
        help="read the next slice of a rotation: N runs read everything, first what was read back within ten "
        "minutes of its writing",
    )  # fmt: skip
    parser.add_argument(
        "--limit",
        type=flags.value(read_rate),
        metavar="RATE",
        help="read no faster in all than this, such as 200MiB/s",
    )


def _reason(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("it takes a reason, for those who ask later")
    return text


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Audit each dataset in turn, also after a damaged one."""
    from penstock.keep import audit_step

    if parsed.overrule:
        return step_runner.run_each(
            parsed,
            session,
            lambda context, name: audit_step.overrule(context, name, parsed.overrule, parsed.release),
            overruled,
            lambda _: None,
        )
    request = audit_step.AuditRequest(
        release=parsed.release,
        choice=AuditSelection("sample", parsed.sample) if parsed.sample else AuditSelection(),
        rotate=parsed.fraction or 0,
        limit=parsed.limit,
    )
    return step_runner.run_each(
        parsed,
        session,
        lambda context, name: audit_step.run(context, name, request),
        render,
        audit_step.judge,
    )


def render(result: AuditResult) -> str:
    """Render an audit: at most SHOWN findings, the most serious first, the count of the rest and the file of
    all."""
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
    note = ", ".join(f"{human.count(counts[kind])} {kind}" for kind in KINDS if counts.get(kind))
    left = ", ".join(
        f"{human.count(skipped['files'])} {kind}" for kind, skipped in sorted(result["skipped"].items())
    )
    note = ", ".join(filter(None, (note, left and f"not read: {left}")))
    note = "no file was read" if result["status"] == "PARTLY" and not note else note
    lines.append(line("STATUS", f"{result['status']} ({note})" if note else result["status"]))
    return "".join(f"{line}\n" for line in lines)


def _skipped(result: AuditResult) -> list[str]:
    """List files whose data is not on this file system."""
    lines = []
    for kind, skipped in sorted(result["skipped"].items()):
        amount = f"{human.counted(skipped['files'], 'file')}, {human.size(skipped['bytes'])}: {kind}"
        lines.append(line("Not read", amount))
        lines += table(("?", path, f"{kind}: {why}") for path, why in skipped["paths"])
        if skipped["files"] > len(skipped["paths"]):
            lines.append(f"    and {human.count(skipped['files'] - len(skipped['paths']))} more")
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


def overruled(result: OverruleResult) -> str:
    counts = ", ".join(f"{human.count(n)} {kind}" for kind, n in sorted(result["counts"].items()))
    lines = [human.printable(f"{result['dataset']}/{result['release']}"), line("Reason", result["why"])]
    lines.append(line("STATUS", f"{result['status']} ({counts or 'no finding stood'})"))
    return "".join(f"{line}\n" for line in lines)


AUDIT = CommandFunctions(arguments, run, EXAMPLES)
