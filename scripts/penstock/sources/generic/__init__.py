"""Any other protocol that fsspec opens."""
