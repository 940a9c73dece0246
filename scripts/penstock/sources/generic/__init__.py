"""Sources that fsspec opens: every protocol that penstock does not read itself, and by `reader: fsspec` the
stores of S3, Azure and Google. FTP is opened by a class of this package in place of fsspec's."""
