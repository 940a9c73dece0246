# Copy, set permissions, read back. `engine` keeps local engines from running side by side.


rule copy_shards:
    input:
        plan=rules.plan_shards.output.receipt,
    output:
        receipt="results/{dataset}/{run}/copy.json",
    log:
        "results/{dataset}/{run}/logs/copy.log",
    localrule: True
    conda:
        "../../envs/penstock.yaml"
    resources:
        engine=engine,
    params:
        penstock=penstock,
    shell:
        "{params.penstock:q} step copy {wildcards.dataset:q} --run {wildcards.run:q}"
        " --receipt {output.receipt:q} --log {log:q}"


rule set_permissions:
    input:
        copied=rules.copy_shards.output.receipt,
    output:
        receipt="results/{dataset}/{run}/permissions.json",
    log:
        "results/{dataset}/{run}/logs/permissions.log",
    localrule: True
    conda:
        "../../envs/penstock.yaml"
    params:
        penstock=penstock,
    shell:
        "{params.penstock:q} step permissions {wildcards.dataset:q} --run {wildcards.run:q}"
        " --receipt {output.receipt:q} --log {log:q}"


rule verify_shards:
    input:
        permissions=rules.set_permissions.output.receipt,
    output:
        receipt="results/{dataset}/{run}/verify.json",
    log:
        "results/{dataset}/{run}/logs/verify.log",
    localrule: True
    conda:
        "../../envs/penstock.yaml"
    resources:
        engine=engine,
    params:
        penstock=penstock,
    shell:
        "{params.penstock:q} step verify {wildcards.dataset:q} --run {wildcards.run:q}"
        " --receipt {output.receipt:q} --log {log:q}"
