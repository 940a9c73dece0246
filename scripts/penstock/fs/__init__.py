"""File systems: walks, safe opens, reads past the caches, durable small files; what each kind can do, and
what its vendor's commands report."""
