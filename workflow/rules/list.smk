# What does the source hold now? Runs in every invocation; the run it names decides the rest.


checkpoint list_source:
    input:
        preflight=rules.try_surroundings.output.receipt,
    output:
        receipt="results/{dataset}/list/{invocation}.json",
    log:
        "results/{dataset}/logs/list-{invocation}.log",
    benchmark:
        "results/{dataset}/benchmarks/list-{invocation}.tsv"
    conda:
        "../../envs/penstock.yaml"
    params:
        penstock=penstock,
    shell:
        "{params.penstock:q} list {wildcards.dataset:q} --receipt {output.receipt:q} --log {log:q}"
