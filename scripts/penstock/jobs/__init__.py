"""Work in job arrays: cutting shards, submitting and watching elements, and what an element does."""
