"""What Snakemake needs: the files of the workflow, its controller, and what passes between them."""
