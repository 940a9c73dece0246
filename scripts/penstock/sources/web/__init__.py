"""Web servers as sources: a single file, or the folder pages that a server makes itself."""
