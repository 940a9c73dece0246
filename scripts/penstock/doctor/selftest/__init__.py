"""`penstock selftest`: measures the behaviour of a file system, on a real mount and within minutes."""
