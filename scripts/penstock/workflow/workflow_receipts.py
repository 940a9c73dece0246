"""Compares the workflow's receipts in `results/` with the state of runs on the target, which is not changed.

results/.workflow/list/<invocation>-<group>.json    the results of `list-group`, in one run of Snakemake
results/.workflow/configurations/<digest>.yaml      the steps' configuration, if they cannot read its file
results/<dataset>/<run>/<step>.json                 the receipt that the step returned
results/<dataset>/<run>/report.html, elements.parquet
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from penstock.core.layout import DATA
from penstock.core.run_steps import AFTER_LIST
from penstock.dataset import run_store
from penstock.dataset.context import layout_of
from penstock.dataset.submitted_arrays import INVOCATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.config.settings import Config
    from penstock.core.layout import DatasetLayout
    from penstock.core.step_results import ListResult, PreflightResult

RESULTS = Path("results")  # folder in the working directory
LISTINGS = Path(".workflow", "list")  # below `results/`
KEPT = 20  # last invocations whose listings stay, as a record of the sources' contents; and runs of a dataset
AGE = 30 * 86400.0  # seconds for which the files of further runs stay
_RUN = "[0-9a-f]" * 16


def results_of(receipt: Path) -> Path:
    """Return the folder `results` that contains a group's receipt."""
    return receipt.parents[len(LISTINGS.parts)]


def invocation(results: Path, begun: int) -> str:
    """Return the number of this workflow run, which is that of the `penstock run` above. If there is none, or
    an earlier run used it, return the time of the beginning (in ns), to keep the runs' listings apart."""
    number = os.environ.get(INVOCATION, "")
    fresh = re.fullmatch("[0-9]{20}", number) and not any((results / LISTINGS).glob(f"{number}-*"))
    return number if fresh else f"{begun:020d}"


def last_invocation(results: Path) -> str | None:
    """Return the number of the last run that listed anything."""
    listed = (path.name.partition("-")[0] for path in (results / LISTINGS).glob("*-*.json"))
    return max(listed, default=None)


class Listings(TypedDict):
    """The results for a group's datasets, by name."""

    preflight: dict[str, PreflightResult]
    listed: dict[str, ListResult]
    failed: dict[str, dict[str, object]]  # the `controller.Left` of each dataset that cannot be listed


def listings(results: Path, invocation: str) -> Listings:
    """Merge the groups of an invocation."""
    merged = Listings(preflight={}, listed={}, failed={})
    for path in sorted((results / LISTINGS).glob(f"{invocation}-*.json")):
        try:
            group: Listings = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        merged["preflight"] |= group.get("preflight", {})
        merged["listed"] |= group.get("listed", {})
        merged["failed"] |= group.get("failed", {})
    return merged


def warnings(results: Path, dataset: str) -> set[str]:
    """Return preflight's warnings from its last success for this dataset, according to the kept listings."""
    invocations = {path.name.partition("-")[0] for path in (results / LISTINGS).glob("*-*.json")}
    for earlier in sorted(invocations, reverse=True):
        checked = listings(results, earlier)["preflight"].get(dataset)
        if checked is not None:
            return {*checked.get("warnings", ())}
    return set()


def published_before(results: Path, layout: DatasetLayout) -> Path | None:
    """Return a receipt of the dataset's publication below this root."""
    for path in sorted((results / layout.dataset).glob("*/publish.json")):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))["path"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if str(data).startswith(f"{layout.releases}/"):
            return path
    return None


def published(results: Path, invocation: str, config: Config) -> Iterator[str]:
    """Yield a line for each published dataset of this invocation: its release and path."""
    for name, listed in listings(results, invocation)["listed"].items():
        layout = layout_of(config.target, name)
        if run_store.sealed_run(layout, listed["release"]) == listed["run"]:
            yield f"{name}: {listed['release']} is published, in {layout.release(listed['release']) / DATA}"


def tidy(results: Path, layout: DatasetLayout, listed: ListResult) -> None:
    """Remove the receipts of a run that is gone from the target, so that Snakemake repeats its steps."""
    run = results / layout.dataset / listed["run"]
    if _stale(run, layout, listed):
        for step in AFTER_LIST:
            (run / f"{step}.json").unlink(missing_ok=True)


def forget(results: Path, now: float) -> None:
    """Remove the listings of all but the last KEPT invocations, and a dataset's receipts, logs and reports,
    except those of its last KEPT runs and those younger than AGE. `now`: seconds since the epoch. Releases
    are not touched: `penstock report` makes a report again."""
    folder = results / LISTINGS
    listed = sorted(folder.glob("*-*"))
    kept = set(sorted({path.name.partition("-")[0] for path in listed})[-KEPT:])
    for path in listed:
        if path.name.partition("-")[0] not in kept:
            path.unlink(missing_ok=True)
    # Other workflows may have files here: only names that penstock gives are removed.
    for dataset in results.glob("[!.]*/"):
        for path in (*_older(dataset.glob(_RUN), now), *_older(dataset.glob("logs/refused-*.log"), now)):
            if path.is_symlink() or not path.is_dir():
                path.unlink(missing_ok=True)
            else:
                shutil.rmtree(path, ignore_errors=True)


def _older(paths: Iterable[Path], now: float) -> list[Path]:
    aged = sorted(((path.lstat().st_mtime, path) for path in paths), reverse=True)
    return [path for changed, path in aged[KEPT:] if now - changed > AGE]


def _stale(run: Path, layout: DatasetLayout, listed: ListResult) -> bool:
    """
    plan on the target | published | publish.json here | staging | stale
    no                 | any       | any               | any     | yes
    yes                | yes       | any               | any     | no
    yes                | no        | yes               | any     | yes, the release is gone
    yes                | no        | no                | yes     | no
    yes                | no        | no                | no      | yes
    """
    if not layout.run(listed["run"]).plan.exists():
        return True
    if listed["published"]:
        return False
    return (run / "publish.json").exists() or not layout.staging(listed["release"]).exists()
