"""A guest of User Mode Linux whose root is this machine's, read-only: boot, run commands, power off."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from tests.beegfs_bed.inside import READY
from tests.support import uml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CHECKOUT = Path(__file__).resolve().parents[2]
SHARED = Path("/mnt/shared")
MOUNT = Path("/mnt/beegfs")
ADDRESS = "10.9.9.1"
INTERFACE = "bee0"
HOST = "bee1"
USER, UID = "stager", 20001
HOME = Path("/run/home")
BOOTS_WITHIN = 120.0
ENDS_WITHIN = 60.0
MODULES = ("kernel/drivers/net/dummy", "kernel/fs/quota/quota_tree", "kernel/fs/quota/quota_v2")
# BeeGFS leaves loopback out, so there is a dummy interface. /etc is a copy: servers, client and commands find
# their configuration there, and the ordinary user is no account of this machine.
INIT = """\
#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME={home}/root LC_ALL=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /mnt
mount -t tmpfs tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs tmpfs /var/log
mkdir -p {shared} {mount} /dev/shm /dev/pts {home}/root
mount -t hostfs none {shared} -o {folder}
exec > {shared}/init.log 2>&1
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t devpts devpts /dev/pts
for tree in {trees}; do
    [ -d $tree ] || {{ mkdir -p $tree && mount -t hostfs none $tree -o $tree; }}
done
mkdir /run/etc && cp -a /etc/. /run/etc/ && mount --bind /run/etc /etc
rm -rf /etc/beegfs /etc/penstock
echo '{user}:x:{uid}:{uid}::{home}/{user}:/bin/sh' >> /etc/passwd
echo '{user}:x:{uid}:' >> /etc/group
install -d -o {uid} -g {uid} {home}/{user}
hostname {host}
echo '{address} {host}' >> /etc/hosts
for module in {modules}; do insmod {kernel_modules}/$(uname -r)/$module.ko; done
ip link set lo up
ip link add {interface} type dummy 2> /dev/null || ip link set dummy0 name {interface}
ip address add {address}/24 dev {interface}
ip link set {interface} up
cd {checkout}
{exports}
{python} -m tests.beegfs_bed.inside {shared}
echo o > /proc/sysrq-trigger
read forever < /dev/console
"""


class Ended(NamedTuple):
    """A command that ended in the guest."""

    status: int
    printed: str


class Guest:
    """One guest. `folder` holds its console, what it shares with this machine, and what commands printed."""

    def __init__(
        self, folder: Path, disks: Sequence[Path], trees: Sequence[Path], variables: Mapping[str, str]
    ) -> None:
        self.folder = folder
        self._disks = disks
        self._trees = trees
        self._variables = variables
        self._orders = 0
        self._kernel: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._boot()
        return self

    def __exit__(self, *_: object) -> None:
        self._power_off()

    def run(self, *words: str | Path, user: bool = False, within: float = 600.0) -> Ended:
        """Run a command as root or as the ordinary user. Status 124: it was killed after `within` seconds, or
        hangs beyond signals."""
        self._orders += 1
        number = self._orders
        argv = [*(("runuser", "-u", USER, "--") if user else ()), *map(str, words)]
        order = self.folder / f"{number:04}.order"
        new = order.with_suffix(".new")
        new.write_text(json.dumps([argv, within]), encoding="utf-8")
        new.rename(order)
        ended, out = order.with_suffix(".ended"), order.with_suffix(".out")
        deadline = time.monotonic() + within + 10.0
        while not ended.exists() and time.monotonic() < deadline and self._runs():
            time.sleep(0.1)
        status = int(ended.read_text()) if ended.exists() else 124
        return Ended(status, out.read_text(encoding="utf-8", errors="replace") if out.exists() else "")

    def console(self) -> str:
        """What the guest's kernel and its init printed last."""
        texts = [self.folder / name for name in ("console", "init.log")]
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in texts if path.exists())

    def _boot(self) -> None:
        for old in self.folder.glob("*.order"):
            old.unlink()
        (self.folder / READY).unlink(missing_ok=True)
        init = self.folder / "init.sh"
        init.write_text(
            INIT.format(
                home=HOME, shared=SHARED, mount=MOUNT, folder=self.folder, user=USER, uid=UID, host=HOST,
                address=ADDRESS, interface=INTERFACE, modules=" ".join(MODULES), kernel_modules=uml.MODULES,
                trees=" ".join(shlex.quote(str(tree)) for tree in (CHECKOUT, *self._trees)),
                checkout=shlex.quote(str(CHECKOUT)), python=shlex.quote(sys.executable),
                exports="\n".join(f"export {k}={shlex.quote(v)}" for k, v in self._variables.items()),
            )
        )  # fmt: skip
        init.chmod(0o755)
        memory = next(place for place in (Path("/dev/shm"), self.folder) if os.access(place, os.W_OK))
        with (self.folder / "console").open("wb") as console:
            self._kernel = subprocess.Popen(
                uml.command(init, self._disks, memory="2000M", root="ro"),
                cwd=self.folder,
                env=uml.environment(self.folder, memory),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + BOOTS_WITHIN
        while not (self.folder / READY).exists():
            if not self._runs() or time.monotonic() > deadline:
                self._power_off()
                raise OSError(f"the guest did not boot: {self.console()}")
            time.sleep(0.1)

    def _runs(self) -> bool:
        return self._kernel is not None and self._kernel.poll() is None

    def _power_off(self) -> None:
        """End the guest by its own power-off; a guest that hangs is killed, with its own session alone."""
        assert self._kernel is not None
        if self._runs():
            self.run("sh", "-c", "sync; echo o > /proc/sysrq-trigger", within=ENDS_WITHIN)
        try:
            self._kernel.wait(timeout=ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            os.killpg(self._kernel.pid, signal.SIGKILL)
            self._kernel.wait()


def why_not() -> str:
    """Why no guest can run on this machine; empty where it can."""
    if os.geteuid() != 0:
        return "guests want root, which mounts"
    wanted = (uml.KERNEL, "cc", "mkfs.ext4", "mkfs.xfs", "xfs_quota", "openssl", "runuser", "ip")
    missing = [name for name in wanted if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)} (make system)" if missing else ""
