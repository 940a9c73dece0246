"""A stand-in for pyslurm, for machines that do not have it. It is NOT pyslurm.

It has the names that penstock calls, with the types and the traps of pyslurm 25.11.2 as they were read in
its sources or seen with it, and carries them out by SLURM's commands, on the cluster of SLURM_CONF:

- importing it without a slurm.conf ENDS THE PROCESS, as libslurm does;
- `environment` as a text is sbatch's `--export`, which fetches a login environment: refused here;
- `time_limit` as a text of digits raises TypeError;
- an attribute that JobSubmitDescription does not have raises AttributeError;
- a core-spec of 0 is never sent; with the release 22.5.3 none is (`drops_core_spec`);
- `Job.cancel` takes errno for the answer, also after a success that left an older number there;
- an array's throttle given as `%4` is read as 0: no limit;
- without its controller each call raises RPCError, in libslurm's words;
- what libslurm and its plugins print goes to standard output.

`PYSLURM_STAND_IN` (JSON) scripts what cannot be had from a cluster: see `FAULTS`.
"""

import ctypes
import json
import os
import re
import signal
import subprocess
from typing import ClassVar

FAULTS = json.loads(os.environ.get("PYSLURM_STAND_IN", "{}"))
"""`version`: what `__version__` is; `cluster`: the name of another cluster, which its slurm.conf is of;
`without_conf`: importing ends the process; `dies`, `hangs`, `raises`, `prints`: the calls that do so; `pids`:
a file for the id of a process that hangs; `log`: a file that has the name of each call, a line each;
`old_errno`: a success of cancel looks like a failure; `drops_core_spec`: as 22.5.3 did."""

if FAULTS.get("without_conf"):
    os.write(2, b"pyslurm: fatal: Could not establish a configuration source\n")
    os._exit(1)


class RPCError(Exception):
    def __init__(self, errno=-1, msg=None):
        super().__init__(msg)
        self.errno, self.msg = errno, msg


def _run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


WORDS = (
    (
        r"unable to contact|connection refused|not responding",
        1001,
        "Unable to contact slurm controller (connect failure)",
    ),
    (r"invalid job id", 2017, "Invalid job id specified"),
    (r"invalid partition", 2000, "Invalid partition name specified"),
    (r"already (completing|completed|finished)", 2021, "Job/step already completing or completed"),
)


def _asked(*command, **more):
    done = _run(*command, **more)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())
        for pattern, number, words in WORDS:
            if re.search(pattern, said, re.IGNORECASE):
                raise RPCError(number, words)
        raise RPCError(-1, said)
    return done.stdout


def _release():
    return re.search(r"(\d+)\.(\d+)", _run("scontrol", "--version").stdout).groups()


def _version():
    major, minor = _release()
    return f"{major}.{int(minor)}.9"


__version__ = FAULTS.get("version") or _version()


def _hang():
    """As libslurm does: the interpreter runs nothing else meanwhile."""
    ctypes.PyDLL(None).sleep(600)


def _called(name):
    if "log" in FAULTS:
        with open(FAULTS["log"], "a") as log:
            log.write(name + "\n")
    if name in FAULTS.get("prints", ()):
        os.write(1, b"slurm_load_jobs: a plugin says hello\n")
    if name in FAULTS.get("dies", ()):
        os.kill(os.getpid(), signal.SIGSEGV)
    if name in FAULTS.get("hangs", ()):
        if "pids" in FAULTS:
            with open(FAULTS["pids"], "w") as pids:
                pids.write(str(os.getpid()))
        _hang()
    if name in FAULTS.get("raises", ()):
        raise AttributeError("'pyslurm' object has no attribute 'that'")


class slurmctld:  # noqa: N801 - as pyslurm has it
    class Config:
        @staticmethod
        def load():
            _called("cluster")
            said = re.search(r"^ClusterName\s*=\s*(\S+)", _asked("scontrol", "show", "config"), re.MULTILINE)
            config = slurmctld.Config()
            config.cluster_name = FAULTS.get("cluster") or said.group(1)
            return config


def _listed(text):
    return [] if text in ("", "(null)") else text.split(",")


class Node:
    pass


class Nodes(dict):
    @staticmethod
    def load():
        _called("nodes")
        found = Nodes()
        for line in _asked("scontrol", "show", "node", "--oneliner").splitlines():
            words = dict(re.findall(r"(\w+)=(\S*)", line))
            node = Node()
            node.name = words["NodeName"]
            node.total_cpus = int(words["CPUTot"])
            node.sockets, node.cores_per_socket = int(words["Sockets"]), int(words["CoresPerSocket"])
            node.threads_per_core = int(words.get("ThreadsPerCore", 1))
            node.memory_reserved_for_system = int(words.get("MemSpecLimit", 0)) or None
            node.cores_reserved_for_system = int(words.get("CoreSpecCount", 0)) or None
            node.real_memory = int(words["RealMemory"])
            node.partitions = _listed(words.get("Partitions", ""))
            node.available_features = _listed(words.get("AvailableFeatures", ""))
            state = words["State"]
            node.state = state.rstrip("*") + ("+NOT_RESPONDING" if state.endswith("*") else "")
            reason = re.search(r" Reason=(.*?)(?: \[[^\]]*\])?\s*$", line)
            node.reason = reason.group(1) if reason else None
            node.configured_gres = {}
            for one in _listed(re.sub(r"\(.*?\)", "", words.get("Gres", ""))):
                name, _, count = one.rpartition(":")
                node.configured_gres[name] = int(count)
            found[node.name] = node
        return found


class Partition:
    pass


class Partitions(dict):
    @staticmethod
    def load():
        _called("partitions")
        found = Partitions()
        for line in _asked("scontrol", "show", "partition", "--oneliner").splitlines():
            words = dict(re.findall(r"(\w+)=(\S*)", line))
            one = Partition()
            one.name, one.is_default = words["PartitionName"], words["Default"] == "YES"
            one.max_time = "UNLIMITED"
            if words["MaxTime"] != "UNLIMITED":
                days, _, clock = words["MaxTime"].rpartition("-")
                hours, minutes, _ = clock.split(":")
                one.max_time = (int(days or 0) * 24 + int(hours)) * 60 + int(minutes)
            one.qos = None if words["QoS"] == "N/A" else words["QoS"]
            found[one.name] = one
        return found


class JobSubmitDescription:
    """Attributes as sbatch's options: name of the option, and how the value is written."""

    OPTIONS: ClassVar = {
        "name": "job-name", "comment": "comment", "array": "array", "log_files_open_mode": "open-mode",
        "standard_in": "input", "standard_output": "output", "working_directory": "chdir", "nodes": "nodes",
        "ntasks": "ntasks", "cpus_per_task": "cpus-per-task", "partitions": "partition", "account": "account",
        "qos": "qos", "reservations": "reservation", "constraints": "constraint", "licenses": "licenses",
        "memory_per_node": "mem", "required_nodes": "nodelist", "cores_reserved_for_system": "core-spec",
        "excluded_nodes": "exclude", "wckey": "wckey",
    }  # fmt: skip
    OTHERS = ("script", "environment", "is_requeueable", "signal", "time_limit", "resource_sharing")

    def __init__(self, **given):
        for name, value in given.items():
            if name not in self.OPTIONS and name not in self.OTHERS:
                raise AttributeError(f"'JobSubmitDescription' object has no attribute '{name}'")
            setattr(self, name, value)

    def submit(self):
        _called("submit")
        given = dict(self.__dict__)
        script, environment = given.pop("script"), given.pop("environment")
        if not script.startswith("#!"):
            raise ValueError("Not a valid Batch script. First line must start with '#!'")
        if not isinstance(environment, dict):
            raise RuntimeError("this environment would make slurmd fetch the login environment of the user")
        words = ["sbatch", "--parsable", "--export=ALL"]
        warning = given.pop("signal", None)
        if warning:
            words.append(
                "--signal={}{}@{}".format("B:" * warning["batch_only"], warning["signal"], warning["time"])
            )
        limit = given.pop("time_limit", None)
        if limit is not None:
            if not isinstance(limit, int):
                raise TypeError("an integer is required")
            words.append(f"--time={limit}")
        words.append("--requeue" if given.pop("is_requeueable") else "--no-requeue")
        if given.pop("resource_sharing", None) == "exclusive":
            words.append("--exclusive")
        spec = given.pop("cores_reserved_for_system", None)
        if spec and not FAULTS.get("drops_core_spec"):
            words.append(f"--core-spec={spec}")
        for name, value in given.items():
            text = ",".join(value) if isinstance(value, list) else value
            words.append(f"--{self.OPTIONS[name]}={text}")
        # What sbatch sets by itself is not its caller's to give.
        kept = {name: text for name, text in environment.items() if not name.startswith("SLURM_RLIMIT")}
        return int(_asked(*words, input=script, env=kept))


class Job:
    def __init__(self, job_id):
        self.id = job_id

    @staticmethod
    def load(job_id):
        noted = re.search(r"ArrayTaskThrottle=(\d+)", _asked("scontrol", "show", "job", str(job_id)))
        job = Job(job_id)
        job.array_tasks_parallel = (int(noted.group(1)) or None) if noted else None
        return job

    def cancel(self):
        _called("cancel")
        _asked("scancel", str(self.id))
        if FAULTS.get("old_errno"):
            raise RPCError(115, "Operation now in progress")

    def modify(self, changes):
        _called("throttle")
        bare = re.match(r"\d*", changes.array).group() or "0"
        _asked("scontrol", "update", f"JobId={self.id}", f"ArrayTaskThrottle={bare}")
