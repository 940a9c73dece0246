"""A job that reads a release over and over: `python -m tests.beegfs_bed.reader CURRENT SECONDS [DIGEST ...]`.

Each round reads every file of what CURRENT names, as a data loader does: whole, and 1,000 bytes at an odd
place. With digests each round's tree must have one of them. The result is a line of JSON: rounds, files read,
errors. SIGTERM ends it early.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from tests.beegfs_bed.staging import digest_of

ODD_PLACE, ODD_BYTES = 3, 1000


def main(current: Path, seconds: float, digests: list[str]) -> int:
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    deadline = time.monotonic() + seconds
    rounds = reads = 0
    errors: list[str] = []
    while not ended and time.monotonic() < deadline:
        release = current.resolve(strict=True)
        for folder, _, names in os.walk(release):
            for name in names:
                reads += 1
                try:
                    _read(os.path.join(folder, name))
                except OSError as error:
                    errors.append(f"{name}: {error}")
        if digests and digest_of(release) not in digests:
            errors.append(f"{release} is another tree")
        rounds += 1
    print(json.dumps({"rounds": rounds, "reads": reads, "errors": errors[:20], "all_errors": len(errors)}))
    return 1 if errors else 0


def _read(path: str) -> None:
    with open(path, "rb") as file:
        whole = file.read()
        part = os.pread(file.fileno(), ODD_BYTES, ODD_PLACE)
    if part != whole[ODD_PLACE : ODD_PLACE + ODD_BYTES]:
        raise OSError("two readings differ")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
