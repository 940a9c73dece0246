"""SLURM by pyslurm, its Python bindings: in a helper process, so that neither a fault in libslurm nor the
licence of pyslurm (GPL-2.0-only) reaches this one. What pyslurm cannot do goes through the commands."""
