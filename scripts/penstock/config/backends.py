"""The schedulers that `cluster.backend` and `--backend` can name; the first one where nothing is said."""

BACKENDS = ("local", "slurm")
