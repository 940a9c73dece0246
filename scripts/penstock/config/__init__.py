"""Configuration: the typed model, and the strict loader of the YAML file."""
