"""A place of work on the cluster: a source, a target, a checkout, and an ordinary user in it.

Jobs and controller run as that user. Its home is no folder of the nodes; the folders are its own.
"""

from __future__ import annotations

import json
import os
import pwd
import random
import signal
import stat
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.cluster.machine import CHECKOUT, remove
from tests.cluster.processes import below, wait_for
from tests.cluster.settings import ORDINARY
from tests.support import fixed_settings
from tests.support.s3server import S3Server
from tests.support.warm import OPTIONS, READ_EARLY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.cluster.machine import Machine

LINKED = ("Snakefile", "workflow", "profiles", "slurm", "scripts", "tests")


@cache
def job_user() -> str:
    """`ORDINARY`, where it can run this interpreter and this package; else who runs the tests."""
    me = pwd.getpwuid(os.geteuid()).pw_name
    if os.geteuid() != 0:
        return me
    try:
        tried = subprocess.run(
            [sys.executable, "-c", "import penstock, snakemake, tests.cluster.place"],
            user=ORDINARY, group=pwd.getpwnam(ORDINARY).pw_gid, extra_groups=[], cwd=CHECKOUT, env={},
            capture_output=True, check=False,
        )  # fmt: skip
    except PermissionError:
        # The checkout lies in a folder that is closed to others (see reachable.sh).
        return me
    return ORDINARY if tried.returncode == 0 else me


class Place:
    """`with Place(machine) as place:`; everything is removed at the end."""

    def __init__(self, machine: Machine, *, target: Path | None = None) -> None:
        """`target`: a folder that is there, and is given to the ordinary user; None: one of its own."""
        self.machine = machine
        self._target = target
        self._cleanup = ExitStack()
        self._started: list[subprocess.Popen[bytes]] = []
        self.fixed: dict[str, str] = {}
        """The environment that sets what has no key."""

    def __enter__(self) -> Self:
        # Not below pytest's own folder: that one is closed to other users.
        self.folder = Path(tempfile.mkdtemp(prefix="place-", dir=self.machine.folder))
        self._cleanup.callback(remove, self.folder)
        self.source, self.target, self.work = (self.folder / n for n in ("source", "target", "work"))
        self.target = self._target or self.target
        for made in (self.folder, self.source, self.target, self.work):
            made.mkdir(exist_ok=True)
            made.chmod(0o755)
            self.give(made)
        for name in LINKED:
            (self.work / name).symlink_to(CHECKOUT / name)
        self.server = self._cleanup.enter_context(S3Server(self.source))
        self._before = {job for job, _ in self._jobs()}
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            self.kill(process)
        self._cleanup.close()

    def give(self, path: Path) -> None:
        """To the ordinary user."""
        entry = pwd.getpwnam(job_user())
        os.chown(path, entry.pw_uid, entry.pw_gid)

    # Data ----------------------------------------------------------------------------------

    def fill(self, dataset: str, files: int, *, large: Sequence[int] = (), size: int = 50_000) -> None:
        """Files of around `size` bytes in folders of 100, and large ones; the same in every run."""
        rng = random.Random(dataset)
        for index in range(files):
            path = self.source / dataset / f"{index // 100:03d}" / f"file {index:06d}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(rng.randbytes(rng.randrange(size // 2, size * 3 // 2)))
        for index, length in enumerate(large):
            path = self.source / dataset / f"large-{index}.bin"
            with path.open("wb") as file:
                left = length
                while left:
                    block = rng.randbytes(min(left, 1 << 20))
                    left -= file.write(block)

    def configure(
        self,
        datasets: Sequence[str],
        *,
        cluster: Mapping[str, Any] | None = None,
        sources: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        **sections: Mapping[str, Any],
    ) -> None:
        """Write `my.yaml` for these datasets, of the S3 server where `sources` says nothing else."""
        options = options or {"endpoint_url": self.server.endpoint, "anon": True, "region": "us-east-1"}
        given = {
            "target": {"root": str(self.target), "keep_free": "16MiB"},
            "datasets": {
                name: {"source": sources[name]}
                if sources
                else {"source": self.server.url(f"{name}/"), "storage_options": options}
                for name in datasets
            },
            "cluster": {
                "partition": "data", "core_spec": 2, "max_elements": 2, "time": "1h", "memory": "1GiB",
                "poll": "1s", **(cluster or {}),
            },
            "engine": {"workers": 2, "streams": 8, **sections.pop("engine", {})},
            **sections,
        }  # fmt: skip
        given, self.fixed = fixed_settings.apart(given)
        path = self.work / "my.yaml"
        path.write_text(json.dumps(given, indent=1))  # which is YAML too

    # Running -------------------------------------------------------------------------------

    @property
    def env(self) -> dict[str, str]:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        self.give(home)
        here = str(Path(sys.executable).parent)
        path = f"{here}:{self.machine.env['PATH']}"
        # Where the account of the jobs is root: as `--as-root`.
        own = {"PATH": path, "HOME": str(home), "PENSTOCK_AS_ROOT": "1", **self.fixed}
        # What an interpreter reads of it while it starts is that of the tests, so that it can start warm.
        early = {name: value for name, value in os.environ.items() if name.startswith(READ_EARLY)}
        return {**early, **self.machine.env, **own}

    def start(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """A command of the ordinary user in the working directory, in a session of its own. Its
        output is in `output(process)`."""
        entry = pwd.getpwnam(job_user())
        other = job_user() != pwd.getpwuid(os.geteuid()).pw_name
        account: dict[str, Any] = (
            {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []} if other else {}
        )
        with (self.folder / f"output-{len(self._started)}").open("wb") as output:
            process = subprocess.Popen(
                list(words), cwd=self.work, env={**self.env, **(env or {})}, stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True, **account,
            )  # fmt: skip
        self._started.append(process)
        return process

    def output(self, process: subprocess.Popen[bytes]) -> str:
        path = self.folder / f"output-{self._started.index(process)}"
        return path.read_text(errors="replace")

    def snakemake(self, *more: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        words = ("-m", "snakemake", *more, "--profile", "slurm", "--configfile", "my.yaml")
        return self.start(sys.executable, *OPTIONS, *words, env=env)

    def penstock(self, *words: str) -> subprocess.Popen[bytes]:
        return self.start(
            sys.executable, "-m", "penstock", "--config", "my.yaml", "--backend", "slurm", *words
        )

    def over(self, process: subprocess.Popen[bytes]) -> bool:
        """False after a short while in which it has not ended: for looking at what it does."""
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
        return process.poll() is not None

    def ends(self, process: subprocess.Popen[bytes], code: int = 0, *, seconds: float = 280.0) -> str:
        """Wait for its end; it must end with this status. Returns what it said."""
        try:
            ended = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running: {self.output(process)}") from None
        assert ended == code, self.output(process)
        return self.output(process)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL to it and to all below it at once, as a lost login node does."""
        for pid in below(process.pid) if process.poll() is None else ():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(60)

    def staging(self, dataset: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """All steps by one process: for tests to which the way to a release is no matter. `penstock run` and
        Snakemake take several times the CPU."""
        words = (sys.executable, "-m", "tests.support.all_steps", "my.yaml", dataset, "--backend", "slurm")
        return self.start(*words, env=env)

    def planned(self, dataset: str) -> None:
        """List and plan it, so that `penstock step copy` can begin."""
        for step in ("list", "plan"):
            self.ends(self.penstock("step", step, dataset))

    def receipts(self, dataset: str, step: str) -> list[dict[str, Any]]:
        """The receipts of a step's elements, of the only run there is."""
        (run,) = (self.target / dataset / ".penstock" / "runs").iterdir()
        return [json.loads(path.read_text()) for path in sorted((run / "receipts" / step).iterdir())]

    # Looking -------------------------------------------------------------------------------

    def until(
        self, condition: Any, what: str, process: subprocess.Popen[bytes], seconds: float = 120.0
    ) -> None:
        """Wait for the condition; stop at once when the process has ended before it."""

        def held() -> bool:
            if condition():
                return True
            assert process.poll() is None, f"ended before {what}: {self.output(process)}"
            return False

        try:
            # Most conditions are a command of SLURM, or several.
            wait_for(held, what, seconds=seconds, every=0.3)
        except TimeoutError as error:
            raise AssertionError(f"{error}: {self.output(process)}") from None

    def running(self, step: str = "copy") -> dict[str, str]:
        """`ARRAY_INDEX: node` of the elements of a step that run now."""
        answer = self.machine.run("squeue", "--array", "-h", "-t", "R", "-o", "%F_%K %N %j").stdout
        rows = [line.split() for line in answer.splitlines()]
        return {row[0]: row[1] for row in rows if f"-{step}-" in row[2]}

    def arrays(self, step: str) -> set[str]:
        """The arrays of a step that were submitted since this place was made, ended or not."""
        return {job for job, name in self._jobs() if f"-{step}-" in name} - self._before

    def _jobs(self) -> list[tuple[str, str]]:
        """Id and name of all that SLURM knows, also of tests before."""
        lines = self.machine.run("squeue", "-h", "--states=all", "-o", "%F %j").stdout.splitlines()
        return [(job, name) for job, name in map(str.split, lines)]

    def submissions(self, dataset: str, step: str) -> list[tuple[str, list[int]]]:
        """(array id, open shards) of every array that was submitted for this step."""
        return [(array, line["indices"]) for array, line in self._booked(dataset, step)]

    def workers(self, dataset: str, step: str) -> list[tuple[str, int]]:
        """(array id, number of workers) of every array that was submitted for this step."""
        return [(array, line["workers"]) for array, line in self._booked(dataset, step)]

    def _booked(self, dataset: str, step: str) -> list[tuple[str, dict[str, Any]]]:
        ids: dict[str, str] = {}
        intents: list[dict[str, Any]] = []
        for book in sorted((self.target / dataset / ".penstock" / "runs").glob("*/arrays.jsonl")):
            for line in map(json.loads, book.read_text().splitlines()):
                if "intent" in line and line["step"] == step:
                    intents.append(line)
                elif "submitted" in line:
                    ids[line["submitted"]] = line["array"]
        return [(ids.get(line["intent"], ""), line) for line in intents]

    def claims(self, dataset: str, step: str) -> list[tuple[int, int, dict[str, Any]]]:
        """(shard, generation, content) of every claim of this step that is written, in order."""
        claims = []
        for path in (self.target / dataset / ".penstock" / "runs").glob(f"*/claims/{step}/*.json"):
            with suppress(ValueError):  # it is being written
                index, generation, _ = path.name.split(".")
                claims.append((int(index), int(generation), json.loads(path.read_text())))
        return sorted(claims, key=lambda claim: claim[:2])

    def held(self, dataset: str, step: str) -> dict[int, str]:
        """Shards that workers hold that run now, and the nodes of these."""
        runs = self.target / dataset / ".penstock" / "runs"
        proven = {int(path.stem) for path in runs.glob(f"*/receipts/{step}/*.json")}
        nodes = set(self.running(step).values())
        holders = {index: claim["host"] for index, _, claim in self.claims(dataset, step)}
        return {index: node for index, node in holders.items() if index not in proven and node in nodes}

    def published(self, dataset: str) -> Path:
        """The data folder of the current release. Its tree equals the source, byte for byte."""
        data = self.target / dataset / "current" / "data"
        wanted, found = _tree(self.source / dataset), _tree(data)
        assert found.keys() == wanted.keys()
        for name, path in wanted.items():
            assert found[name].read_bytes() == path.read_bytes(), name
            assert not found[name].stat().st_mode & 0o222, f"{name} can be written"
        return data.resolve()

    def unpublished(self, dataset: str) -> bool:
        return not (self.target / dataset / "current").exists()

    def fetched(self, dataset: str) -> dict[str, int]:
        """Bytes of its objects that the S3 server was asked for, in all, by key."""
        counts: dict[str, int] = {}
        for request in self.server.requests():
            if request.method == "GET" and request.status < 300 and request.key.startswith(f"{dataset}/"):
                counts[request.key] = counts.get(request.key, 0) + request.bytes
        return counts


def _tree(folder: Path) -> dict[str, Path]:
    return {str(p.relative_to(folder)): p for p in folder.rglob("*") if stat.S_ISREG(p.lstat().st_mode)}
