# penstock's workflow: a table of contents.
#
#   snakemake                                  stage every dataset of config.yaml, here
#   snakemake --configfile my.yaml             ... of another configuration
#   snakemake --config dataset=imagenet        one of its datasets (or `[a, b]`)
#   snakemake --config engine='{limit: 1GiB/s}'  what goes before the configuration file
#   snakemake --profile slurm                  by job arrays on a SLURM cluster
#   snakemake audit                            read what is published back, and compare
#
# `penstock run` does the same, with a summary and the exit statuses of the README.
from snakemake.utils import min_version

min_version("9.14")


include: "workflow/rules/common.smk"
include: "workflow/rules/controller.smk"
include: "workflow/rules/list.smk"
include: "workflow/rules/plan.smk"
include: "workflow/rules/transfer.smk"
include: "workflow/rules/publish.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/audit.smk"


# Every dataset listed now, and what it listed published and reported.
rule all:
    default_target: True
    input:
        expand(
            "results/.workflow/list/{invocation}-{group}.json",
            invocation=INVOCATION,
            group=GROUPS,
        ),
        [staged(name) for name in DATASETS],
