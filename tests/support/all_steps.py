"""All steps of a dataset in one process: `python -m tests.support.all_steps CONFIG DATASET [OPTION...]`.

Whatever is alive of a run hangs below that process. It says each step's name when it begins, and `end`.
"""

from __future__ import annotations

import sys

from penstock.cli.main import main

STEPS = ("list", "plan", "copy", "permissions", "verify", "publish")


def run(config: str, dataset: str, *options: str) -> int:
    """The exit status of the first step that fails, or 0."""
    for step in STEPS:
        print(step, flush=True)
        code = main(["--config", config, *options, "step", step, dataset])
        if code:
            return code
    print("end", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
