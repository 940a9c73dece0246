"""File systems: walks, safe opens, reads past the caches, durable small files; the abilities of each kind,
and the reports of its vendor's commands."""
