"""A published release compared with its manifest, and its damaged files replaced."""
