"""A living bucket on a real S3 server: objects change between the listing and their GET, by the server's log.

A test takes a small one, `benchmarks/living.py` one of 20,000 objects.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml
from tests.support import fixed_settings
from tests.support.versity import ACCESS, SECRET, Versity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
DEADLINE = 900.0
THREADS = 8


class Asked(NamedTuple):
    """A line of the server's log."""

    operation: str
    key: str
    status: int


@dataclass
class Bucket:
    """An unversioned bucket of objects of one size, and what each of them ever held."""

    server: Versity
    name: str
    objects: int
    size: int
    versions: dict[str, list[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        import botocore.config
        import botocore.session

        self.client: Any = botocore.session.Session().create_client(
            "s3",
            "us-east-1",
            endpoint_url=self.server.endpoint,
            aws_access_key_id=ACCESS,
            aws_secret_access_key=SECRET,
            config=botocore.config.Config(max_pool_connections=THREADS),
        )
        self.client.create_bucket(Bucket=self.name)
        self.keys = [f"d{n % 20:02d}/{n:05d}" for n in range(self.objects)]
        self.keys.sort()
        with ThreadPoolExecutor(THREADS) as threads:
            for _ in threads.map(self.put, self.keys):
                """Every answer is looked at."""

    def put(self, key: str) -> None:
        """The object in its next version."""
        held = self.versions.setdefault(key, [])
        data = hashlib.sha256(f"{key} {len(held)}".encode()).digest() * (self.size // 32)
        self.client.put_object(Bucket=self.name, Key=key, Body=data)
        held.append(data)

    def remove(self, key: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=key)

    def log(self) -> list[Asked]:
        """Every request for an object of this bucket so far, in the order of the log."""
        assert self.server.log is not None
        found = []
        for line in self.server.log.read_text().splitlines():
            words = line.split(" ")
            if len(words) > 10 and words[1] == self.name:
                found.append(Asked(words[7], words[8], int(words[10])))
        return found

    def fetched(self, since: int = 0) -> Counter[str]:
        """How often each object was read whole since that line of the log."""
        return Counter(
            a.key for a in self.log()[since:] if a.operation.endswith("GetObject") and a.status < 300
        )

    def wait_for(self, enough: Callable[[Counter[str]], bool], since: int, process: Any) -> Counter[str]:
        """Until so much was read; AssertionError when `process` ends before."""
        pause = threading.Event()
        ends = time.monotonic() + DEADLINE
        while time.monotonic() < ends:
            seen = self.fetched(since)
            if enough(seen):
                return seen
            assert process.poll() is None, "the run ended before enough was copied"
            pause.wait(0.2)
        raise AssertionError("nothing is copied")


@dataclass
class Place:
    """A working directory of its own for one configuration."""

    folder: Path
    bucket: Bucket
    changed: str
    seconds: float
    limits: tuple[float, float] = (0.05, 0.001)
    """Shares of the files that may change, and that may leave."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        secrets = self.folder / "keys"
        secrets.write_text(f"[default]\naws_access_key_id = {ACCESS}\naws_secret_access_key = {SECRET}\n")
        secrets.chmod(0o600)
        rate = int(self.bucket.objects * self.bucket.size / self.seconds)
        config = {
            "target": {"root": "target"},
            "datasets": {
                "d": {
                    "source": f"s3://{self.bucket.name}/",
                    "storage_options": {
                        "endpoint_url": self.bucket.server.endpoint,
                        "credentials_file": str(secrets),
                        "region": "us-east-1",
                    },
                    "changed": self.changed,
                }
            },
            "engine": {"limit": f"{max(1, rate // 1000)}kB/s"},
        }
        (self.folder / "config.yaml").write_text(yaml.safe_dump(config))

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """`penstock run` in a session of its own, ended with the context; its words go to `run.log`."""
        with (self.folder / "run.log").open("wb") as log:
            process = subprocess.Popen(
                (sys.executable, "-m", "penstock", "run"), cwd=self.folder, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                env=os.environ | fixed_settings.environment(
                    {"datasets.d.follow_limit": dict(zip(("changed", "gone"), self.limits, strict=True))}
                ),
            )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(DEADLINE)

    def run(self) -> tuple[int, str]:
        """Exit status and words of one `penstock run`, to its end."""
        with self.running() as process:
            return process.wait(DEADLINE), self.said()

    def said(self) -> str:
        return (self.folder / "run.log").read_text(errors="backslashreplace")

    @property
    def data(self) -> Path:
        return self.folder / "target/d/current/data"

    def releases(self) -> list[str]:
        return sorted(n for n in os.listdir(self.folder / "target/d/releases") if not n.startswith("."))


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of a run and of whatever it started."""
    for pid in descendants(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(DEADLINE)


def descendants(pid: int) -> list[int]:
    """A process and those that it started, and so on; the parents first."""
    found = [pid]
    with contextlib.suppress(FileNotFoundError):
        for task in os.listdir(f"/proc/{pid}/task"):
            children = Path(f"/proc/{pid}/task/{task}/children").read_text().split()
            for child in map(int, children):
                found += descendants(child)
    return found


def run_while_it_changes(
    place: Place, changes: int, gone: int
) -> tuple[int, str, list[str], list[str], Counter[str]]:
    """One `penstock run` during which objects change, and leave, after they were listed and before they are
    read: shown by the server's log. Gives the exit status, what was said, those keys, and how often each
    object was read whole."""
    bucket = place.bucket
    since = len(bucket.log())
    with place.running() as process:
        bucket.wait_for(lambda seen: len(seen) >= bucket.objects // 20, since, process)
        ahead = bucket.keys[-(changes + gone) :]
        changed, left = ahead[:changes], ahead[changes:]
        for key in changed:
            bucket.put(key)
        for key in left:
            bucket.remove(key)
        status = process.wait(DEADLINE)
    listed, read, stored = -1, dict[str, int](), dict[str, int]()
    for number, asked in enumerate(bucket.log()[since:]):
        if "ListObjects" in asked.operation and listed < 0:
            listed = number
        elif asked.operation.endswith("GetObject"):
            read.setdefault(asked.key, number)
        elif asked.operation.endswith(("PutObject", "DeleteObject")):
            stored[asked.key] = number
    assert all(listed < stored[key] < read[key] for key in ahead), "they did not change before they were read"
    return status, place.said(), changed, left, bucket.fetched(since)


def whole(bucket: Bucket, place: Place, keys: Sequence[str]) -> None:
    """Every file is wholly of one version, the newest, and there are no others."""
    found = {
        os.path.relpath(os.path.join(folder, name), place.data)
        for folder, _, names in os.walk(place.data)
        for name in names
    }
    assert found == set(keys)
    for key in keys:
        assert (place.data / key).read_bytes() == bucket.versions[key][-1], key
