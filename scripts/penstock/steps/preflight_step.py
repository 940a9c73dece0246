"""preflight: checks everything that would stop a run, before it begins. Changes nothing.

Each problem names the key or the URL that it is about, and says what to do. All checks are made before
anything is reported, so that one run names all problems. What is looked at stands in `steps.preflight`, a
module for each area.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import events
from penstock.steps.preflight import cluster, evidence, group, interpreter, mounts, sources, target, vendor_tools
from penstock.steps.preflight.looks import Looks

if TYPE_CHECKING:
    from penstock.core.documents.step_results import PreflightResult
    from penstock.state.context import Context

STEP = "preflight"


def run(context: Context, dataset: str) -> PreflightResult:
    """Check one dataset, its sources, target and cluster. Returns the receipt {dataset, checked, warnings}.

    Raises PreflightError, NoSpaceError or ConfigError for what cannot work: one thing as it is, several
    as one PreflightError that names them all, with the exit status of all where they agree.
    """
    context.emit(events.Started(dataset, STEP))
    config, layout = context.dataset(dataset), context.layout(dataset)
    checked: list[str] = []
    warnings: list[str] = []
    looks = Looks(context)
    with looks:
        checked.append(interpreter.check())
    with looks:
        checked.append(target.check(context, layout, warnings))
    with looks:
        mounts.check(context, config, layout, warnings)
    with looks:
        checked.append(group.check(context, config))
    with looks:
        checked.extend(vendor_tools.check(context, config, layout, warnings))
    with looks:
        evidence.check(context, config, layout)
    with looks:
        checked.extend(sources.check(context, config, layout, looks))
    with looks:
        cluster.check(context, dataset, checked, warnings)
    looks.judge()
    for text in warnings:
        context.emit(events.Warned(dataset, STEP, text))
    receipt: PreflightResult = {"dataset": config.name, "checked": checked, "warnings": warnings}
    context.emit(events.Ended(dataset, STEP, receipt))
    return receipt
