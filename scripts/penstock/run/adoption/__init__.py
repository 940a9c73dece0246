"""A tree that penstock did not write, compared with a dataset's source."""
