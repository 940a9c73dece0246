# The page for people, and the figures of the closing summary.


rule report_run:
    input:
        published=rules.publish_release.output.receipt,
    output:
        receipt="results/{dataset}/{run}/report.json",
        html="results/{dataset}/{run}/report.html",
    log:
        "results/{dataset}/{run}/logs/report.log",
    conda:
        "../../envs/penstock.yaml"
    params:
        penstock=penstock,
    shell:
        "{params.penstock:q} report {wildcards.dataset:q} --run {wildcards.run:q}"
        " --receipt {output.receipt:q} --log {log:q}"
        " --html {output.html:q}"
