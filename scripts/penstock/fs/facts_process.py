"""The process that reads the facts about a folder whose file system may never respond.

`watched_facts` starts it for each folder that is on a network mount, or is reached through such a mount, and
kills it after a deadline. Its argument is the folder. If the folder does not exist yet, the nearest existing
folder above it counts. It writes a JSON object, {"facts": ...} or {"errno": number}, to standard output.
"""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path

from penstock.fs.capabilities import facts


def main(path: str) -> None:
    """Write `capabilities.facts` of the folder, or the number of its OSError (EIO if it has no number)."""
    try:
        storage = facts(Path(path))
    except OSError as error:
        answer: dict[str, object] = {"errno": error.errno or errno.EIO}
    else:
        # `traits` is a row of the table `kinds`. Its name is sent, so that the parent can find the row.
        answer = {"facts": {**vars(storage), "traits": storage.kind, "proof": storage.proof._asdict()}}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])
