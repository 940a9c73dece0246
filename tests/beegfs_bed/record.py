"""Writes what the vendor's commands and /proc say: `python -m tests.beegfs_bed.record FOLDER`, in the guest.

Each file begins with the command, the account and the exit status; fixtures of tests are taken from them.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.beegfs_bed import servers
from tests.beegfs_bed.guest import MOUNT, UID
from tests.beegfs_bed.servers import VERSION
from tests.beegfs_bed.staging import Dataset, Done, run

COMMANDS = {
    "7": (
        "beegfs-ctl --listtargets --longnodes --state --storagepools --pools --spaceinfo --nodetype=storage",
        "beegfs-ctl --listtargets --longnodes --state --pools --spaceinfo --nodetype=meta",
        "beegfs-ctl --liststoragepools",
        "beegfs-ctl --getentryinfo FOLDER",
        "beegfs-ctl --getentryinfo FILE",
        f"beegfs-ctl --getquota --csv --uid {UID}",
        f"beegfs-ctl --getquota --csv --gid {UID}",
        "beegfs-check-servers",
        "beegfs-df",
    ),
    "8": (
        "beegfs target list --state --capacity --output ndjson",
        "beegfs node list --reachability-error --output ndjson",
        "beegfs pool list --output ndjson",
        "beegfs entry info FOLDER --output ndjson",
        "beegfs entry info FILE --output ndjson",
        f"beegfs quota list-usage --uids {UID} --output ndjson",
        "beegfs health df --output ndjson",
    ),
}


def main(folder: Path) -> None:
    """Record with all servers up, then with a storage server down, then with the management service down."""
    folder.mkdir()
    dataset = Dataset("record", {b"file": b"x" * 5000})
    file = dataset.root / "file"
    file.write_bytes(b"x" * 5000)
    for state, name in (("up", ""), ("storage-down", "storage2"), ("management-down", "management")):
        if name:
            servers.stop(name)
        for command in COMMANDS[VERSION]:
            words = command.replace("FOLDER", str(dataset.root)).replace("FILE", str(file)).split()
            for user in (True, False):
                _write(folder, state, "user" if user else "root", run(*words, user=user, within=120.0))
        for path in sorted(servers.PROC.glob("*/*")):
            _write(folder, state, "proc", run("cat", str(path)))
        _write(folder, state, "user", run("stat", "-f", MOUNT))
        if name:
            servers.start(name)


def _write(folder: Path, state: str, who: str, done: Done) -> None:
    name = re.sub(r"[^A-Za-z0-9]+", "-", done.command).strip("-")[-80:]
    text = f"$ {done.command}\n# {who}, exit status {done.status}, {done.seconds:.1f} s\n{done.out}"
    if done.err:
        text += f"# standard error\n{done.err}"
    (folder / f"{state}.{who}.{name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
