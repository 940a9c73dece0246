"""What a run would do, and how long its copy would take. Nothing is changed.

The sources are listed in TMPDIR; as in `penstock status`, the cluster is queried for arrays of an unfinished
run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from penstock.config.assumption import Assumption
from penstock.core import estimates, human
from penstock.core.errors import PenstockError
from penstock.look import explanation, status_report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.step_results import DryRunResult, Preview, StatusResult
    from penstock.dataset.context import Context


def run(context: Context, datasets: Sequence[str], step: str = "run") -> DryRunResult:
    """Preview `run` or `audit`: {"datasets": {name: {sources, target, backend, state, ...}}}. Errors in
    reading a dataset go into its `problem`."""
    return {"datasets": {name: _one(context, name, step) for name in datasets}}


def _one(context: Context, name: str, step: str) -> Preview:
    dataset = context.dataset(name)
    preview: Preview = {
        "dataset": name,
        "sources": [source.url for source in dataset.sources],
        "target": str(context.layout(name).folder),
        "backend": context.config.cluster.backend,
    }
    try:
        status = status_report.run(context, name)
    except (PenstockError, OSError) as error:
        return {**preview, "problem": str(error)}
    kept = ("state", "current", "files", "bytes", "lock")
    shown = {key: value for key, value in status.items() if key in kept}
    if why := status.get("why"):
        shown["state"] = f"{status['state']}: {why}"
    takes = {} if step == "audit" or status.get("seen") else {"takes": _takes(context, name)}
    return cast("Preview", {**preview, **shown, "would": _would(status, step), **takes})


def _takes(context: Context, name: str) -> str:
    try:
        plan = explanation.of_dataset(context, name, Assumption())
    except (PenstockError, OSError) as error:
        return f"not known: {error}"
    copied = f"{human.counted(plan.copied.files, 'file')}, {human.size(plan.copied.bytes or 0)}"
    if not plan.copied.files:
        return "nothing is copied"
    return f"{copied}; {estimates.sentence(plan.forecast, plan.nodes)}"


def _would(status: StatusResult, step: str) -> str:
    """Describe the next action in words.

    | command | published | a run is under way | then                                         |
    |---------|-----------|--------------------|----------------------------------------------|
    | audit   | no        |                    | there is nothing to audit                    |
    | audit   | yes       |                    | read `current` back                          |
    | run     | no        | no                 | list, and stage all of it                    |
    | run     | yes       | no                 | list, and stage what changed                 |
    | run     | any       | yes                | list, and go on where the source is the same |

    If another account stages the dataset, a run by this account would do nothing.
    """
    current, following = status.get("current"), status.get("work", {}).get("step")
    if step == "audit":
        return f"read release {current} back and compare it" if current else "nothing: no release to audit"
    if status.get("seen"):
        return "nothing: another account stages this dataset, and a run by this one is refused"
    if following:
        return f"list the source; if it is unchanged, go on with {following}, else begin a new release"
    if current:
        return f"list the source; if it changed, stage a new release that links what {current} has"
    return "list the source, and copy, verify and publish all of it"
