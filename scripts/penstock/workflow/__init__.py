"""Penstock's part for Snakemake: the workflow's files, its controller, and the data that they exchange."""
