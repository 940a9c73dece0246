"""The schedulers of `cluster.backend` and `--backend`; the first is the default."""

BACKENDS = ("local", "slurm")
