"""What a plan decides before shards are cut: what is reused or taken over, room, time, refusals."""
