"""One element of an array, from its own side: which shard it takes, and what it does with it."""
