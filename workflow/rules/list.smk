# Is everything as it must be, and what do the sources hold now? Runs in every invocation; the runs that it
# names decide the rest.
#
# Snakemake evaluates the whole graph anew after each checkpoint: one for each dataset would make its
# time quadratic. So there are no more than LISTINGS of them, each of a group of datasets.


checkpoint list_sources:
    output:
        receipt="results/.workflow/list/{invocation}-{group}.json",
    log:
        "results/.workflow/list/{invocation}-{group}.log",
    localrule: True
    conda:
        "../../envs/penstock.yaml"
    params:
        penstock=penstock,
        datasets=lambda wildcards: GROUPS[wildcards.group],
        options=["--new-release"] if "new_release" in GIVEN.flags else [],
    shell:
        "{params.penstock:q} step list-group {params.datasets:q} {params.options:q}"
        " --receipt {output.receipt:q} --log {log:q}"


# Of a dataset that cannot be listed: fails as its listing failed, and keeps no other from being staged.
rule refuse_dataset:
    output:
        receipt="results/{dataset}/refused/{invocation}.json",
    log:
        "results/{dataset}/logs/refused-{invocation}.log",
    localrule: True
    conda:
        "../../envs/penstock.yaml"
    params:
        penstock=penstock,
        group=lambda wildcards: listing_of(wildcards.dataset),
    shell:
        "{params.penstock:q} step list-failure {wildcards.dataset:q} --group {params.group:q} --log {log:q}"
