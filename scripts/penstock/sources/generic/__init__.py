"""Sources that fsspec opens: every protocol that penstock does not read itself, and by `reader: fsspec` the
stores of S3, Azure and Google."""
