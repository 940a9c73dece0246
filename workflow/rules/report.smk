# The page for people, the figures of the closing summary, and where the data lies.


rule report_run:
    input:
        published=rules.publish_release.output.receipt,
    output:
        receipt=report(
            "results/{dataset}/{run}/report.json",
            caption="../report/receipt.rst",
            category="Datasets",
            labels=reported("receipt"),
        ),
        html=report(
            "results/{dataset}/{run}/report.html",
            caption="../report/run.rst",
            category="Datasets",
            labels=reported("page"),
        ),
    log:
        "results/{dataset}/{run}/logs/report.log",
    localrule: True
    conda:
        "../../envs/penstock.yaml"
    params:
        penstock=penstock,
    shell:
        "{params.penstock:q} report {wildcards.dataset:q} --run {wildcards.run:q}"
        " --receipt {output.receipt:q} --log {log:q}"
        " --html {output.html:q}"


# `penstock run` has a summary of its own, and sends notices. Of a module Snakemake does not obey these.
onsuccess:
    if not controller.below_run():
        for line in workflow_receipts.published(RESULTS, invocation(), CONFIG):
            logger.info(line)
        send_notices()


onerror:
    if not controller.below_run():
        send_notices()
