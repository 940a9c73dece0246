# Is what was published still what was published? `snakemake audit`, of every dataset; it always reads
# anew (an audit that was stopped goes on). Findings fail the run. How much is read, and how fast:
#   --config fraction=1/30    the next slice of a rotation      --config sample=1%    a random sample
#   --config limit=200MiB/s   not faster than this, for each dataset


rule audit_release:
    output:
        receipt="results/{dataset}/audit/{invocation}.json",
    log:
        "results/{dataset}/logs/audit-{invocation}.log",
    localrule: True
    conda:
        "../../envs/penstock.yaml"
    resources:
        engine=engine,
    params:
        penstock=penstock,
        options=audit_options,
    shell:
        "{params.penstock:q} audit {wildcards.dataset:q} {params.options:q}"
        " --receipt {output.receipt:q} --log {log:q}"


rule audit:
    input:
        audits,
