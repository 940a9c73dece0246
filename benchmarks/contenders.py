"""Who takes part, and by which command. Each is asked for the same files in the same folder.

`checks` says what a contender proves of the bytes on their way, `durable` what it does for the
disk: penstock is never run with less than its defaults, peers are run as their users run them.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HERE = Path(__file__).resolve().parent
BUCKET = "bench"


@dataclass(frozen=True)
class Task:
    """One load from one kind of source to one kind of target."""

    work: str
    source: str
    """`folder`, `http` or `https`."""
    folder: Path
    """The work's own folder: the source, or what the server serves as prefix `work`."""
    target: Path
    """An empty folder."""
    scratch: Path
    endpoint: str = ""
    ca: Path | None = None


@dataclass(frozen=True)
class Contender:
    name: str
    sources: Sequence[str]
    command: Callable[[Task], list[str]]
    checks: str = "size"
    durable: str = "nothing"
    slow: bool = False
    """Takes part in the first round only."""
    landed: Callable[[Task], Path] = field(default=lambda task: task.target)
    """Where its files are afterwards."""


def environment(task: Task, scratch: Path) -> dict[str, str]:
    """What every contender gets: keys that the server does not look at, and its authority."""
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "USER") if name in os.environ}
    env |= {"PENSTOCK_AS_ROOT": "1"}  # benchmarks often run as root
    env |= {"AWS_ACCESS_KEY_ID": "AKIDBENCH", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
    env |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true", "TMPDIR": str(scratch)}
    if task.ca:
        env["AWS_CA_BUNDLE"] = str(task.ca)
    rclone = {"TYPE": "s3", "PROVIDER": "Minio", "ENV_AUTH": "true", "REGION": "us-east-1"}
    rclone["ENDPOINT"] = task.endpoint
    return env | {f"RCLONE_CONFIG_B_{name}": value for name, value in rclone.items()}


def _penstock(task: Task) -> list[str]:
    command = [sys.executable, str(HERE / "penstock_copy.py"), "--target", str(task.target)]
    command += ["--state", str(task.scratch / "state")]
    if task.source == "folder":
        return [*command, "--source", str(task.folder)]
    command += ["--source", f"s3://{BUCKET}/{task.work}/", "--endpoint", task.endpoint]
    return [*command, "--ca", str(task.ca)] if task.ca else command


def _s5cmd(task: Task) -> list[str]:
    return [
        "s5cmd", "--log", "error", "--endpoint-url", task.endpoint, "--numworkers", "64",
        "cp", f"s3://{BUCKET}/{task.work}/*", f"{task.target}/",
    ]  # fmt: skip


def _rclone(task: Task) -> list[str]:
    where = str(task.folder) if task.source == "folder" else f"b:{BUCKET}/{task.work}"
    command = ["rclone", "--config", "", "copy", where, str(task.target), "--transfers", "32"]
    command += ["--checkers", "16", "--fast-list", "--log-level", "ERROR"]
    return [*command, "--ca-cert", str(task.ca)] if task.ca else command


def _aws(task: Task) -> list[str]:
    command = ["aws", "--endpoint-url", task.endpoint, "s3", "cp", "--recursive", "--only-show-errors"]
    return [*command, f"s3://{BUCKET}/{task.work}/", str(task.target)]


def _boto3(task: Task) -> list[str]:
    return ["peer-python", str(HERE / "boto3_copy.py"), task.endpoint, BUCKET, f"{task.work}/",
            str(task.target)]  # fmt: skip


def _fpsync(task: Task) -> list[str]:
    work = task.scratch / "fpsync"
    return ["fpsync", "-n", "2", "-t", str(work), "-d", str(work), f"{task.folder}/", f"{task.target}/"]


def _dcp(task: Task) -> list[str]:
    return ["mpirun", "--allow-run-as-root", "-n", "2", "dcp", "-q", f"{task.folder}/", f"{task.target}/"]


NET, ANY, FOLDER = ("http", "https"), ("folder", "http", "https"), ("folder",)
ALL = (
    Contender(
        "penstock",
        ANY,
        _penstock,
        checks="xxh3_128 of every byte, the source's checksum",
        durable="by file system",
        landed=lambda task: task.target / "bench/releases/.bench.staging/data",
    ),
    Contender("s5cmd", NET, _s5cmd),
    Contender("rclone", ANY, _rclone, checks="size; MD5 where the store has one"),
    Contender("awscli", NET, _aws, slow=True),
    Contender("boto3", NET, _boto3, checks="CRC64NVME where the store states one", slow=True),
    Contender("rsync", FOLDER, lambda t: ["rsync", "-a", f"{t.folder}/", f"{t.target}/"]),
    Contender("cp", FOLDER, lambda t: ["cp", "-a", f"{t.folder}/.", f"{t.target}/"]),
    Contender("fpsync", FOLDER, _fpsync, slow=True),
    Contender("dcp", FOLDER, _dcp),
    Contender(
        "bare", FOLDER, lambda t: [sys.executable, str(HERE / "bare.py"), str(t.folder), str(t.target)],
        checks="nothing: the limit of a read-and-write loop",
    ),
    Contender(
        "named", FOLDER,
        lambda t: [sys.executable, str(HERE / "bare.py"), str(t.folder), str(t.target), "--named"],
        checks="nothing: the same loop with a temporary name, the time and a rename",
    ),
)  # fmt: skip
BY_NAME = {one.name: one for one in ALL}
PROGRAMS = {"awscli": "aws", "boto3": "peer-python", "penstock": "", "bare": "", "named": ""}


def present(path: str) -> tuple[list[Contender], list[str]]:
    """(those that can run here, the names of the others)."""
    found, missing = [], []
    for contender in ALL:
        program = PROGRAMS.get(contender.name, contender.name)
        there = not program or shutil.which(program, path=path)
        found.append(contender) if there else missing.append(contender.name)
    return found, missing
