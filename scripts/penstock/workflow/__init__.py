"""What Snakemake needs: the workflow's files, its controller, and the data that they exchange."""
