"""The peers, in an environment of their own under the cache; never in the product's.

What this machine has already is taken; what only the system's packages have is named, not forced.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))
RCLONE = "github.com/rclone/rclone@v1.75.1"
SYSTEM = {"rsync": "rsync", "fpsync": "fpart"}


def path(cache: Path) -> str:
    """PATH with the peers' own folders first."""
    own = [str(cache / "peers" / "bin"), str(cache / "go" / "bin")]
    return os.pathsep.join([*own, os.environ["PATH"]])


def install(cache: Path) -> None:
    """Each peer that can be had here; a failure leaves it out and says so."""
    folder = cache / "peers"
    wanted = os.path.join(HERE, "peers.txt")
    done = folder / "installed"
    with open(wanted, encoding="utf-8") as file:
        text = file.read()
    if not done.exists() or done.read_text() != text:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "-r", wanted]
        if _try(pip):
            done.write_text(text)
    _name_python(folder / "bin")
    if shutil.which("rclone", path=path(cache)) is None:
        go = shutil.which("go", path=path(cache))
        if go:
            print("building rclone, some minutes once ...", flush=True)
            _try([go, "install", RCLONE], {"GOBIN": str(cache / "go" / "bin")})
    if shutil.which("rclone", path=path(cache)) is None:
        SYSTEM["rclone"] = "rclone"  # an older one is better than none
    packages = [package for program, package in SYSTEM.items() if shutil.which(program) is None]
    if packages and os.geteuid() == 0 and shutil.which("apt-get"):
        _try(["apt-get", "update", "--quiet=2"])
        _try(["apt-get", "install", "--yes", "--quiet=2", *packages], {"DEBIAN_FRONTEND": "noninteractive"})
    elif packages:
        print(f"to measure these too, install: {' '.join(packages)}")


def _name_python(folder: Path) -> None:
    """`peer-python` on PATH is the peers' own interpreter, and no other program's."""
    link = folder / "peer-python"
    if not link.exists() and (folder / "python").exists():
        link.symlink_to("python")


def _try(command: list[str], env: dict[str, str] | None = None) -> bool:
    ended = subprocess.run(command, env=os.environ | (env or {}), check=False)
    if ended.returncode:
        print(f"left out: {' '.join(command[-3:])} ended with {ended.returncode}")
    return ended.returncode == 0
