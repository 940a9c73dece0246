# Which file goes into which shard, and is there room for all of them?


rule plan_shards:
    output:
        receipt="results/{dataset}/{run}/plan.json",
    log:
        "results/{dataset}/{run}/logs/plan.log",
    localrule: True
    conda:
        "../../envs/penstock.yaml"
    params:
        penstock=penstock,
        options=["--copy-unchanged"] if "copy_unchanged" in GIVEN.flags else [],
    shell:
        "{params.penstock:q} step plan {wildcards.dataset:q} {params.options:q} --run {wildcards.run:q}"
        " --receipt {output.receipt:q} --log {log:q}"
