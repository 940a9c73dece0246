"""BeeGFS in the guest: what its daemons are told, and how they are started and stopped.

`python -m tests.beegfs_bed.servers` starts all of it and mounts the client; as root, in the guest. The
configuration is the shipped one, with the keys below changed. Nothing is unmounted at the end: the disks go
with their guest.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.beegfs_bed import disks
from tests.beegfs_bed.guest import ADDRESS, HOST, INTERFACE, MOUNT, USER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

VERSION = os.environ.get("BED_VERSION", "")  # 7 or 8
PROGRAMS = Path(os.environ.get("BED_PROGRAMS", "/nonexistent"))  # the folder of that version's built programs
ETC = Path("/etc/beegfs")
LOGS = Path("/var/log")
MANAGEMENT = disks.DISKS[0].folder / "management"
AUTH = ETC / "conn.auth"
PROC = Path("/proc/fs/beegfs")
STARTS_WITHIN = 400.0
"""Seconds. The first start of the metadata server makes 65,536 folders."""
ENDS_WITHIN = 120.0
# What a shipped file does not have is left out of it.
EVERYWHERE: dict[str, object] = {
    "connInterfacesFile": ETC / "interfaces",
    "sysMgmtdHost": ADDRESS,
    "connDisableIPv6": "true",
    **({"connDisableAuthentication": "true"} if VERSION == "7" else {}),
}
METADATA = {
    "storeMetaDirectory": disks.DISKS[0].store,
    "storeClientXAttrs": "true",
    "storeClientACLs": "true",
    "sysAllowUserSetPattern": "true",
    "tuneNumWorkers": 4,
}
CLIENT = {"quotaEnabled": "true", "sysXAttrsEnabled": "true", "sysACLsEnabled": "true", "logType": "syslog"}
# As shipped each of these small targets would be in the pool "emergency".
MANAGEMENT_7 = {
    "storeMgmtdDirectory": MANAGEMENT,
    "tuneStorageSpaceLowLimit": "100M",
    "tuneStorageSpaceEmergencyLimit": "20M",
    "tuneStorageInodesLowLimit": "1K",
    "tuneStorageInodesEmergencyLimit": "100",
    "tuneMetaSpaceLowLimit": "50M",
    "tuneMetaSpaceEmergencyLimit": "10M",
    "tuneMetaInodesLowLimit": "1K",
    "tuneMetaInodesEmergencyLimit": "100",
    "tuneStorageDynamicPools": "false",
    "tuneMetaDynamicPools": "false",
    "quotaEnableEnforcement": "true",
    "quotaQueryWithSystemUsersGroups": "true",
    "quotaUpdateIntervalMin": 1,
}
MANAGEMENT_8 = f"""\
db-file = "{MANAGEMENT}/mgmtd.sqlite"
log-target = "stderr"
interfaces = ["{INTERFACE}"]
ipv6-disable = true
quota-enable = true
quota-enforce = true
quota-update-interval = "10s"
quota-user-system-ids-min = 1000
quota-group-system-ids-min = 1000
[cap-pool-meta-limits]
inodes-low = "2000"
inodes-emergency = "1000"
space-low = "50MiB"
space-emergency = "10MiB"
[cap-pool-storage-limits]
inodes-low = "2000"
inodes-emergency = "1000"
space-low = "100MiB"
space-emergency = "20MiB"
"""


class Daemon(NamedTuple):
    """A server, or the client's helper: its program, the port that it listens on, its own keys."""

    program: str
    port: int
    settings: Mapping[str, object]


def _storage(node: int) -> dict[str, object]:
    stores = ",".join(str(disk.store) for disk in disks.STORAGE if disk.node == node)
    return {"storeStorageDirectory": stores, "tuneNumWorkers": 2}


SECOND = 8103
PORT_KEYS = ("connStoragePort", "connStoragePortTCP", "connStoragePortUDP")
# In the order in which they start.
DAEMONS = {
    "management": Daemon("mgmtd", 8008, MANAGEMENT_7),
    "storage1": Daemon("storage", 8003, _storage(1)),
    "storage2": Daemon("storage", SECOND, _storage(2) | dict.fromkeys(PORT_KEYS, SECOND)),
    "metadata": Daemon("meta", 8005, METADATA),
    **({"helper": Daemon("helperd", 8006, {})} if VERSION == "7" else {}),
}


def up() -> None:
    """Start every server, and mount the client; returns when it reports each target as online."""
    disks.mount_all()
    _configure()
    _number_stores()
    for name in DAEMONS:
        start(name)
    subprocess.run(["insmod", PROGRAMS / "beegfs.ko"], check=True)
    mount: list[str | Path] = [
        "mount",
        "-t",
        "beegfs",
        "beegfs_nodev",
        MOUNT,
        "-o",
        f"cfgFile={ETC / 'beegfs-client.conf'}",
    ]
    # The client refuses until the management service knows the metadata server.
    wait_for(lambda: subprocess.run(mount, check=False).returncode == 0, "the mount", STARTS_WITHIN)
    MOUNT.chmod(0o1777)
    wait_for(all_online, "each target online", STARTS_WITHIN)


def start(name: str) -> None:
    """Start a server; returns when it listens."""
    daemon = DAEMONS[name]
    program = PROGRAMS / f"bin/beegfs-{daemon.program}"
    words: list[str | Path] = [program]
    if (VERSION, name) != ("8", "management"):
        words += [f"cfgFile={ETC / f'{name}.conf'}", "runDaemonized=false"]
    with (LOGS / f"{name}.console").open("ab") as out:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    _pid_file(name).write_text(str(process.pid))
    wait_for(lambda: process.poll() is not None or _listens(daemon.port), name, STARTS_WITHIN)
    if process.poll() is not None:
        raise OSError(f"{program} ended with {process.returncode}: {logged(name)}")


def stop(name: str, by: signal.Signals = signal.SIGTERM) -> None:
    """Stop a server; returns when its process is gone."""
    pid = int(_pid_file(name).read_text())
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, by)
    wait_for(lambda: not _lives(pid), f"the end of {name}", ENDS_WITHIN)


def logged(name: str) -> str:
    """The last lines that a server logged."""
    paths = [path for path in (LOGS / f"{name}.log", LOGS / f"{name}.console") if path.exists()]
    return "\n".join(path.read_text(errors="replace")[-1500:] for path in paths)


def all_online() -> bool:
    """Whether the client reports each target as online."""
    lines = _states()
    return len(lines) == len(disks.DISKS) and all("online" in line.lower() for line in lines)


@contextlib.contextmanager
def secret_for_user() -> Iterator[None]:
    """Let the ordinary user read the secret of version 8's management service while inside."""
    if VERSION == "8":
        shutil.chown(AUTH, group=USER)
    try:
        yield
    finally:
        if VERSION == "8":
            shutil.chown(AUTH, group="root")


def wait_for(condition: Callable[[], bool], what: str, seconds: float) -> None:
    """Wait until the condition holds; TimeoutError names `what` after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.2)


def _states() -> list[str]:
    files = [*PROC.glob("*/storage_target_state"), *PROC.glob("*/meta_target_state")]
    lines = [line for path in files for line in path.read_text().splitlines()]
    return [line for line in lines if re.search(r"online|offline|good", line, re.IGNORECASE)]


def _configure() -> None:
    ETC.mkdir(exist_ok=True)
    (ETC / "interfaces").write_text(f"{INTERFACE}\n")
    if VERSION == "8":
        _secrets()
        (ETC / "beegfs-mgmtd.toml").write_text(MANAGEMENT_8)
    for name, daemon in DAEMONS.items():
        if (VERSION, name) == ("8", "management"):
            continue
        log = {"logType": "logfile", "logStdFile": LOGS / f"{name}.log"}
        _write(f"beegfs-{daemon.program}.conf", f"{name}.conf", {**EVERYWHERE, **log, **daemon.settings})
    _write("beegfs-client.conf", "beegfs-client.conf", {**EVERYWHERE, **CLIENT})
    (ETC / "beegfs-mounts.conf").write_text(f"{MOUNT} {ETC / 'beegfs-client.conf'}\n")


def _write(shipped: str, name: str, settings: Mapping[str, object]) -> None:
    """Write a shipped configuration file with other values. Keys that it does not have are left out: daemons
    refuse a key that they do not know."""
    text = (PROGRAMS / "etc" / shipped).read_text(encoding="utf-8")
    for key, value in settings.items():
        text = re.sub(rf"(?m)^{key}\s*=.*$", f"{key} = {value}", text)
    (ETC / name).write_text(text, encoding="utf-8")


def _secrets() -> None:
    """As the vendor's packages have it, the secret is root's alone. The certificate is for everybody."""
    AUTH.write_bytes(os.urandom(128))
    AUTH.chmod(0o440)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", ETC / "key.pem", "-out",
         ETC / "cert.pem", "-days", "30", "-subj", f"/CN={HOST}",
         "-addext", f"subjectAltName=DNS:{HOST},IP:{ADDRESS}"],
        check=True, capture_output=True,
    )  # fmt: skip
    (ETC / "cert.pem").chmod(0o444)


def _number_stores() -> None:
    """Write the servers' numbers into their folders, as the vendor's setup commands do at first."""
    metadata = disks.DISKS[0].store
    numbers = {metadata: {"nodeNumID": "1"}} if VERSION == "8" else {metadata: {}}
    for disk in disks.STORAGE:
        numbers[disk.store] = {
            "nodeID": f"stor{disk.node}",
            "nodeNumID": str(disk.node),
            "targetNumID": str(disk.target),
        }
    for store, files in numbers.items():
        if not store.exists():
            store.mkdir()
            for name, text in files.items():
                (store / name).write_text(f"{text}\n")
    database = MANAGEMENT / "mgmtd.sqlite"
    MANAGEMENT.mkdir(exist_ok=True)
    if VERSION == "8" and not database.exists():
        subprocess.run([PROGRAMS / "bin/beegfs-mgmtd", "--init", "--db-file", database], check=True)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(5.0)
        return probe.connect_ex((ADDRESS, port)) == 0


def _lives(pid: int) -> bool:
    """Whether a process runs. A zombie has ended: nobody waits for servers that another command started."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _pid_file(name: str) -> Path:
    return Path(f"/run/{name}.pid")


if __name__ == "__main__":
    up()
