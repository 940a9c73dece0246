"""One element of an array, as the element sees it: which shard it takes, and what it does with the shard."""
