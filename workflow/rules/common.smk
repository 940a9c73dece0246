# What the rules share: the configuration, the command line, what `all` wants.
#
# Dataset bytes are never outputs. The DAG carries receipts, small JSON files below results/:
#   results/.workflow/list/<invocation>-<group>.json   never there at the start, so list always runs
#   results/<dataset>/<run>/<step>.json                `run` names the content: unchanged, nothing to do
import functools
import json
import os
import sys
from pathlib import Path

from penstock.cli import workflow_receipts, workflow_values
from penstock.errors import PenstockError
from penstock.runtime import interpreter
from penstock.state import cancel_mark
from penstock.steps import dry_run
from penstock.views import result_texts

if len(workflow.configfiles) != 1:
    raise WorkflowError(
        "penstock takes one configuration file: snakemake --configfile my.yaml "
        "(profiles/default names config.yaml)"
    )

try:
    workflow_values.refuse_doubled(sys.argv[1:])
    GIVEN = workflow_values.parse(workflow.config_settings.config_args or [])
    defaults = workflow.resource_settings.default_resources
    CONFIG, CONFIG_FILE = workflow_values.compose(
        os.path.abspath(workflow.configfiles[0]),
        GIVEN,
        Path("results/.workflow/configurations"),
        write=not workflow.output_settings.dryrun,
        backend=workflow_values.backend(defaults.args if defaults else ()),
    )
    DATASETS = workflow_values.chosen(GIVEN, CONFIG, workflow.configfiles[0])
except PenstockError as error:
    raise WorkflowError(str(error)) from None

# The steps read it in their environment, and so would a Snakemake that ran inside this one.
if workflow.is_main_process:
    os.environ[cancel_mark.INVOCATION] = workflow_receipts.invocation(Path("results"))
INVOCATION = os.environ[cancel_mark.INVOCATION]


wildcard_constraints:
    dataset="[A-Za-z0-9][A-Za-z0-9._-]*",
    run="[0-9a-f]{16}",
    invocation="[0-9]{20}",
    group="[0-9]{2}",


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
def begin(step):
    """Once. In a dry run it says what would be: Snakemake's own lists no jobs behind a listing that is still
    to be made."""
    try:
        workflow_values.refuse_unused(GIVEN, workflow.dag_settings.targets)
    except PenstockError as error:
        raise WorkflowError(str(error)) from None
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
        begin("run")
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
    begin("audit")
    return [f"results/{name}/audit/{INVOCATION}.json" for name in DATASETS]


def audit_options(wildcards):
    return [f"--{key}={text}" for key, text in GIVEN.audit.items()]
