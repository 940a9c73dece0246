"""Start, harm and stop the test cluster."""

from __future__ import annotations

import json
import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster import database
from tests.cluster.processes import (
    Daemon,
    below,
    born,
    free_ports,
    kill,
    program,
    signal_to,
    start,
    stop,
    wait_for,
)
from tests.cluster.settings import ORDINARY, Settings, cgroup_conf, slurm_conf, slurmdbd_conf

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "sinfo")
KEEPER = Path(__file__).with_name("keeper.py")
HIERARCHIES = Path(__file__).with_name("hierarchies.sh")
SLURMS = ("slurmd", "slurmstepd")
"""How the names of its programs begin: Debian adds `-wlm`."""
PACKAGES = "munge slurmctld slurmd slurm-client"
PACKAGE_TOKENS = "slurm-wlm-jwt-plugin"
PLUGIN_TOKENS = "lib/*/slurm*/auth_jwt.so"
PACKAGES_ACCOUNTING = "slurmdbd mariadb-server"


def missing(settings: Settings) -> str:
    """What this machine lacks for such a cluster, as one sentence; empty: nothing."""
    accounting = settings.accounting
    lacking = [name for name in PROGRAMS if not shutil.which(name, path=database.search_path())]
    if accounting:
        lacking += database.missing()
    if settings.tokens and not any(Path("/usr").glob(PLUGIN_TOKENS)):
        lacking.append("auth_jwt.so")
    if not lacking:
        return _not_confining() if settings.confined else ""
    packages = PACKAGES + (f" {PACKAGES_ACCOUNTING}" if accounting else "")
    packages += f" {PACKAGE_TOKENS}" if settings.tokens else ""
    return f"no {', '.join(lacking)} here; on Debian or Ubuntu: apt-get install {packages}"


def _not_confining() -> str:
    """Why no node of this machine can confine its jobs; empty: it can."""
    if (os.cpu_count() or 1) < 2:
        return "a node that keeps a core from its jobs needs two"
    tried = subprocess.run([HIERARCHIES, "none", "try"], capture_output=True, text=True, check=False)
    said = " ".join(tried.stderr.split())
    return f"no cgroups of version 1 can be mounted here: {said}" if tried.returncode else ""


def remove(folder: Path) -> None:
    """A tree whose folders may be read-only, as releases are."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            with suppress(OSError):
                path.chmod(0o755)
    shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Machine:
    """A cluster in one folder. `up` returns when its nodes are idle."""

    folder: Path
    settings: Settings = field(default_factory=Settings)
    ports: dict[str, int] = field(default_factory=dict)
    daemons: dict[str, Daemon] = field(default_factory=dict)
    keepers: dict[str, list[Daemon]] = field(default_factory=dict)
    """The adoptive parents of all that each node started, one for each start of its slurmd."""
    views: dict[str, list[str]] = field(default_factory=dict)
    """A program (words to which slurmd's own are appended) that gives a node a view of its own of the file
    systems, and becomes what follows it (`tests.filesystems.bed.Bed.on`). Where a node has none it sees what
    this machine sees. It counts from the node's next start."""
    _guard: subprocess.Popen[bytes] | None = None

    @classmethod
    def new(
        cls, settings: Settings | None = None, *, views: Mapping[str, Sequence[str]] | None = None
    ) -> Machine:
        """In a new folder, short enough for a socket's path."""
        folder = Path(tempfile.mkdtemp(prefix="penstock-slurm-", dir="/tmp"))
        seen = {node: [*words] for node, words in (views or {}).items()}
        return cls(folder, settings or Settings(), views=seen)

    @classmethod
    def load(cls, folder: Path) -> Machine:
        """A cluster that another process started."""
        raw = json.loads((folder / "cluster.json").read_text())
        return cls(
            folder,
            Settings(**raw["settings"]),
            raw["ports"],
            {name: Daemon(**daemon) for name, daemon in raw["daemons"].items()},
            {node: [Daemon(**keeper) for keeper in kept] for node, kept in raw["keepers"].items()},
        )

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def nodes(self) -> Sequence[str]:
        return self.settings.nodes

    @property
    def env(self) -> dict[str, str]:
        """The whole environment of the daemons and of a bare client."""
        return {"PATH": database.search_path(), "SLURM_CONF": str(self.conf)}

    def up(self) -> None:
        if problem := missing(self.settings):
            raise RuntimeError(problem)
        user = pwd.getpwuid(os.geteuid()).pw_name
        self.folder.chmod(0o755)
        for name in ("state", "logs", "spool"):
            (self.folder / name).mkdir(mode=0o755, exist_ok=True)
            (self.folder / name).chmod(0o755)
        names = ("slurmctld", "slurmdbd", "database", *self.nodes)
        self.ports = self.ports or dict(zip(names, free_ports(len(names)), strict=True))
        hardware = self._hardware() if self.settings.confined else ""
        self.conf.write_text(slurm_conf(self.folder, self.ports, user, self.settings, hardware))
        (self.folder / "cgroup.conf").write_text(cgroup_conf(self._release(), self.settings))
        if self.settings.tokens:
            key = self.folder / "jwt.key"
            key.touch(mode=0o600)
            key.write_bytes(secrets.token_bytes(32))
        try:
            self._munge()
            if self.settings.accounting:
                self._accounting(user)
            self.start_controller()
            for node in self.nodes:
                self.start_node(node)
            self.wait_idle()
        except BaseException:
            self.down(keep=True)
            raise

    def _release(self) -> tuple[int, int]:
        """SLURM's release: (22, 5)."""
        said = self.run("slurmd", "-V").stdout
        found = re.search(r"(\d+)\.(\d+)", said)
        assert found, said
        return int(found[1]), int(found[2])

    def _hardware(self) -> str:
        """This machine's CPUs and memory as slurm.conf has them."""
        said = self.run("slurmd", "-C").stdout
        found = re.search(r"^NodeName=\S+ (CPUs=.*RealMemory=\d+)", said)
        assert found, said
        return found[1]

    def guard(self) -> None:
        """Have the cluster end with this process, also when that is killed."""
        env = {name: value for name, value in os.environ.items() if name != "SLURM_CONF"}
        self._guard = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster", "guard", "--folder", str(self.folder)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            cwd=CHECKOUT, env=env, start_new_session=True,
        )  # fmt: skip

    def _munge(self) -> None:
        key = self.folder / "munge.key"
        if not key.exists():
            key.touch(mode=0o600)
            key.write_bytes(secrets.token_bytes(128))
        socket = self.folder / "munge.socket"
        self._start(
            "munged",
            ["munged", "--foreground", "--force", f"--socket={socket}", f"--key-file={key}",
             f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/logs/munged.log",
             f"--seed-file={self.folder}/munged.seed", "--num-threads=4"],
        )  # fmt: skip
        wait_for(socket.exists, "munged")

    def _accounting(self, user: str) -> None:
        conf = self.folder / "slurmdbd.conf"
        conf.touch(mode=0o600)
        conf.write_text(slurmdbd_conf(self.folder, self.ports, user))
        self._keep(database.start_database(self.folder, self.ports["database"], user, self.env))
        self._keep(database.start_slurmdbd(self.folder, self.env))
        database.add_accounts(sorted({user, "root", ORDINARY}), self.env)

    def token(self, account: str) -> str:
        """Of an account, for `SLURM_JWT`; good for an hour."""
        said = self.run("scontrol", "token", f"username={account}", "lifespan=3600").stdout
        return said.strip().partition("SLURM_JWT=")[2]

    def start_controller(self) -> None:
        """slurmctld, answering. Jobs of an earlier life are known to it."""
        self._start("slurmctld", ["slurmctld", "-D"])

        def answers() -> bool:
            if not self.daemons["slurmctld"].alive:
                raise RuntimeError(f"slurmctld ended: see {self.folder}/logs/slurmctld.log")
            return self.run("scontrol", "ping").returncode == 0

        wait_for(answers, "slurmctld")

    def stop_controller(self) -> None:
        stop(self.daemons["slurmctld"])

    def start_node(self, node: str) -> None:
        """slurmd of one node; `wait_idle` says when the controller has it."""
        noted = self.folder / f"slurmd.{node}.started"
        noted.unlink(missing_ok=True)
        slurmd = [*self._confine("enter"), *self.views.get(node, [])]
        slurmd += self._program(["slurmd", "-D", "-N", node])
        command = [sys.executable, str(KEEPER), str(noted), *slurmd]
        keeper = start(f"keeper of {node}", command, self.folder / "logs" / f"{node}.out", self.env)
        self.keepers.setdefault(node, []).append(keeper)

        def begun() -> bool:
            if not keeper.alive:
                raise RuntimeError(f"slurmd of {node} ended: see {self.folder}/logs/{node}.out")
            return noted.exists()

        wait_for(begun, f"slurmd of {node}")
        pid = int(noted.read_text())
        self._keep(Daemon(node, pid, born(pid)))

    def _confine(self, verb: str) -> list[str]:
        """The words that give a node's slurmd cgroups of its own, or remove them."""
        if not self.settings.confined:
            return []
        return [str(HIERARCHIES), self.folder.name, verb]

    def kill_node(self, node: str) -> None:
        """What a power cut does: slurmd, slurmstepd and payload of one node end at once."""
        kill(self.daemons[node])
        # slurmstepd before what it watches, of whose end it would tell.
        for pid in [*self.steppers(node), *self.payload(node)]:
            signal_to(pid, signal.SIGKILL)

    def stop_slurmd(self, node: str) -> None:
        """Only slurmd ends; the payload goes on (the cluster will believe the node lost)."""
        kill(self.daemons[node])

    def freeze(self, node: str) -> None:
        """slurmd and slurmstepd end, the payload stops: SLURM will believe the node lost."""
        for pid in self.payload(node):
            signal_to(pid, signal.SIGSTOP)
        kill(self.daemons[node])
        for pid in self.steppers(node):
            signal_to(pid, signal.SIGKILL)

    def wake(self, pids: list[int]) -> None:
        for pid in pids:
            signal_to(pid, signal.SIGCONT)

    def payload(self, node: str) -> list[int]:
        """The processes of jobs on a node, without slurmstepd."""
        return [pid for pid in self._started(node) if not program(pid).startswith(SLURMS)]

    def steppers(self, node: str) -> list[int]:
        """slurmstepd of this node's jobs, and slurmd while it lives."""
        return [pid for pid in self._started(node) if program(pid).startswith(SLURMS)]

    def _started(self, node: str) -> list[int]:
        """All that descends from a node's slurmd, also what has outlived it."""
        keepers = [keeper.pid for keeper in self.keepers.get(node, []) if keeper.alive]
        return sorted(below(*keepers) - set(keepers))

    def kill_payload(self, node: str) -> None:
        for pid in self.payload(node):
            signal_to(pid, signal.SIGKILL)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A client command, as this user, in the cluster's environment."""
        return subprocess.run(
            list(command), env=self.env, capture_output=True, text=True, check=False, cwd="/"
        )

    def wait_idle(self, count: int | None = None, *, seconds: float = 120.0) -> None:
        """Until that many nodes, or all, are idle."""
        wanted = len(self.nodes) if count is None else count

        def idle() -> bool:
            answer = self.run("sinfo", "-h", "-N", "-p", "data", "-o", "%N %t").stdout.split("\n")
            return sum(line.endswith(" idle") for line in answer) >= wanted

        wait_for(idle, f"{wanted} idle nodes (see {self.folder}/logs)", seconds=seconds, every=0.2)

    def tidy(self) -> None:
        """Between tests: no jobs, all daemons up, all nodes idle."""
        if not self.daemons["slurmctld"].alive:
            self.start_controller()
        self.run("scancel", "--state=PENDING", "-u", "root")
        self.run("scancel", "-u", "root")
        self.run("scancel", "-u", ORDINARY)
        for node in self.nodes:
            if not self.daemons[node].alive:
                self.start_node(node)
            for pid in self.payload(node):
                signal_to(pid, signal.SIGCONT)
        wait_for(lambda: not self.run("squeue", "-h").stdout.strip(), "an empty queue", every=0.2)
        for node in self.nodes:
            self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        self.wait_idle()

    def down(self, *, keep: bool = False) -> None:
        """End everything that was started, jobs too, and remove the folder."""
        if "slurmctld" in self.daemons and self.daemons["slurmctld"].alive:
            self.run("scancel", "-f", "--full", "-u", pwd.getpwuid(os.geteuid()).pw_name)
        for name in ("slurmctld", *self.nodes):
            if name in self.daemons:
                kill(self.daemons[name])
        self._leftovers()
        for name in ("slurmdbd", "database", "munged"):
            if name in self.daemons:
                stop(self.daemons[name])
        self.daemons.clear()
        if not keep:
            remove(self.folder)
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait(60)
            self._guard = None

    def _leftovers(self) -> None:
        """slurmstepd and payloads outlive slurmd: whatever is still below its keeper, which then ends too."""
        for node, kept in self.keepers.items():
            while left := self._started(node):
                for pid in left:
                    signal_to(pid, signal.SIGKILL)
                time.sleep(0.02)
            for keeper in kept:
                kill(keeper)
        self.keepers.clear()
        if self.settings.confined:
            # A process that was killed leaves its cgroup a moment later.
            wait_for(
                lambda: self.run(*self._confine("remove")).returncode == 0, "the cgroups' end", every=0.2
            )

    def _start(self, name: str, command: list[str]) -> None:
        log = self.folder / "logs" / f"{name}.out"
        self._keep(start(name, self._program(command), log, self.env))

    @staticmethod
    def _program(command: list[str]) -> list[str]:
        found = shutil.which(command[0], path=database.search_path())
        assert found is not None
        return [found, *command[1:]]

    def _keep(self, daemon: Daemon) -> None:
        self.daemons[daemon.name] = daemon
        state = {
            "settings": asdict(self.settings),
            "ports": self.ports,
            "daemons": {name: asdict(d) for name, d in self.daemons.items()},
            "keepers": {node: [asdict(one) for one in kept] for node, kept in self.keepers.items()},
        }
        new = self.folder / "cluster.json.new"
        new.write_text(json.dumps(state, indent=1))
        new.rename(self.folder / "cluster.json")
