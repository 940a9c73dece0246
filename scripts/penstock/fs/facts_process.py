"""The process in which a folder is looked at that may never answer: `watched_facts` starts one for each.

Its argument is the folder; it writes one JSON object, {"facts": ...} or {"errno": number}, to standard
output, and ends. It changes nothing.
"""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path

from penstock.fs.capabilities import facts


def main(path: str) -> None:
    """Write what `capabilities.facts` says of the folder."""
    try:
        storage = facts(Path(path))
    except OSError as error:
        answer: dict[str, object] = {"errno": error.errno or errno.EIO}
    else:
        # The row of the table goes by its name: each has one of its own.
        answer = {"facts": {**vars(storage), "traits": storage.kind, "proof": storage.proof._asdict()}}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])
