"""Sources that fsspec opens: S3, Azure and Google's storage by `reader: fsspec` (`library_source`), and every
protocol that penstock does not speak itself (`source`)."""
