"""`penstock selftest`: what a file system does, measured on a real mount in minutes, as a table to send
back."""
