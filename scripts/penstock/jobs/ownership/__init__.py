"""Which run owns a dataset: live runs, the lock and claim of a step, and abandoned runs' remains."""
