"""Web servers: single files, and folder pages."""
