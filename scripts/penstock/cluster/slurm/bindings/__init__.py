"""SLURM by pyslurm, its Python bindings, in a helper process.

So neither a fault in libslurm nor pyslurm's licence (GPL-2.0-only) reaches penstock. What pyslurm cannot do
goes through the commands.
"""
