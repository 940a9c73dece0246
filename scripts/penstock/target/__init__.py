"""Where datasets land: the durable POSIX target. Only this package changes the target's tree.

File systems differ by rows of `fs.kinds`, not by code here; tests/contracts/storage_contract.py is the
conformance suite. All paths are those of `core.layout`. Functions that make, close, reveal or remove folders
are idempotent, also after a crash. Errors of the file system are raised by `fs.errno_map`, those of small
files as OSError. `spend` waits for metadata operations (`operation_budget`).
"""
