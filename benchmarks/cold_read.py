"""The least that a cold read can be: processes that open, read past the cache and close, one file at a
time; nothing is hashed, compared or noted. `cold_read.py <folder> <list of paths> <processes>`"""

from __future__ import annotations

import mmap
import os
import sys

import side_by_side

BLOCK = 1 << 20
BATCH = 256
FLAGS = os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC


def read(folder: str, names: list[str]) -> None:
    buffer = memoryview(mmap.mmap(-1, BLOCK))
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for name in names:
        fd = os.open(name, FLAGS, dir_fd=root)
        left = os.fstat(fd).st_size
        while left > 0:
            got = os.readv(fd, (buffer,))
            if not got:
                raise SystemExit(f"{name} ended early")
            left -= got
        os.close(fd)


def main(folder: str, listed: str, processes: int) -> None:
    with open(listed) as lines:
        names = lines.read().splitlines()
    # In turns of neighbours, as the engine gives them out.
    batch = min(BATCH, -(-len(names) // processes))
    shares: list[list[str]] = [[] for _ in range(processes)]
    for number, start in enumerate(range(0, len(names), batch)):
        shares[number % processes] += names[start : start + batch]
    side_by_side.run(read, [(folder, share) for share in shares])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
