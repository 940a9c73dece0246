"""Sources opened by fsspec: every protocol that penstock does not read itself, and S3, Azure and Google by
`reader: fsspec`. FTP has a class here in place of fsspec's."""
