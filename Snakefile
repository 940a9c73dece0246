# The workflow of workflow/Snakefile, for a checkout:
#
#   snakemake                                  stage every dataset of config.yaml, here
#   snakemake --configfile my.yaml             ... of another configuration
#   snakemake --config dataset=imagenet        one of its datasets (or `[a, b]`)
#   snakemake --config engine='{limit: 1GiB/s}'  what goes before the configuration file
#   snakemake --profile slurm                  by job arrays on a SLURM cluster
#   snakemake audit                            read what is published back, and compare
#   snakemake --report report.html             what the last run staged, as one page
#
# `penstock run` does the same, with a summary and the exit statuses of the README.
include: "workflow/Snakefile"


# Snakemake takes no default target from an included file.
rule stage:
    default_target: True
    input:
        rules.all.input,
