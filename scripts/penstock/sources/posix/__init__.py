"""A folder of any mounted file system."""
