"""The least that a copy can be: two processes that read and write, and nothing else.

`--named`: what a file that is whole or absent, with its time, costs at least: a temporary name, the time,
a rename.
"""

from __future__ import annotations

import os
import sys

import side_by_side

BLOCK = 1 << 20
PROCESSES = 2


def copy(names: list[tuple[str, str]], named: bool) -> None:
    buffer = memoryview(bytearray(BLOCK))
    for source, target in names:
        reader = os.open(source, os.O_RDONLY)
        landing = f"{target}.part" if named else target
        writer = os.open(landing, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        while got := os.readv(reader, [buffer]):
            done = 0
            while done < got:
                done += os.write(writer, buffer[done:got])
        if named:
            time = os.fstat(reader).st_mtime_ns
            os.utime(writer, ns=(time, time))
        os.close(reader)
        os.close(writer)
        if named:
            os.rename(landing, target)


def main(source: str, target: str, *, named: bool) -> None:
    names = []
    for folder, folders, files in os.walk(source):
        below = os.path.join(target, os.path.relpath(folder, source))
        for name in folders:
            os.makedirs(os.path.join(below, name), exist_ok=True)
        names += [(os.path.join(folder, name), os.path.join(below, name)) for name in files]
    side_by_side.run(copy, [(names[at::PROCESSES], named) for at in range(PROCESSES)])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], named="--named" in sys.argv)
