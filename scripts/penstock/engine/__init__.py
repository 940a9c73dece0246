"""What runs on a node: worker processes that copy, hash and re-read."""
