"""A small read-only S3 server, for the example (`make run`), the tests and the benchmark.

It is not part of the installed package.
"""
