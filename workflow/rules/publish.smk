# The closing walk, the seal, the one rename, the pointer.


rule publish_release:
    input:
        verified=rules.verify_shards.output.receipt,
    output:
        receipt="results/{dataset}/{run}/publish.json",
    log:
        "results/{dataset}/{run}/logs/publish.log",
    localrule: True
    conda:
        "../../envs/penstock.yaml"
    params:
        penstock=penstock,
    shell:
        "{params.penstock:q} step publish {wildcards.dataset:q} --run {wildcards.run:q}"
        " --receipt {output.receipt:q} --log {log:q}"
