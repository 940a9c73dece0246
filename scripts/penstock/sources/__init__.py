"""Where datasets come from: one port, and an implementation for each kind of store."""
