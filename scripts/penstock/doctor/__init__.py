"""What would stop a run, and whether penstock keeps its word here: preflight and selftest. For commands."""
