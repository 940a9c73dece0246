"""Runs a call of pyslurm: `python pyslurm_helper.py SECONDS CALL`, with arguments as JSON on standard input.

The interpreter is `cluster.pyslurm_python`, which may be a site module's Python 3.6. So this file imports
only the standard library and pyslurm, in the syntax of Python 3.6. Its one line of output is JSON:

    {"result": ...}     or, in SLURM's own words, {"refused": "Invalid partition name specified"}

Any other exception ends the process with a traceback. After SECONDS SIGALRM ends it, even inside libslurm.
The caller cannot always end it: if the interpreter is a script, its death may leave this process running.
"""

import json
import os
import signal
import sys
from typing import Any, Dict

MIB = 1 << 20


def cluster(pyslurm: Any, request: Dict[str, Any]) -> Any:
    """Return pyslurm's version, and the name of its cluster."""
    return {"pyslurm": pyslurm.__version__, "cluster": pyslurm.slurmctld.Config.load().cluster_name}


def submit(pyslurm: Any, request: Dict[str, Any]) -> Any:
    return pyslurm.JobSubmitDescription(**request).submit()


def cancel(pyslurm: Any, request: Dict[str, Any]) -> Any:
    pyslurm.Job(int(request["job"])).cancel()


def throttle(pyslurm: Any, request: Dict[str, Any]) -> Any:
    """Set the limit, and return the limit that SLURM has noted. The number is passed bare, since slurmctld
    reads `%4` as 0, which means no limit."""
    job = int(request["job"])
    pyslurm.Job(job).modify(pyslurm.JobSubmitDescription(array=str(request["at_once"])))
    return pyslurm.Job.load(job).array_tasks_parallel


def nodes(pyslurm: Any, request: Dict[str, Any]) -> Any:
    """Return the fields of `facts.Node`."""
    return [_node(node) for node in pyslurm.Nodes.load().values()]


def _node(node: Any) -> Dict[str, Any]:
    gres = ",".join("{}:{}".format(*counted) for counted in node.configured_gres.items())
    return {
        "name": node.name,
        "cpus": node.total_cpus,
        "cores": node.sockets * (node.cores_per_socket or 1),
        "reserved": node.cores_reserved_for_system or 0,
        "memory": (node.real_memory or 0) * MIB,
        "partitions": list(node.partitions) or [""],
        "features": list(node.available_features) or [""],
        "state": _starred(node.state or ""),
        "reason": node.reason or "",
        "gpus": gres if "gpu" in gres else "",
        "sockets": node.sockets,
        "threads": node.threads_per_core or 1,
        "memory_spec": (node.memory_reserved_for_system or 0) * MIB,
    }


def _starred(state: str) -> str:
    """Turn pyslurm's `DOWN+DRAIN+NOT_RESPONDING` into `DOWN*+DRAIN`, as `scontrol` writes it."""
    base, *flags = state.split("+")
    kept = [flag for flag in flags if flag != "NOT_RESPONDING"]
    return "+".join([base + "*" * (kept != flags), *kept])


def partitions(pyslurm: Any, request: Dict[str, Any]) -> Any:
    """Return the fields of `facts.Partition`."""
    return [
        {
            "name": partition.name,
            "default": bool(partition.is_default),
            # pyslurm writes no limit as None or as a word.
            "max_time": 60.0 * partition.max_time if isinstance(partition.max_time, int) else None,
            "qos": partition.qos or "",
        }
        for partition in pyslurm.Partitions.load().values()
    ]


CALLS = {call.__name__: call for call in (cluster, submit, cancel, throttle, nodes, partitions)}


def main() -> None:
    signal.alarm(int(sys.argv[1]))
    request = json.load(sys.stdin)
    # Anything that libslurm or a plugin prints goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # If slurm.conf is missing, libslurm ends the process here; if it is wrong, this may take a minute.
    import pyslurm

    try:
        answer = {"result": CALLS[sys.argv[2]](pyslurm, request)}
    except pyslurm.RPCError as error:
        answer = {"refused": " ".join(str(error).split())}
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
    # Do not wait for libslurm's own cleanup.
    os._exit(0)


if __name__ == "__main__":
    main()
