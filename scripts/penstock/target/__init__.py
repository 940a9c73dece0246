"""The durable POSIX target to which datasets are copied. Only this package changes the target's tree.

Differences between file systems are in the table `fs.kinds`, not in code here. The conformance suite is
tests/contracts/storage_contract.py. All paths come from `core.layout`. Functions that make, close, reveal or
remove folders are idempotent, even after a crash. `fs.safe_open` turns errors of the file system into
penstock's errors, except for small files, which raise OSError. `spend` (`pacing`) waits until
metadata operations are allowed.
"""
