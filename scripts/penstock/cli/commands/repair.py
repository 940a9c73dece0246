"""`penstock repair`: fetches anew what the last audit found damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import flags, step_runner
from penstock.cli.command_table import CommandFunctions
from penstock.core import human
from penstock.core.findings import also_in, also_repaired
from penstock.look.views.result_texts import SHOWN, line, table

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session
    from penstock.core.step_results import RepairResult

EXAMPLES = ("penstock repair imagenet", "penstock repair imagenet --release 20261101-1f2e3d4c")


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.datasets(parser)
    flags.release_option(parser)


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Repair each dataset in turn by its newest finished audit."""
    from penstock.keep import repair_step

    return step_runner.run_each(
        parsed,
        session,
        lambda context, name: repair_step.run(context, name, parsed.release),
        render,
        repair_step.judge,
    )


def render(result: RepairResult) -> str:
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


REPAIR = CommandFunctions(arguments, run, EXAMPLES)
