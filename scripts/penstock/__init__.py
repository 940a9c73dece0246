"""penstock: staged dataset ingest for GPU clusters, whole or not at all."""

__version__ = "1.0.0"
