"""The workflow's receipts in `results/` against the truth on the target.

results/<dataset>/list/<invocation>.json        one for each run of Snakemake
results/<dataset>/<run>/<step>.json             what that step returned
results/<dataset>/<run>/report.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.core.layout import DatasetLayout

KEPT = 20
"""Invocations whose small files stay: they say when the source was looked at, and what it held."""

OF_INVOCATIONS = (
    ("list", "*.json"),
    ("preflight", "*.json"),
    ("logs", "list-*.log"),
    ("logs", "preflight-*.log"),
    ("benchmarks", "list-*.tsv"),
    ("benchmarks", "preflight-*.tsv"),
)

STEPS = ("plan", "copy", "permissions", "verify", "publish", "report")


def tidy(receipt: Path, layout: DatasetLayout, listed: Mapping[str, Any]) -> None:
    """Remove the receipts of a run that is no longer on the target as they say (it was deleted, or
    its staging was): Snakemake then takes these steps again.

    `receipt` is where list's own result, `listed`, will go; the others lie beside its folder.
    """
    dataset = receipt.parent.parent
    run = dataset / str(listed["run"])
    if _stale(run, layout, listed):
        for step in STEPS:
            (run / f"{step}.json").unlink(missing_ok=True)
    for folder, pattern in OF_INVOCATIONS:
        for old in sorted((dataset / folder).glob(pattern))[:-KEPT]:
            old.unlink(missing_ok=True)


def _stale(run: Path, layout: DatasetLayout, listed: Mapping[str, Any]) -> bool:
    """
    plan on the target | published | publish.json here | staging | stale
    no                 | any       | any               | any     | yes
    yes                | yes       | any               | any     | no
    yes                | no        | yes               | any     | yes, the release is gone
    yes                | no        | no                | yes     | no
    yes                | no        | no                | no      | yes
    """
    if not layout.run(str(listed["run"])).plan.exists():
        return True
    if listed["published"]:
        return False
    return (run / "publish.json").exists() or not layout.staging(str(listed["release"])).exists()
