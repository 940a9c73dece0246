# Is everything as it must be, before anything is changed?


rule try_surroundings:
    output:
        receipt="results/{dataset}/preflight/{invocation}.json",
    log:
        "results/{dataset}/logs/preflight-{invocation}.log",
    benchmark:
        "results/{dataset}/benchmarks/preflight-{invocation}.tsv"
    conda:
        "../../envs/penstock.yaml"
    params:
        penstock=penstock,
    shell:
        "{params.penstock:q} preflight {wildcards.dataset:q} --receipt {output.receipt:q} --log {log:q}"
