"""`penstock selftest`: what a file system does, measured on a real mount in minutes."""
