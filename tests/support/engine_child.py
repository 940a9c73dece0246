"""One element's copy in a process of its own, to be killed: `python -m tests.support.engine_child FILE`."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from penstock.engine.copy_shard import copy_shard


def main() -> None:
    task = pickle.loads(Path(sys.argv[1]).read_bytes())
    done = Path(sys.argv[1] + ".done")
    outcome = copy_shard(task, lambda *_: None, lambda: None)
    done.write_text(str(outcome.files))
    sys.exit(str(outcome.failures[0]) if outcome.failures else 0)


if __name__ == "__main__":
    main()
