"""Commands about a published release: `penstock audit` reads it back and compares it with its manifest,
`repair` fetches anew what the last audit found damaged, `sign` signs it, and `describe` prints it in a
standard form.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from penstock.cli import flags, output, step_runner
from penstock.cli.command_table import CommandFunctions
from penstock.config.quantities import read_rate
from penstock.core import human
from penstock.core.findings import AuditSelection, also_in, also_repaired, parse_fraction, parse_turns
from penstock.look.views.text_layout import (
    METHODS,
    SHOWN,
    line,
    table,
)

if TYPE_CHECKING:
    from penstock.cli.session import Session
    from penstock.core.findings import Finding
    from penstock.core.step_results import AuditResult, OverruleResult, RepairResult


AUDIT_EXAMPLES = ("penstock audit imagenet --fraction 1/30", "penstock audit imagenet --limit 200MiB/s")
KINDS = ("manifest", "missing", "folder", "changed", "replaced", "unread", "mode", "extra")


def audit_arguments(parser: argparse.ArgumentParser) -> None:
    flags.json_document(parser)
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


def run_audit(parsed: argparse.Namespace, session: Session) -> int:
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
        render_audit,
        audit_step.judge,
    )


def render_audit(result: AuditResult) -> str:
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


AUDIT = CommandFunctions(audit_arguments, run_audit, AUDIT_EXAMPLES)


REPAIR_EXAMPLES = ("penstock repair imagenet", "penstock repair imagenet --release 20261101-1f2e3d4c")


def repair_arguments(parser: argparse.ArgumentParser) -> None:
    flags.json_document(parser)
    flags.datasets(parser)
    flags.release_option(parser)


def run_repair(parsed: argparse.Namespace, session: Session) -> int:
    """Repair each dataset in turn by its newest finished audit."""
    from penstock.keep import repair_step

    return step_runner.run_each(
        parsed,
        session,
        lambda context, name: repair_step.run(context, name, parsed.release),
        render_repair,
        repair_step.judge,
    )


def render_repair(result: RepairResult) -> str:
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
    note = f"{human.count(len(result['repaired']))} repaired, {human.count(left)} left"
    if not rows:
        note = "the audits found nothing to repair"
    lines.append(line("STATUS", f"{result['status']} ({note})"))
    return "".join(f"{line}\n" for line in lines)


REPAIR = CommandFunctions(repair_arguments, run_repair, REPAIR_EXAMPLES)


SIGN_EXAMPLES = ("penstock sign imagenet", "penstock sign imagenet 20261101-1f2e3d4c")


def sign_arguments(parser: argparse.ArgumentParser) -> None:
    flags.json_document(parser)
    flags.dataset(parser, "name")
    flags.release(parser)


def run_sign(parsed: argparse.Namespace, session: Session) -> int:
    from penstock.keep import release_supplements

    config = session.config()
    name = session.only(config, parsed.name)
    with session.context(config) as context:
        done = release_supplements.sign(context, name, parsed.release)
    what = f"{name}: {done['release']}"
    output.show(
        f"{what} is signed" if done["signed"] else f"{what} was signed already, and the signature holds"
    )
    session.receipt(done)
    return 0


SIGN = CommandFunctions(sign_arguments, run_sign, SIGN_EXAMPLES)


DESCRIBE_EXAMPLES = (
    "penstock describe imagenet",
    "penstock describe imagenet 20261101-1f2e3d4c > croissant.json",
)


def describe_arguments(parser: argparse.ArgumentParser) -> None:
    flags.dataset(parser, "name")
    flags.release(parser)


def run_describe(parsed: argparse.Namespace, session: Session) -> int:
    """Print a release's description; name on standard error what catalogues want in addition."""
    from penstock.keep import release_supplements

    config = session.config()
    name = session.only(config, parsed.name)
    with session.context(config) as context:
        description = release_supplements.describe(context, name, parsed.release)
        for piece in description.pieces:
            output.show_piece(piece)
    if description.left_out:
        keys = ", ".join(f"`{key}`" for key in description.left_out)
        output.say(f"{name}: catalogues ask for more than the file that `describe` names has: {keys}")
    session.receipt({"dataset": name, "release": description.release, "left_out": list(description.left_out)})
    return 0


DESCRIBE = CommandFunctions(describe_arguments, run_describe, DESCRIBE_EXAMPLES)
