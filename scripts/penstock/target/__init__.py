"""Where datasets land: the durable POSIX target. Only this package changes the target's tree.

What differs between file systems is a row of `fs.kinds`, not code here. The conformance suite is
tests/contracts/storage_contract.py. All paths are those of the layout (`core.layout`). What makes, closes,
reveals or removes folders may be called again after a crash, and ends as if it had been called once. Errors
of the file system are raised by `fs.errno_map`, those of small files as OSError. What makes many
metadata operations takes `spend`, which waits for them (`budget`).
"""
