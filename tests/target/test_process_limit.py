"""Limits on processes and threads, as the kernel refuses them."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.forked import forked
from tests.target.test_cgroups import Kernel

from penstock.cli.main import main
from penstock.host import kernel_facts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

UID = 54_321
"""An account that has no other process."""
LIMIT = 6

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="an account without processes is needed")


def at_the_limit(refused: Callable[[], object]) -> str:
    """What is said of the error of `refused`, called as an account of LIMIT processes and threads."""

    def child() -> str:
        resource.setrlimit(resource.RLIMIT_NPROC, (LIMIT, LIMIT))
        assert kernel_facts.room() == LIMIT - 1
        end = threading.Event()
        while kernel_facts.room():
            threading.Thread(target=end.wait, daemon=True).start()
        try:
            refused()
        except (RuntimeError, OSError) as error:
            return str(kernel_facts.refused(error))
        return ""

    return str(forked(child, uid=UID))


@as_root
@pytest.mark.parametrize(
    "refused",
    [
        lambda: threading.Thread(target=print).start(),
        lambda: subprocess.run([sys.executable, "--version"], check=False),
        os.fork,
    ],
    ids=["thread", "process", "fork"],
)
def test_a_limit_that_is_reached_is_named(refused: Callable[[], Any]) -> None:
    text = at_the_limit(refused)
    assert "start no more processes or threads" in text
    assert f"`ulimit -u` is {LIMIT}" in text


@pytest.mark.parametrize(
    "error", [RuntimeError("another"), BlockingIOError(11, "busy", "/a/file"), OSError(5, "EIO")]
)
def test_other_errors_are_no_limit(error: BaseException) -> None:
    assert kernel_facts.refused(error) is None


@as_root
def test_run_says_so_before_it_starts_anything(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """nnUNet#1343: containers and batch systems with a handful of processes."""
    (tmp_path / "source").mkdir()
    config = tmp_path / "my.yaml"
    config.write_text(f"target: {{root: {tmp_path}/t}}\ndatasets: {{d: {{source: {tmp_path}/source}}}}\n")
    for folder in tmp_path.parents:
        if folder.stat().st_mode & 0o055 != 0o055:
            folder.chmod(0o755)
    os.chown(tmp_path, UID, UID)

    def child() -> int:
        os.chdir(tmp_path)
        resource.setrlimit(resource.RLIMIT_NPROC, (12, 12))
        return main(["--config", str(config), "run"])

    assert forked(child, uid=UID) == 1
    assert "`ulimit -u` is 12" in capfd.readouterr().err
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("version", [1, 2])
def test_the_limits_of_cgroups_count(tmp_path: Path, version: int) -> None:
    kernel = Kernel(tmp_path)
    kernel.is_in("8:pids:/job/step" if version == 1 else "0::/job/step")
    kernel.mounts(("cg", "/", "cgroup" if version == 1 else "cgroup2", "pids"))
    kernel.write("cg/job/pids.max", 100)
    kernel.write("cg/job/pids.current", 90)
    kernel.write("cg/job/step/pids.max", "max")
    kernel.write("cg/job/step/pids.current", 90)
    assert kernel_facts.process_limits(kernel.proc) == [(100, 90)]
    assert kernel_facts.room(kernel.proc) == 10
