"""A release in the standard forms that catalogues and loaders read."""
