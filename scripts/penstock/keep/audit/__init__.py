"""A published release compared with its manifest."""
