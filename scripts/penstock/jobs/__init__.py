"""Work in job arrays: cut into shards, submitted, watched, submitted again, accounted for; and what an
element does."""
