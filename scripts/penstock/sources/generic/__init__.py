"""What fsspec opens: stores of objects through its libraries (`library_source`), any other protocol (`source`)."""
