"""The helper process that has pyslurm: reads a call a line from its standard input, answers with a line.

`cluster.pyslurm_python` runs it, which may be a site module's Python 3.6: it imports the standard library and
pyslurm alone, nothing of penstock, and keeps to that release's syntax. The lines are JSON:

    {"id": 3, "call": "job", "given": {"job": 17}, "within": 120}
    {"id": 3, "result": {...}}                   or {"id": 3, "failed": {"kind": ..., "words": ...}}

`kind` is `refused` (SLURM's own words) or `raised` (another exception of pyslurm, or one of this program). A
first answer with the id 0 says that pyslurm was imported. The process ends with its standard input, by
SIGALRM when a call takes longer than `within` seconds, and by SIGIO as soon as its parent has ended: also
inside libslurm, where no line of Python runs. So it submits no job that nobody waits for.
"""

import fcntl
import json
import os
import platform
import select
import signal
import sys
from typing import IO, Any, Dict

GRACE = 10
"""Seconds beyond `within` after which the process ends itself: the caller gives up first."""


def facts(pyslurm: Any, given: Dict[str, Any]) -> Any:
    config = pyslurm.slurmctld.Config.load()
    return {
        "version": config.version,
        "cluster": config.cluster_name,
        "max_array": config.max_array_size,
        "allows_core_spec": config.allow_spec_resource_usage,
        "storage": config.accounting_storage_type,
        "min_job_age": config.min_job_age,
    }


def nodes(pyslurm: Any, given: Dict[str, Any]) -> Any:
    return [
        {
            "name": node.name,
            "cpus": node.total_cpus,
            "sockets": node.sockets,
            "cores": node.cores_per_socket,
            "threads": node.threads_per_core,
            "memory_reserved": node.memory_reserved_for_system,
            "tmp": node.temporary_disk,
            "reserved": node.cores_reserved_for_system,
            "memory": node.real_memory,
            "partitions": list(node.partitions),
            "features": list(node.available_features),
            "state": node.state,
            "reason": node.reason,
            "gres": [f"{name}:{count}" for name, count in node.configured_gres.items()],
        }
        for node in pyslurm.Nodes.load().values()
    ]


def partitions(pyslurm: Any, given: Dict[str, Any]) -> Any:
    return [
        {
            "name": one.name,
            "default": bool(one.is_default),
            "minutes": one.max_time,
            "default_minutes": one.default_time,
            "min_nodes": one.min_nodes,
            "max_nodes": one.max_nodes,
            "qos": one.qos,
        }
        for one in pyslurm.Partitions.load().values()
    ]


def submit(pyslurm: Any, given: Dict[str, Any]) -> Any:
    return pyslurm.JobSubmitDescription(**given["attributes"]).submit()


def job(pyslurm: Any, given: Dict[str, Any]) -> Any:
    seen = pyslurm.Job.load(given["job"])
    return {
        "state": seen.state,
        "node": seen.allocated_nodes,
        "reason": seen.state_reason,
        "array": seen.array_id,
    }


def cancel(pyslurm: Any, given: Dict[str, Any]) -> Any:
    pyslurm.Job(given["job"]).cancel()
    return None


def throttle(pyslurm: Any, given: Dict[str, Any]) -> Any:
    """The number that SLURM has noted. It is given bare: of `%4` slurmctld reads 0, which is no limit."""
    pyslurm.Job(given["job"]).modify(pyslurm.JobSubmitDescription(array=str(given["at_once"])))
    return pyslurm.Job.load(given["job"]).array_tasks_parallel


def ended(pyslurm: Any, given: Dict[str, Any]) -> Any:
    return [
        {
            "job": one.id,
            "array": one.array_id,
            "task": one.array_task_id,
            "waiting": one.array_tasks_waiting,
            "state": one.state,
            "started": one.start_time,
            "ended": one.end_time,
            "nodes": one.nodelist,
            "name": one.name,
        }
        for one in pyslurm.db.Jobs.load(pyslurm.db.JobFilter(ids=[given["job"]])).values()
    ]


CALLS = {
    "facts": facts,
    "nodes": nodes,
    "partitions": partitions,
    "submit": submit,
    "job": job,
    "cancel": cancel,
    "throttle": throttle,
    "ended": ended,
}


def failure(pyslurm: Any, error: BaseException) -> Dict[str, Any]:
    words = " ".join(str(error).split())
    if isinstance(error, pyslurm.RPCError):
        return {"kind": "refused", "words": words}
    return {"kind": "raised", "words": f"{type(error).__name__}: {words}"}


def serve(pyslurm: Any, calls: IO[str], answers: IO[str]) -> None:
    for line in calls:
        call = json.loads(line)
        signal.alarm(int(call["within"]) + GRACE)
        answer = {"id": call["id"]}
        try:
            answer["result"] = CALLS[call["call"]](pyslurm, call["given"])
        except Exception as error:  # noqa: BLE001 - the caller judges it
            answer["failed"] = failure(pyslurm, error)
        signal.alarm(0)
        say(answers, answer)


def say(answers: IO[str], answer: Dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def end_with(lifeline: int) -> None:
    """Be killed when the other end of this pipe is closed, which only the parent has and never writes to. The
    kernel's own "dies with its parent" would follow the parent's thread. An interpreter that is a script may
    have closed the pipe: then SIGALRM remains."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    try:
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    except OSError:
        return
    before = select.poll()
    before.register(lifeline, 0)
    if before.poll(0):
        os._exit(1)


def main() -> None:
    end_with(int(sys.argv[2]))
    # Answers have a descriptor of their own: what libslurm or a plugin prints goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]
    signal.alarm(int(sys.argv[1]) + GRACE)
    # Without a slurm.conf libslurm ends the process here; with a wrong one it may take a minute.
    import pyslurm

    signal.alarm(0)
    say(answers, {"id": 0, "result": {"pyslurm": pyslurm.__version__, "python": platform.python_version()}})
    serve(pyslurm, sys.stdin, answers)
    answers.flush()
    # libslurm's own end is not waited for.
    os._exit(0)


if __name__ == "__main__":
    main()
