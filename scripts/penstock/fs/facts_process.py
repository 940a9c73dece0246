"""The process in which a folder is looked at that may never answer.

`watched_facts` starts one for each folder that lies on a network mount or is reached through one, and kills
it where no answer comes in time. Its argument is the folder, or one that will be made: then the nearest above
that exists counts. It writes one JSON object, {"facts": ...} or {"errno": number}, to standard output, and
ends. It changes nothing.
"""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path

from penstock.fs.capabilities import facts


def main(path: str) -> None:
    """Write what `capabilities.facts` says of the folder, or the number of the OSError that it raises (EIO
    where it has none)."""
    try:
        storage = facts(Path(path))
    except OSError as error:
        answer: dict[str, object] = {"errno": error.errno or errno.EIO}
    else:
        # `traits` is a row of the table `kinds`: its name is sent, by which the parent finds the row again.
        answer = {"facts": {**vars(storage), "traits": storage.kind, "proof": storage.proof._asdict()}}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])
