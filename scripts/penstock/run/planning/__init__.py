"""What plan decides before it cuts shards: reused files, room and time, refusals."""
