"""A /proc of the tests' own: a mount table and live configurations of BeeGFS clients, in the formats of the
vendors' sources. What a real BeeGFS printed is in `tests.vendors.recorded`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIVE = """\
cfgFile = /etc/beegfs/beegfs-client.conf
logLevel = 3
logType = helperd
logClientID = 0
connUseRDMA = 1
connMgmtdPortUDP = 8008
connMaxInternodeNum = 12
connInterfacesFile =
connAuthFile = /etc/beegfs/conn.auth
connDisableAuthentication = false
connFallbackExpirationSecs = 900
connRDMABufSize = 8192
connRDMABufNum = 70
connCommRetrySecs = 600
connNumCommRetries = 3600
tunePreferredMetaFile =
tuneFileCacheType = buffered
tuneFileCacheBufSize = 524288
tuneRemoteFSync = 1
tuneUseGlobalFileLocks = 0
tuneUseGlobalAppendLocks = 0
tuneStatFsCacheSecs = 10
sysACLsEnabled = 0
sysMgmtdHost = mgmt01
sysInodeIDStyle = md4Hash64
sysCreateHardlinksAsSymlinks = 0
sysMountSanityCheckMS = 11000
sysSyncOnClose = 0
sysXAttrsEnabled = 0
quotaEnabled = 0
sysFileEventLogMask = none
sysRenameEbusyAsXdev = 0
"""
"""`ProcFsHelper_readV2_config` of the client module, with its defaults."""
CLIENT = "5E2A-664C1B2F-node07"


def changed(**values: object) -> str:
    """The live configuration with other values; keys that it does not have come last."""
    lines = LIVE.splitlines()
    for key, value in values.items():
        own = [place for place, line in enumerate(lines) if line.startswith(f"{key} =")]
        lines[own[0] if own else len(lines) : own[0] + 1 if own else len(lines)] = [f"{key} = {value}"]
    return "\n".join(lines) + "\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder on the disk."""
    with tempfile.TemporaryDirectory(prefix="penstock-test-") as made:
        yield Path(os.path.realpath(made))


@pytest.fixture
def proc(tmp_path: Path) -> Callable[..., Path]:
    """Makes the folder, of lines of mountinfo after the mount point's number, and of configurations by
    client."""

    def make(*mounts: str, clients: dict[str, str] | None = None) -> Path:
        root = tmp_path / "proc"
        (root / "self").mkdir(parents=True, exist_ok=True)
        lines = ["22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw"]
        lines += [f"{number} 22 0:{number} / {text}" for number, text in enumerate(mounts, 30)]
        (root / "self/mountinfo").write_text("\n".join(lines) + "\n")
        for name, text in (clients or {}).items():
            folder = root / "fs/beegfs" / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "config").write_text(text)
        return root

    return make
