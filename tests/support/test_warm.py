"""What a process that starts warm is given, as a cold start gives it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support import warm
from tests.support.warm import ROOT

if TYPE_CHECKING:
    from pathlib import Path

WORKERS = """\
import os, socket, subprocess, sys
from tests.support import warm
warm.enter()
while True:
    # Of the lowest number that is free, which stays taken.
    given, mine = socket.socketpair()
    number = given.detach()
    if number >= 40:
        break
    # Without its second argument it ends, once it has taken the first as a socket.
    words = [sys.executable, *warm.OPTIONS, "-m", "penstock.engine.worker", str(number)]
    child = subprocess.Popen(words, pass_fds=[number], stderr=subprocess.PIPE)
    print(number, child.communicate()[1].decode().splitlines()[-1])
    mine.close()
"""


def test_a_descriptor_of_any_number_stays_open_in_a_warm_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORKERS],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ends = {line.partition(" ")[2] for line in done.stdout.splitlines()}
    assert ends == {"IndexError: list index out of range"}
    assert len(done.stdout.splitlines()) > 20


WAITS = """\
import os, socket, subprocess, sys
from pathlib import Path
from penstock.host.pacing import SharedMemory
from tests.support import warm
warm.enter()
given, mine = socket.socketpair()
fds = [given.detach(), SharedMemory().fd]
words = [sys.executable, *warm.OPTIONS, "-m", "penstock.engine.worker", *map(str, fds)]
env = {name: value for name, value in os.environ.items() if name.startswith(warm.READ_EARLY)}
env["KNOWN_BY"] = "x" * 1000
child = subprocess.Popen(words, pass_fds=fds, env=env, stderr=subprocess.DEVNULL)
shown = {
    name: Path(f"/proc/{child.pid}/{name}").read_bytes().rstrip(b"\\0").split(b"\\0")
    for name in ("cmdline", "environ")
}
assert shown["cmdline"] == [os.fsencode(word) for word in words], shown
assert shown["environ"] == [os.fsencode(f"{name}={env[name]}") for name in env], shown
mine.close()
child.wait()
"""


def test_the_kernel_shows_of_a_warm_process_what_it_was_given() -> None:
    """By its environment `kill_session` knows the processes of a session."""
    done = subprocess.run(
        [sys.executable, "-c", WAITS],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


PRELOADED = """\
import os, socket, subprocess, sys
from pathlib import Path
from penstock.host.pacing import SharedMemory
from tests.support import warm
warm.enter()
preload = {"LD_PRELOAD": sys.argv[1]}

def cold(*_):
    raise SystemExit("a cold start")

def has_the_library(variables):
    given, mine = socket.socketpair()
    fds = [given.detach(), SharedMemory().fd]
    words = [sys.executable, *warm.OPTIONS, "-m", "penstock.engine.worker", *map(str, fds)]
    child = subprocess.Popen(words, pass_fds=fds, env={**os.environ, **variables})
    maps = Path(f"/proc/{child.pid}/maps").read_text()
    mine.close()
    child.wait()
    return sys.argv[1] in maps

with warm.entered_with(preload):
    warm._cold = cold
    print(has_the_library(preload), has_the_library({}))
has_the_library(preload)
"""


def test_a_library_is_preloaded_into_processes_that_start_warm(tmp_path: Path) -> None:
    library = tmp_path / "none.so"
    subprocess.run(["cc", "-shared", "-o", library, "-x", "c", "/dev/null"], check=True)
    done = subprocess.run(
        [sys.executable, "-c", PRELOADED, str(library)],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("True False\n", "a cold start\n")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("/bin/echo -n a=1 '' 'b c' 'd'\"'\"'e' ", ["/bin/echo", "-n", "a=1", "", "b c", "d'e"]),
        ("/bin/echo 'x $(y) \\ \n\"z' \u00e9", []),
        ("/bin/echo 'x $(y) \\ \n\"z' '\u00e9'", ["/bin/echo", 'x $(y) \\ \n"z', "\u00e9"]),
        *(
            (f"/bin/echo a{more}", [])
            for more in (" > b", "; b", "&", " $HOME", " *", " ~", "\\ b", "'b", ' "b"')
        ),
    ],
)
def test_the_command_of_a_rule_is_taken_where_bash_only_becomes_it(command: str, words: list[str]) -> None:
    rule = f"set -euo pipefail;  {command}"
    assert warm._of_rule(rule, "/usr/bin/bash") == words
    assert warm._of_rule(rule, "/bin/dash") == warm._of_rule(command, "/bin/bash") == []
    if words:
        printed = rule.replace("/bin/echo", r"printf '%s\0'")
        given = subprocess.run(["bash", "-c", printed], capture_output=True, text=True, check=True).stdout
        assert given.split("\0")[:-1] == words[1:]
