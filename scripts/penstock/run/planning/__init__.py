"""What plan decides before it divides the entries into shards: which files are reused, whether space and time
suffice, what is refused."""
