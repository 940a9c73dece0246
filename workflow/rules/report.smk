# The page for people, the figures of the closing summary, and where the data lies.


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


# `penstock run` has a summary of its own.
onsuccess:
    if not exit_files.below_run():
        for line in workflow_receipts.published(
            Path("results"), INVOCATION, CONFIG
        ):
            logger.info(line)
