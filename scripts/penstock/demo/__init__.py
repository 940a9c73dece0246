"""A small read-only S3 server, for the example, the tests and the benchmark."""
