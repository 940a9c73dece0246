# What the rules share: the configuration, the command line, what `all` wants.
#
# Dataset bytes are never outputs. The DAG carries receipts, small JSON files below results/:
#   results/<dataset>/list/<invocation>.json    never there at the start, so list always runs
#   results/<dataset>/<run>/<step>.json         `run` names the content: unchanged, nothing to do
import json
import os
import sys
import time

from penstock.config.loading import load
from penstock.errors import PenstockError

if len(workflow.configfiles) != 1:
    raise WorkflowError(
        "penstock takes one configuration file: snakemake --configfile my.yaml "
        "(profiles/default names config.yaml)"
    )

CONFIG_FILE = os.path.abspath(workflow.configfiles[0])
try:
    CONFIG = load(CONFIG_FILE)
except PenstockError as error:
    raise WorkflowError(str(error)) from None

# The same in a Snakemake that runs inside this one, another in the next run.
INVOCATION = os.environ.setdefault("PENSTOCK_INVOCATION", f"{time.time_ns():020d}")


def chosen_datasets():
    """All of the configuration's, or those of `--config dataset=NAME` or `dataset='[A, B]'`."""
    chosen = config.get("dataset")
    if chosen is None:
        return list(CONFIG.datasets)
    names = [str(name) for name in (chosen if isinstance(chosen, list) else [chosen])]
    for name in names:
        if name not in CONFIG.datasets:
            known = ", ".join(CONFIG.datasets)
            raise WorkflowError(
                f"no dataset is named {name!r}: {CONFIG_FILE} has {known}"
            )
    return names


wildcard_constraints:
    dataset="[A-Za-z0-9][A-Za-z0-9._-]*",
    run="[0-9a-f]{16}",
    invocation="[0-9]{20}",


DATASETS = chosen_datasets()


def penstock(wildcards, resources):
    """The words that every rule's command begins with. A profile's `default-resources:
    backend=slurm` goes before the configuration, also when the user brings their own file.
    """
    words = [sys.executable, "-m", "penstock", "--config", CONFIG_FILE]
    backend = resources.get("backend")
    return [*words, "--backend", backend] if backend else words


def listed_run(name):
    """The run that list made or met. Snakemake evaluates this anew when list has ended."""
    receipt = checkpoints.list_source.get(
        dataset=name, invocation=INVOCATION
    ).output.receipt
    with open(receipt, encoding="utf-8") as file:
        return json.load(file)["run"]


def reported(name):
    """An input function for each dataset, so that one that cannot be listed does not keep the
    others waiting."""

    def receipt(wildcards):
        return f"results/{name}/{listed_run(name)}/report.json"

    return receipt


def audit_options(wildcards):
    """Of `--config`, what `penstock audit` takes; it says what is wrong with a value itself."""
    names = ("fraction", "sample", "limit", "release")
    return [
        f"--{name}={config[name]}" for name in names if config.get(name) is not None
    ]
