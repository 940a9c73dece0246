"""The schedulers that `cluster.backend` and `--backend` can name; the first one where nothing is said.
Pure."""

BACKENDS = ("local", "slurm")
