"""Processes of penstock that start warm: forked from a server that has imported what they would import.

Four fifths of the tests' CPU went into child processes, most of that into imports (0.15 to 0.35 s each).
Once `enter` was called in a process, what `subprocess.Popen` starts there as `python -I -X utf8 -m
penstock...` (or without the options, where they change nothing) is forked from a server. It is a true child
of the process that asks: its id, exit status, signals, session, limits and open files are those that fork
and exec would give; it can be waited for and killed. What it starts itself is warm in the same way, also the
command of a rule, which Snakemake hands to bash.

How a process becomes the child of another than the server: the server is itself a child of the process that
asks. It forks twice; the process between ends, and the one below it goes to its nearest ancestor that adopts
orphans, which the process that asks is for this moment (prctl(2), PR_SET_CHILD_SUBREAPER).

| what the new process inherits                                      | how                                  |
|--------------------------------------------------------------------|--------------------------------------|
| environment, folder, open files, umask, signals, session, PDEATHSIG | sent to the server                  |
| another account, where one is asked for                            | set as between fork and exec          |
| capabilities, limits, namespaces, CPUs, cgroup, group              | compared; a cold start if they differ |
| variables that are read while modules are imported                 | the same (`READ_EARLY`)              |

What differs from a cold start: the memory shared with the server counts as the process's own (VmRSS); hashes
have the server's seed; modules that the process would not import are there; and the process has one child
more, which ends with it. A test that looks at these has the mark `cold_start`.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import os
import pickle
import pkgutil
import runpy
import shlex
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

ROOT = Path(__file__).resolve().parents[2]
EXECUTABLE = sys.executable
"""Of this process; a test that sets `sys.executable` to one of its own has that one started, cold."""
OPTIONS = ("-I", "-X", "utf8")
OURS = ("tests.support.all_steps", "tests.support.kill_points", "tests.support.on_mount", "snakemake")
"""Modules that start as penstock's do, and whose children are warm."""
READ_EARLY = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "TZ", "GLIBC_", "ARROW_", "PENSTOCK_TEST_HEARTBEAT")
SNAKEMAKE = "penstock.cli.snakemake_start"
PARENTS = ("penstock", SNAKEMAKE, *OURS)
"""Modules whose processes start others of penstock."""
PACKAGES = ("penstock", "snakemake")
"""Of those that start, packages: each is imported once."""
RULE = "set -euo pipefail; "
"""What Snakemake puts before a rule's command."""
LIBRARIES = (
    "pyarrow.compute",
    "pyarrow.parquet",
    "xxhash",
    "yaml",
    "rich.live",
    "rich.table",
    "jinja2",
    "snakemake.cli",
)
ANSWERS_WITHIN = 60.0
SHOWN = 16384
"""Bytes that a process's command line may have, and its environment, as the kernel shows them."""
HIGH = 400
"""Numbers from which on descriptors are kept for a moment: above those that anybody asks for."""

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 1, 4, 36, 37
_COMMAND, _ENVIRONMENT = 45, 47
"""Places of arg_start and env_start in /proc/PID/stat, counted from the state; each area's end follows."""
_libc = ctypes.CDLL(None, use_errno=True)
_BLOCKED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
_COMPARED = (
    "Uid", "Gid", "Groups", "NSpid", "NSsid", "NSpgid", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb",
    "NoNewPrivs", "Seccomp", "Cpus_allowed", "Mems_allowed",
)  # fmt: skip


def _surroundings() -> tuple[object, ...]:
    """What a process inherits and is not sent."""
    status = Path("/proc/self/status").read_text(errors="replace")
    rows = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    spaces = tuple(
        os.readlink(f"/proc/self/ns/{name}") for name in ("mnt", "net", "pid", "user", "uts", "ipc")
    )
    return (
        tuple(
            len(rows[name].split()) if name == "NSpid" else rows[name] for name in _COMPARED if name in rows
        ),
        spaces,
        Path("/proc/self/limits").read_text(),
        Path("/proc/self/cgroup").read_text(),
        os.readlink("/proc/self/root"),
        os.getpriority(os.PRIO_PROCESS, 0),
        Path("/proc/self/oom_score_adj").read_text(),
    )


class _Client:
    """The end of a process that asks a server for processes."""

    def __init__(self, channel: socket.socket, variables: Mapping[str, str] | None = None) -> None:
        """`variables`: of the server, beside this process's."""
        self.channel = channel
        self.owner = os.getpid()
        self.early = _early({**os.environ, **(variables or {})})
        self.surroundings = _surroundings()
        self.lock = threading.Lock()

    def fits(self, env: dict[str, str]) -> bool:
        return (
            os.getpid() == self.owner and self.early == _early(env) and self.surroundings == _surroundings()
        )

    def start(self, request: dict[str, Any], fds: list[int]) -> int:
        """The new process's id. Raises OSError where the server is gone."""
        with self.lock:
            adopts = ctypes.c_int()
            _libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(adopts), 0, 0, 0)
            _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                content = pickle.dumps(request)
                socket.send_fds(self.channel, [struct.pack("!I", len(content))], fds)
                self.channel.sendall(content)
                (pid,) = struct.unpack("!I", _exactly(self.channel, 4))
            finally:
                _libc.prctl(_PR_SET_CHILD_SUBREAPER, adopts.value, 0, 0, 0)
        return int(pid)


_client: _Client | None = None
_others: list[_Client] = []
"""Of servers with other variables (`entered_with`)."""
_cold = subprocess.Popen._execute_child  # type: ignore[attr-defined]


def enter() -> None:
    """From now on processes of penstock that this one starts are warm. To be called while it has one thread
    (the server ends with the thread that started it)."""
    server, ours = _server({})
    _enter(ours)
    atexit.register(_end, os.getpid(), server, ours)


@contextlib.contextmanager
def entered_with(variables: Mapping[str, str]) -> Generator[None]:
    """Processes of penstock that are started with these variables, too, are warm meanwhile: as with a library
    that is to be preloaded, which the server then has. For the main thread, as `enter`."""
    server, ours = _server(variables)
    ours.settimeout(ANSWERS_WITHIN)
    client = _Client(ours, variables)
    _others.append(client)
    try:
        yield
    finally:
        _others.remove(client)
        ours.close()
        server.wait()


def _server(variables: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """A server with these variables beside this process's, and the end that asks it."""
    ours, theirs = socket.socketpair()
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.support import warm; del sys.path[0]; "
        f"warm.run(warm.serve_first({theirs.fileno()}))"
    )
    server = subprocess.Popen(
        [sys.executable, *OPTIONS, "-c", code, " " * SHOWN],
        pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
        env={**os.environ, **variables, "ROOM": " " * SHOWN},
        preexec_fn=_dies_with_parent,  # noqa: PLW1509 - it takes no lock
    )  # fmt: skip
    theirs.close()
    return server, ours


def enter_by_fork() -> None:
    """As `enter`, by a server that is a fork of this process, with what this one has imported: for a process
    in surroundings of its own, which no server outside of them fits."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        _dies_with_parent()
        ours.close()
        run(_serve(theirs))
    theirs.close()
    _enter(ours)


def _end(owner: int, server: subprocess.Popen[bytes], channel: socket.socket) -> None:
    if os.getpid() == owner:
        channel.close()
        server.wait()


def _enter(channel: socket.socket) -> None:
    global _client
    channel.settimeout(ANSWERS_WITHIN)
    _client = _Client(channel)
    subprocess.Popen._execute_child = _execute_child  # type: ignore[attr-defined]


def leave() -> None:
    """From now on processes start cold, as they do elsewhere."""
    subprocess.Popen._execute_child = _cold  # type: ignore[attr-defined]


def resume() -> None:
    """After `leave`."""
    subprocess.Popen._execute_child = _execute_child  # type: ignore[attr-defined]


def _execute_child(
    self: Any, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any,
    startupinfo: Any, creationflags: Any, shell: Any, p2cread: int, p2cwrite: int, c2pread: int,
    c2pwrite: int, errread: int, errwrite: int, restore_signals: Any, gid: Any, gids: Any, uid: Any,
    umask: Any, start_new_session: Any, process_group: Any,
) -> None:  # fmt: skip
    """As `subprocess.Popen._execute_child`, whose arguments it has."""
    given = dict(os.environ) if env is None else env
    words = _words(_of_rule(args, executable) if shell else args)
    dies = getattr(preexec_fn, "__qualname__", "") == "dies_with.<locals>.prepare"
    usual = close_fds and bool(shell) == bool(executable) and restore_signals and (preexec_fn is None or dies)
    client = _fitting(_texts(given)) if usual and umask == -1 and words else None
    if client is not None:
        numbers = sorted({0, 1, 2, *map(int, pass_fds)})
        streams = {0: p2cread, 1: c2pwrite, 2: errwrite}
        files = [at if (at := streams.get(number, -1)) != -1 else number for number in numbers]
        try:
            folder = os.open(cwd or ".", os.O_PATH | os.O_DIRECTORY)
        except OSError:
            folder = -1
        if folder >= 0:
            request = {
                "words": words, "env": {os.fsencode(k): os.fsencode(v) for k, v in given.items()},
                "numbers": numbers, "parent": os.getpid(), "dies": dies, "session": bool(start_new_session),
                "group": process_group, "umask": int(_status("Umask"), 8), "ignored": _ignored(),
                "mask": signal.pthread_sigmask(signal.SIG_BLOCK, ()), "account": (uid, gid, gids),
            }  # fmt: skip
            try:
                self.pid = client.start(request, [folder, *files])
            except OSError:
                self.pid = None
            finally:
                os.close(folder)
            if self.pid is not None:
                self._child_created = True
                self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
                return
    _cold(
        self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell,
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, restore_signals, gid, gids, uid, umask,
        start_new_session, process_group,
    )  # fmt: skip


def _of_rule(text: Any, program: Any) -> list[str]:
    """The words of a rule's command, where bash only replaces itself by it (exec): one whose words all stand
    as `shlex.quote` writes them, as Snakemake's `:q` does. Else none."""
    if not isinstance(text, str) or not text.startswith(RULE) or Path(program or "").name != "bash":
        return []
    command = text.removeprefix(RULE).strip(" ")
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    return words if shlex.join(words) == command else []


def _words(args: Any) -> list[str]:
    """The module and its arguments, where `args` start one of penstock; else none."""
    if not isinstance(args, list | tuple) or not args:
        return []
    words = [os.fsdecode(word) for word in args]
    if words[0] != EXECUTABLE:
        return []
    rest = words[1 + len(OPTIONS) :] if tuple(words[1 : 1 + len(OPTIONS)]) == OPTIONS else words[1:]
    if len(rest) < 2 or rest[0] != "-m":
        return []
    return rest[1:] if rest[1] in OURS or rest[1].split(".")[0] == "penstock" else []


def _texts(env: Any) -> dict[str, str]:
    return {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}


def _early(env: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(READ_EARLY)}


def _status(name: str) -> str:
    rows = Path("/proc/self/status").read_text(errors="replace").splitlines()
    return next(row for row in rows if row.startswith(f"{name}:")).split()[1]


def _ignored() -> set[int]:
    """Signals that are ignored, but for those that the C library keeps for itself: these are no program's."""
    bits = int(_status("SigIgn"), 16)
    return {number for number in signal.valid_signals() if bits >> (number - 1) & 1}


def _exactly(channel: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        more = channel.recv(size - len(content))
        if not more:
            raise ConnectionError("the server that starts processes has ended")
        content += more
    return content


def _fitting(env: dict[str, str]) -> _Client | None:
    known = _others if _client is None else [_client, *_others]
    return next((client for client in known if client.fits(env)), None)


# The server.


def import_all() -> None:
    """Import what penstock's commands import when they need it: forks of this process need it no more."""
    for name in LIBRARIES:
        importlib.import_module(name)
    for info in pkgutil.walk_packages(importlib.import_module("penstock").__path__, "penstock."):
        if not info.name.endswith("__main__"):
            importlib.import_module(info.name)


def run(module: str) -> None:
    """Run it as `python -m` does, and end as the interpreter does, but that modules are not unloaded: this
    would copy the memory that is shared with the server, 0.06 s for a process that does nothing else."""
    status: object = None
    try:
        runpy._run_module_as_main(module)  # type: ignore[attr-defined]
    except SystemExit as end:
        status = end.code
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if not isinstance(status, int | None):
        print(status, file=sys.stderr)
        status = 1
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        status = 120
    os._exit((status or 0) & 0xFF)


def serve_first(number: int) -> str:
    """For the server that `enter` starts. Returns in a process that is to run the module which it gives."""
    import_all()
    gc.collect()
    gc.freeze()
    return _serve(socket.socket(fileno=number))


def _serve(channel: socket.socket) -> str:
    signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    while True:
        try:
            head, fds, _, _ = socket.recv_fds(channel, 4, 250)
        except OSError:
            os._exit(0)
        if not head:
            os._exit(0)
        request = pickle.loads(_exactly(channel, struct.unpack("!I", head)[0]))
        between = os.fork()
        if between == 0:
            if os.fork() == 0:
                return _become(request, fds, channel)
            os._exit(0)
        for fd in fds:
            os.close(fd)
        os.waitpid(between, 0)


def _become(request: dict[str, Any], fds: list[int], channel: socket.socket) -> str:
    """Be the process that was asked for; the module to run."""
    deadline = time.monotonic() + ANSWERS_WITHIN
    while os.getppid() != request["parent"]:
        # Has the process that asked ended meanwhile? What this one was sent keeps a file system busy.
        if time.monotonic() > deadline or not Path(f"/proc/{request['parent']}").exists():
            os._exit(1)
        time.sleep(0.0005)
    os.fchdir(fds[0])
    _be(*request["account"])
    if request["dies"]:
        _dies_with_parent()
    if request["session"]:
        os.setsid()
    elif request["group"] >= 0:
        os.setpgid(0, request["group"])
    module, *arguments = request["words"]
    parent = os.getpid()
    below = None
    if module in PARENTS:
        below, theirs = socket.socketpair()
        if os.fork() == 0:
            _dies_with_parent()
            if os.getppid() != parent:
                os._exit(0)
            for fd in (*fds, channel.detach(), below.detach()):
                os.close(fd)
            os.chdir("/")  # the folder of the process may be on a file system that is unmounted
            return _serve(theirs)
        theirs.close()
    os.umask(request["umask"])
    kept = [_raised(fd) for fd in fds[1:]]
    # Detached: a socket that still had its number would close what has that number from now on.
    answer = _raised(channel.detach())
    own = -1 if below is None else _raised(below.detach())
    os.closerange(0, HIGH)
    for fd, number in zip(kept, request["numbers"], strict=True):
        os.dup2(fd, number, inheritable=True)
        os.close(fd)
    _streams()
    os.environb.clear()
    os.environb.update(request["env"])
    time.tzset()
    for number in _ignored() ^ request["ignored"]:
        signal.signal(number, signal.SIG_IGN if number in request["ignored"] else signal.SIG_DFL)
    sys.argv = ["-m", *arguments]
    sys.orig_argv = [sys.executable, *OPTIONS, "-m", module, *arguments]
    _show(_COMMAND, [os.fsencode(word) for word in sys.orig_argv])
    _show(_ENVIRONMENT, [b"%b=%b" % variable for variable in request["env"].items()])
    if module not in PACKAGES:
        sys.modules.pop(module, None)
    if own >= 0:
        _enter(socket.socket(fileno=own))
    os.write(answer, struct.pack("!I", parent))
    os.close(answer)
    signal.pthread_sigmask(signal.SIG_SETMASK, request["mask"])
    return str(module)


def _be(uid: int | None, gid: int | None, gids: list[int] | None) -> None:
    """Become an account, as subprocess does between fork and exec. /proc/PID then belongs to it, as after
    exec."""
    if gids is not None:
        os.setgroups(gids)
    if gid is not None:
        os.setregid(gid, gid)
    if uid is not None:
        os.setreuid(uid, uid)
        _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def _raised(fd: int) -> int:
    import fcntl

    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH)
    os.close(fd)
    return high


def _show(area: int, words: list[bytes]) -> None:
    """Have /proc/PID/cmdline or environ give these words: the kernel reads them where the process's own once
    stood."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[area]), int(fields[area + 1])
    text = b"".join(word + b"\0" for word in words)[: end - begin - 1]
    ctypes.memmove(begin, text.ljust(end - begin, b"\0"), end - begin)


def _streams() -> None:
    """The standard streams as an interpreter makes them in Python's UTF-8 mode."""
    for number, name, mode, errors in (
        (0, "stdin", "r", "surrogateescape"),
        (1, "stdout", "w", "surrogateescape"),
        (2, "stderr", "w", "backslashreplace"),
    ):
        lines = number == 2 or (number == 1 and os.isatty(1))
        stream: Any = open(number, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        stream.reconfigure(line_buffering=lines)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _dies_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
