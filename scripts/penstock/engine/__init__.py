"""The code that runs on a node: worker processes that copy, hash and reread files."""
