"""What became of a shard's rows, durable: the journal, and what follows from it."""
