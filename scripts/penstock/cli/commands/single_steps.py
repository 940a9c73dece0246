"""The steps of a run as commands: `penstock step NAME`, as Snakemake calls them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

from penstock.cli import flags, step_runner
from penstock.cli.command_table import CommandFunctions
from penstock.cli.error_report import failure
from penstock.core import human
from penstock.core.errors import FailedError, InterruptedRunError
from penstock.fs import small_files
from penstock.look.views import run_summary
from penstock.look.views.text_layout import block
from penstock.workflow import controller, workflow_receipts

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session
    from penstock.core.step_results import ListResult, PlanResult, PreflightResult
    from penstock.dataset.context import Context


# `penstock step copy`, `permissions`, `verify`, `publish`: these print nothing but progress.

STEP_EXAMPLES = ("penstock step STEP imagenet", "penstock step STEP imagenet --receipt STEP.json")


def step_arguments(parser: argparse.ArgumentParser) -> None:
    flags.json_document(parser)
    flags.datasets(parser)
    flags.run(parser)


def run_single_step(parsed: argparse.Namespace, session: Session) -> int:
    return step_runner.run(parsed, session)


COPY = PERMISSIONS = VERIFY = PUBLISH = CommandFunctions(step_arguments, run_single_step, STEP_EXAMPLES)


LIST_EXAMPLES = ("penstock step list imagenet", "penstock step list imagenet --receipt list.json")


def list_arguments(parser: argparse.ArgumentParser) -> None:
    flags.json_document(parser)
    flags.datasets(parser)
    flags.new_release(parser)


def run_list(parsed: argparse.Namespace, session: Session) -> int:
    return step_runner.run(parsed, session, render_listing)


def render_listing(result: ListResult) -> str:
    amount = f"{human.counted(result['files'], 'file')}, {human.size(result['bytes'])}"
    rows = [
        ("Scanned", human.counted(result["scanned"], "object")),
        ("Left out", ", ".join(human.of_kinds(result["ignored"]))),
        ("To stage", "" if result["published"] else amount),
        ("Release", f"{result['release']}{', published already' if result['published'] else ''}"),
        ("Current", result["current"] or "none"),
    ]
    return block(result["dataset"], rows)


LIST = CommandFunctions(list_arguments, run_list, LIST_EXAMPLES)


PLAN_EXAMPLES = ("penstock step plan imagenet", "penstock step plan imagenet --receipt plan.json")


def plan_arguments(parser: argparse.ArgumentParser) -> None:
    flags.json_document(parser)
    flags.datasets(parser)
    flags.run(parser)
    flags.copy_unchanged(parser)


def run_plan(parsed: argparse.Namespace, session: Session) -> int:
    return step_runner.run(parsed, session, render_plan)


def render_plan(result: PlanResult) -> str:
    files, size = result["files"] - result["unchanged"], result["bytes"] - result["unchanged_bytes"]
    unchanged = f"{human.counted(result['unchanged'], 'file')}, {human.size(result['unchanged_bytes'])}"
    rows = [
        ("Release", f"{result['release']}{', published already' if result['published'] else ''}"),
        ("To copy", f"{human.counted(files, 'file')}, {human.size(size)}"),
        ("Unchanged", f"{unchanged}, of {result['base']}" if result["unchanged"] else ""),
        ("Renamed", f"{human.count(result['renamed'])} of them" if result["renamed"] else ""),
        ("Giants", human.count(result["giants"]) if result["giants"] else ""),
        ("Shards", human.count(result["shards"]) if result["shards"] else ""),
        *(("", text) for text in result["why"]),
    ]
    return block(result["dataset"], rows)


PLAN = CommandFunctions(plan_arguments, run_plan, PLAN_EXAMPLES)


# `penstock step list-group`: preflight and list of several datasets, for the workflow.
#
# Snakemake evaluates its whole graph anew after each checkpoint: one for each dataset would take quadratic
# time. One checkpoint lists a group; its receipt holds what became of each dataset:
#
#     {"preflight": {dataset: result}, "listed": {dataset: result}, "failed": {dataset: exit_files.Left}}
#
# A failed listing fails no group: the workflow runs a job for that dataset that ends alike (`list-failure`).


def list_group_arguments(parser: argparse.ArgumentParser) -> None:
    flags.datasets(parser)
    flags.new_release(parser)


def run_list_group(parsed: argparse.Namespace, session: Session) -> int:
    """Preflight and list each dataset in turn; return 0 unless a signal ends it."""
    config = session.config()
    result = workflow_receipts.Listings(preflight={}, listed={}, failed={})
    results = None if parsed.receipt is None else workflow_receipts.results_of(parsed.receipt)
    # Warnings about the cluster are reported only once, with the first dataset.
    reported: set[str] = set()
    with session.context(config) as context:
        context.new_release = parsed.new_release
        for name in session.names(config, parsed.dataset):
            step = "preflight"
            try:
                warned = reported | (workflow_receipts.warnings(results, name) if results else set())
                before = None
                if results is not None:
                    before = workflow_receipts.published_before(results, context.layout(name))
                outcome = step_runner.run_step(step, context, name, warned=warned, before=before)
                checked = cast("PreflightResult", outcome)
                result["preflight"][name] = checked
                reported |= {*checked["warnings"]}
                step = "list"
                result["listed"][name] = _list(context, name, parsed.receipt)
            except InterruptedRunError:
                raise
            except Exception as error:  # noqa: BLE001 a bug in one dataset does not end the others
                failed = failure(error, session)
                left = controller.Left(step, failed.code, name, *failed[1:])
                result["failed"][name] = left._asdict()
                controller.leave_exit(left)
    session.receipt(result)
    if parsed.receipt is not None:
        workflow_receipts.forget(workflow_receipts.results_of(parsed.receipt), time.time())
    return 0


def _list(context: Context, name: str, receipt: Path | None) -> ListResult:
    listed = cast("ListResult", step_runner.run_step("list", context, name))
    if receipt is not None:
        workflow_receipts.tidy(workflow_receipts.results_of(receipt), context.layout(name), listed)
    return listed


LIST_GROUP = CommandFunctions(list_group_arguments, run_list_group)


def list_failure_arguments(parser: argparse.ArgumentParser) -> None:
    flags.dataset(parser)
    parser.add_argument("--group", type=Path, required=True, metavar="FILE", help="what `list-group` wrote")


def run_list_failure(parsed: argparse.Namespace, session: Session) -> int:
    """End with the message and exit status of the dataset's listing."""
    name = session.only(session.config(), parsed.dataset)
    try:
        left = controller.Left(**small_files.read_json(parsed.group)["failed"][name])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FailedError(
            "what became of a listing cannot be read", where=str(parsed.group), why=str(error)
        ) from None
    session.failed = left.command
    session.failure = controller.CommandFailure(
        left.exit, f"{name}: {left.text}", left.reason, left.cancelled, left.overtaken
    )
    return left.exit


LIST_FAILURE = CommandFunctions(list_failure_arguments, run_list_failure)


# `penstock report`: the HTML report, and the closing summary.

REPORT_EXAMPLES = ("penstock report imagenet", "penstock report imagenet --html report.html")


def report_arguments(parser: argparse.ArgumentParser) -> None:
    flags.json_document(parser)
    flags.datasets(parser)
    flags.run(parser)
    parser.add_argument(
        "--html",
        type=flags.written("PAGE"),
        metavar="FILE",
        help="write the HTML report here (default: none)",
    )


def run_report(parsed: argparse.Namespace, session: Session) -> int:
    options = {} if parsed.html is None else {"html": parsed.html}
    return step_runner.run(parsed, session, run_summary.render, **options)


REPORT = CommandFunctions(report_arguments, run_report, REPORT_EXAMPLES)
