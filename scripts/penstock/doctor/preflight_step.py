"""preflight: checks, before a run begins, for everything that would stop it. Changes nothing.

Each problem is reported with its key or URL, and with advice. Problems are reported after the last check, so
that all are shown. Only an unreachable server of the target ends the checks early, since making a file on the
target would wait for the server. `doctor.preflight` has a module for each area.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.core import human, run_steps
from penstock.doctor.preflight import (
    cluster,
    readers,
    requirements,
    target_checks,
)
from penstock.doctor.preflight.results import (
    Answers,
    Looks,
    cap_folders,
    folders,
    roots,
)

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from penstock.core.errors import PenstockError
    from penstock.core.step_results import PreflightResult
    from penstock.dataset.context import Context

STEP = "preflight"


class Preflighted(NamedTuple):
    """The results of a preflight, and the error that stops the run, if any."""

    result: PreflightResult
    error: PenstockError | None


def run(
    context: Context, dataset: str, *, warned: Collection[str] = (), before: Path | None = None
) -> PreflightResult:
    """Check a dataset, its sources, target and cluster; return the receipt. Warnings that are in `warned` are
    only counted in one line of the report, but stay in the receipt. `before` is a receipt which shows that
    the dataset was published below this root. Raises PreflightError, NoSpaceError or ConfigError. Several
    errors are joined into a PreflightError, which has their exit status if it is the same for all."""
    result, error = look(context, dataset, warned, before)
    if error is not None:
        raise error
    return result


def look(
    context: Context, dataset: str, warned: Collection[str] = (), before: Path | None = None
) -> Preflighted:
    """Do the same as `run`, but return the error together with the results. Raises InterruptedRunError."""
    context.emit(run_steps.Started(dataset, STEP))
    config, layout = context.dataset(dataset), context.layout(dataset)
    looks = Looks(context)
    with looks.at("interpreter"):
        requirements.check_libraries(looks)
    with looks.at("target"):
        # This check comes first, since a client forgets a server's address after a failed call on it.
        shown, reached = target_checks.check_servers(layout, looks)
        if not reached:
            return Preflighted(looks.document(config.name), looks.error())
    answers = Answers(
        [*roots(context.config.target), *folders(config.sources), *cap_folders(context.config.bandwidth)]
    )
    with looks.at("target"):
        if not target_checks.check_vendor(context, config, layout, answers, looks, shown):
            return Preflighted(looks.document(config.name), looks.error())
    with looks.at("target"):
        target_checks.check_target(context, layout, answers, looks, before)
    with looks.at("signing key"):
        requirements.check_signing_key(layout, looks)
    with looks.at("mounts"):
        target_checks.check_mounts(context, config, answers, looks)
    with looks.at("readers"):
        readers.check_readers(config, layout, answers, looks)
    with looks.at("ACL"):
        readers.check_acl(context, config, layout, answers, looks)
    with looks.at("quotas"):
        target_checks.check_quotas(config, layout, answers, looks)
    with looks.at("evidence"):
        requirements.check_evidence(context, config, layout, answers, looks)
    with looks.at("sources"):
        requirements.check_sources(context, config, layout, answers, looks)
    with looks.at("bandwidth"):
        requirements.check_bandwidth(context, answers, looks)
    with looks.at("cluster"):
        cluster.check_cluster(context, config, answers, looks)
    preflighted = Preflighted(looks.document(config.name), looks.error())
    if preflighted.error is None:
        warnings = preflighted.result["warnings"]
        new = [text for text in warnings if text not in warned]
        for text in new:
            context.emit(run_steps.Warned(dataset, STEP, text))
        if again := len(warnings) - len(new):
            counted = human.counted(again, "warning")
            text = f"{counted} given before: `{context.program} preflight {dataset}` lists all"
            context.emit(run_steps.Noted(dataset, STEP, text))
        context.emit(run_steps.Ended(dataset, STEP, preflighted.result))
    return preflighted
