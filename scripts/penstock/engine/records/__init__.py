"""The durable state of a shard's rows: the journal, and what is derived from it."""
