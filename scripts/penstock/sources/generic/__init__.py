"""What fsspec opens: object stores by its libraries (`library_source`), other protocols (`source`)."""
