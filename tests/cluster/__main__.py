"""The test cluster by hand: up, status, down."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from pathlib import Path

from tests.cluster.machine import CHECKOUT, Machine, missing
from tests.cluster.settings import Settings

FOLDER = Path(f"/tmp/penstock-slurm-{os.getuid()}-{hashlib.sha256(bytes(CHECKOUT)).hexdigest()[:8]}")
"""A cluster for each user and checkout: nobody's `down` ends another's."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("verb", choices=["up", "status", "down", "guard"])
    parser.add_argument("--accounting", action="store_true", help="with slurmdbd and its database")
    parser.add_argument(
        "--confined", action="store_true", help="one node, whose jobs are confined by cgroups"
    )
    parser.add_argument("--max-array", type=int, default=1001, help="MaxArraySize")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    chosen = parser.parse_args()
    if chosen.verb == "guard":
        # Its standard input ends with the process that it guards for.
        sys.stdin.read()
    running = (chosen.folder / "cluster.json").exists()
    if chosen.verb == "up":
        return up(chosen, running=running)
    if not running:
        print(f"no test cluster in {chosen.folder}")
        return 1 if chosen.verb == "status" else 0
    machine = Machine.load(chosen.folder)
    if chosen.verb in ("down", "guard"):
        machine.down()
        print("the test cluster is down")
        return 0
    for name, daemon in machine.daemons.items():
        print(f"{name:10} {'up' if daemon.alive else 'DOWN':5} pid {daemon.pid}")
    print(machine.run("sinfo", "-N", "-l").stdout, machine.run("squeue").stdout, sep="\n", end="")
    print(f"\nexport SLURM_CONF={machine.conf}")
    return 0


def up(chosen: argparse.Namespace, *, running: bool) -> int:
    wanted = Settings(accounting=chosen.accounting, max_array=chosen.max_array, confined=chosen.confined)
    if problem := missing(wanted):
        print(f"cannot start a cluster: {problem}", file=sys.stderr)
        return 3
    if running:
        machine = Machine.load(chosen.folder)
        alive = any(daemon.alive for daemon in machine.daemons.values())
        if alive and machine.settings != wanted:
            print(
                f"a test cluster with other options is up in {chosen.folder}: it has {machine.settings}\n"
                "end it first: python -m tests.cluster down",
                file=sys.stderr,
            )
            return 2
        if all(daemon.alive for daemon in machine.daemons.values()):
            print(f"the test cluster is up already\nexport SLURM_CONF={machine.conf}")
            return 0
        machine.down()
    chosen.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    began = time.monotonic()
    if chosen.folder.stat().st_uid != os.getuid():
        print(f"{chosen.folder} is another user's", file=sys.stderr)
        return 2
    machine = Machine(chosen.folder, wanted)
    machine.up()
    nodes = "one node is" if chosen.confined else "four nodes are"
    print(f"{nodes} idle after {time.monotonic() - began:.1f} s; to use the cluster:")
    print(f"export SLURM_CONF={machine.conf}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
