"""A second kernel: User Mode Linux of Debian, which runs as a process. It counts quotas on ext4 and XFS where
the kernel of this machine was built without them. Its root file system is this machine's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

KERNEL = "linux.uml"
PTRACE = Path(__file__).with_name("uml_ptrace.c")
MODULES = Path("/usr/lib/uml/modules")
BOOTED = "booted"
WITHIN = 200
"""Seconds for all of a script; booting takes 2."""


def need_kernel() -> None:
    """Skips where the other kernel is not installed, or may not mount."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts")
    if shutil.which(KERNEL) is None:
        pytest.skip(f"{KERNEL} is not installed (user-mode-linux)")


def command(init: Path, disks: Sequence[Path], *, memory: str, root: str) -> list[str]:
    """Return the command line that boots the kernel with `init`. `disks` are /dev/ubda, /dev/ubdb and so on;
    `root` is ro or rw: what the guest may do to this machine's files."""
    drives = [f"ubd{number}={disk}" for number, disk in enumerate(disks)]
    return [KERNEL, f"mem={memory}", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", root,
            f"init={init}", "con0=fd:0,fd:1", "con=null", "quiet", *drives]  # fmt: skip


def environment(folder: Path, memory_folder: Path) -> dict[str, str]:
    """Return the kernel's environment: its ptrace, which is compiled into `folder`, and the folder that holds
    the guest's memory as a file."""
    library = folder / "ptrace.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, PTRACE], check=True)
    return os.environ | {"LD_PRELOAD": str(library), "TMPDIR": str(memory_folder)}


def run(folder: Path, script: str, disks: Sequence[Path] = ()) -> str:
    """Run a script for Python as root under another kernel; what it printed. `disks` are /dev/ubda, /dev/ubdb
    and so on. Skips where that kernel cannot be started; fails where the script does."""
    need_kernel()
    (folder / "script.py").write_text(script, encoding="utf-8")
    out, ended, init = folder / "out", folder / "ended", folder / "init.sh"
    init.write_text(
        "#!/bin/sh\n"
        f"export PATH={os.environ['PATH']}:/usr/sbin:/sbin HOME=/root LC_ALL=C\n"
        "mount -t proc proc /proc\n"
        "mount -t tmpfs tmpfs /mnt\n"
        f"echo > {ended}.{BOOTED}\n"
        f"cd {folder} && {sys.executable} {folder}/script.py > {out} 2>&1\n"
        f"echo $? > {ended}\n"
        "echo o > /proc/sysrq-trigger\n"
        "read forever < /dev/console\n"
    )
    init.chmod(0o755)
    try:
        console = subprocess.run(
            command(init, disks, memory="768M", root="rw"),
            cwd=folder,
            env=environment(folder, folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=WITHIN,
            check=False,
            start_new_session=True,
        ).stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as error:
        console = (error.stdout or b"").decode(errors="replace")
    if not Path(f"{ended}.{BOOTED}").exists():
        pytest.skip(f"{KERNEL} does not run here: {console[-300:]}")
    printed = out.read_text(encoding="utf-8") if out.exists() else ""
    assert ended.exists(), printed + console
    assert ended.read_text().strip() == "0", printed
    return printed
