# What the rules share: the configuration, the command line, what `all` wants.
#
# Dataset bytes are never outputs. The DAG carries receipts, small JSON files below results/:
#   results/.workflow/list/<invocation>-<group>.json   never there at the start, so list always runs
#   results/<dataset>/<run>/<step>.json                `run` names the content: unchanged, nothing to do
import functools
import json
import os
import sys
import time

from penstock.config.loader import load
from penstock.errors import PenstockError
from penstock.runtime import interpreter
from penstock.steps import dry_run
from penstock.views import result_texts

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
    group="[0-9]{2}",


DATASETS = chosen_datasets()


def penstock(wildcards, resources):
    """The words that every rule's command begins with. A profile's `default-resources:
    backend=slurm` goes before the configuration, also when the user brings their own file.
    """
    words = [*interpreter.command("penstock"), "--config", CONFIG_FILE]
    backend = resources.get("backend")
    return [*words, "--backend", backend] if backend else words


# At most so many listing jobs; of more datasets than that some share one.
LISTINGS = 16
GROUPS = {
    f"{number:02d}": DATASETS[number::LISTINGS]
    for number in range(min(LISTINGS, len(DATASETS)))
}


def listing_of(name):
    """The receipt of the listing job that the dataset is in."""
    group = f"{DATASETS.index(name) % LISTINGS:02d}"
    return f"results/.workflow/list/{INVOCATION}-{group}.json"


@functools.cache
def say_what_would_be(step):
    """Once, in a dry run: Snakemake's own lists no jobs behind a listing that is still to be made."""
    if workflow.dryrun:
        print(
            result_texts.preview(dry_run.run(CONFIG, DATASETS, step), step), flush=True
        )


@functools.cache
def read_listing(receipt):
    with open(receipt, encoding="utf-8") as file:
        return json.load(file)


def staged(name):
    """An input function for each dataset: what is left to do for it. Snakemake evaluates it anew
    when its listing job has ended."""
    group = f"{DATASETS.index(name) % LISTINGS:02d}"

    def wanted(wildcards):
        say_what_would_be("run")
        listing = checkpoints.list_sources.get(invocation=INVOCATION, group=group)
        found = read_listing(listing.output.receipt)
        if name in found["failed"]:
            return f"results/{name}/refused/{INVOCATION}.json"
        listed = found["listed"][name]
        receipt = f"results/{name}/{listed['run']}/report.json"
        # Published and reported: five more jobs in the graph that have nothing to do.
        return [] if listed["published"] and os.path.exists(receipt) else receipt

    return wanted


def audits(wildcards):
    say_what_would_be("audit")
    return [f"results/{name}/audit/{INVOCATION}.json" for name in DATASETS]


def audit_options(wildcards):
    """Of `--config`, what `penstock audit` takes; it says what is wrong with a value itself."""
    names = ("fraction", "sample", "limit", "release")
    return [
        f"--{name}={config[name]}" for name in names if config.get(name) is not None
    ]
