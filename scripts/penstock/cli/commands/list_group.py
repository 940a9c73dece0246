"""`penstock step list-group`: preflight and list of several datasets, for the workflow.

Snakemake evaluates its whole graph anew after each checkpoint: one for each dataset would take quadratic
time. One checkpoint lists a group; its receipt holds what became of each dataset:

    {"preflight": {dataset: result}, "listed": {dataset: result}, "failed": {dataset: exit_files.Left}}

A failed listing fails no group: the workflow runs a job for that dataset that ends alike (`list-failure`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

from penstock.cli import flags, step_runner
from penstock.cli.command_table import CommandFunctions
from penstock.cli.error_report import failure
from penstock.core.errors import InterruptedRunError
from penstock.workflow import exit_files, workflow_receipts

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from penstock.cli.session import Session
    from penstock.core.step_results import ListResult, PreflightResult
    from penstock.dataset.context import Context


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.datasets(parser)
    flags.new_release(parser)


def run(parsed: argparse.Namespace, session: Session) -> int:
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
                left = exit_files.Left(step, failed.code, name, *failed[1:])
                result["failed"][name] = left._asdict()
                exit_files.leave(left)
    session.receipt(result)
    if parsed.receipt is not None:
        workflow_receipts.forget(workflow_receipts.results_of(parsed.receipt), time.time())
    return 0


def _list(context: Context, name: str, receipt: Path | None) -> ListResult:
    listed = cast("ListResult", step_runner.run_step("list", context, name))
    if receipt is not None:
        workflow_receipts.tidy(workflow_receipts.results_of(receipt), context.layout(name), listed)
    return listed


LIST_GROUP = CommandFunctions(arguments, run)
