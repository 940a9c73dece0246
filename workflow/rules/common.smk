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

from penstock.workflow import controller, workflow_receipts, workflow_values
from penstock.host import interpreter
from penstock.cluster.registry import open_cluster
from penstock.dataset import submitted_arrays
from penstock.dataset.context import Context
from penstock.keep import notices
from penstock.run import rehearsal
from penstock.look.views import run_summary, text_layout

# The name under which another workflow uses this one, by `module`; None: it is itself the workflow.
MODULE = workflow.modifier.namespace
# Where a module's `prefix:` puts the receipts; and what it makes of a path, for functions below.
RESULTS = Path(workflow.modifier.path_modifier.replace_prefix("results/"))
modified = workflow.modifier.modify_path

try:
    words = workflow.config_settings.config_args or []
    if MODULE is None:
        workflow_values.refuse_doubled(sys.argv[1:])
        BASE = workflow_values.base(workflow.configfiles)
    else:
        BASE, words = workflow_values.module_base(
            workflow_values.ModuleInput(
                name=MODULE,
                values=config,
                outer=workflow.modifier_stack[0].globals["config"],
                files=workflow.configfiles,
                before_files=workflow.config_settings.overwrite_config,
            ),
            words,
        )
    GIVEN = workflow_values.parse(words)
    defaults = workflow.resource_settings.default_resources
    CONFIG, CONFIG_FILE = workflow_values.compose(
        BASE,
        GIVEN,
        RESULTS / ".workflow/configurations",
        write=not workflow.output_settings.dryrun,
        backend=workflow_values.backend(defaults.args if defaults else ()),
    )
    DATASETS = workflow_values.chosen(GIVEN, CONFIG)
except PenstockError as error:
    raise WorkflowError(str(error)) from None


wildcard_constraints:
    dataset="[A-Za-z0-9][A-Za-z0-9._-]*",
    run="[0-9a-f]{16}",
    invocation="[0-9]{20}",
    group="[0-9]{2}",


def looked_at():
    """Whether nothing is to be run: `--report`, `--summary`, `--dag` and such."""
    return workflow.is_main_process and workflow.execution_settings is None


@functools.cache
def invocation():
    """The number of this run of the workflow. Where nothing is run, that of the last one: what it listed is
    what is shown."""
    last = workflow_receipts.last_invocation(RESULTS) if looked_at() else None
    if last is None and workflow.is_main_process:
        begun = int(workflow.start_time.timestamp() * 1_000_000) * 1_000
        last = workflow_receipts.invocation(RESULTS, begun)
    if last is not None:
        # The steps read it in their environment, and so do other Snakemakes of this run.
        os.environ[submitted_arrays.INVOCATION] = last
        workflow.register_envvars(submitted_arrays.INVOCATION)
    return os.environ[submitted_arrays.INVOCATION]


def penstock(wildcards, resources):
    """The words that every rule's command begins with. A profile's `default-resources:
    backend=slurm` goes before the configuration, also when the user brings their own file.
    """
    take_control()
    words = [*interpreter.command("penstock"), "--config", CONFIG_FILE]
    backend = resources.get("backend")
    return [*words, "--backend", backend] if backend else words


def engine(wildcards):
    """Of the engines that a profile allows at once (`resources: engine=1`): one that runs on this machine
    takes all of it, and on SLURM it runs on nodes."""
    return 0 if CONFIG.cluster.backend == "slurm" else 1


# At most so many listing jobs; of more datasets than that some share one.
LISTINGS = 16
GROUPS = {
    f"{number:02d}": DATASETS[number::LISTINGS]
    for number in range(min(LISTINGS, len(DATASETS)))
}


def group_of(name):
    """The listing job that the dataset is in."""
    return f"{DATASETS.index(name) % LISTINGS:02d}"


def listing_of(name):
    """The receipt of that job."""
    return str(RESULTS / ".workflow/list" / f"{invocation()}-{group_of(name)}.json")


def listings(wildcards):
    """The receipts of all listing jobs."""
    return [
        modified(f"results/.workflow/list/{invocation()}-{group}.json")
        for group in GROUPS
    ]


def stop(error):
    """Of an error that is raised in a function, Snakemake would show where that stands in these files."""
    logger.error(f"penstock: {error}")
    sys.exit(1)


@functools.cache
def begin(step):
    """Once. In a dry run it says what would be: Snakemake's own lists no jobs behind a listing that is still
    to be made."""
    try:
        workflow_values.refuse_unused(GIVEN, workflow.dag_settings.targets)
    except PenstockError as error:
        stop(error)
    take_control()
    if workflow.dryrun:
        context = Context(CONFIG, open_cluster(CONFIG.cluster))
        print(
            text_layout.preview(rehearsal.dry_run(context, DATASETS, step), step),
            flush=True,
        )


def send_notices():
    """What `notify` says; a line for each that did not arrive."""
    if BASE.file is not None:
        for name, lines in notices.send(CONFIG, BASE.file).items():
            for line in lines:
                logger.warning(f"{name}: {line}")


@functools.cache
def read_listing(receipt):
    with open(receipt, encoding="utf-8") as file:
        return json.load(file)


def staged(name):
    """An input function for each dataset: what is left to do for it. Snakemake evaluates it anew
    when its listing job has ended. Of a module called `penstock`, a rule of the outer workflow waits for one
    dataset by `penstock.staged("imagenet")`."""
    if name not in DATASETS:
        raise WorkflowError(
            f"no dataset is named {name}: there are {', '.join(DATASETS)}"
        )

    def wanted(wildcards):
        begin("run")
        listing = checkpoints.list_sources.get(
            invocation=invocation(), group=group_of(name)
        )
        group = read_listing(listing.output.receipt)
        if name in group["failed"]:
            refused = f"results/{name}/refused/{invocation()}.json"
            return [] if looked_at() else modified(refused)
        listed = group["listed"][name]
        receipt = modified(f"results/{name}/{listed['run']}/report.json")
        reported = os.path.exists(receipt)
        if looked_at():
            return receipt if reported else []
        # Published and reported: five more jobs in the graph that have nothing to do.
        return [] if listed["published"] and reported else receipt

    return wanted


def audits(wildcards):
    begin("audit")
    return [modified(f"results/{name}/audit/{invocation()}.json") for name in DATASETS]


def audit_options(wildcards):
    return [f"--{key}={text}" for key, text in GIVEN.audit.items()]


def reported(file):
    """What `snakemake --report` shows beside a file of a run."""

    def labels(wildcards, output):
        with open(output.receipt, encoding="utf-8") as receipt:
            return run_summary.labels(json.load(receipt), file)

    return labels
