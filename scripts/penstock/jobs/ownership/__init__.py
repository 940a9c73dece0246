"""Which run owns a dataset: whether another run may still live, the lock and claim of a step, and what
abandoned runs left."""
