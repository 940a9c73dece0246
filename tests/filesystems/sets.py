"""The named sets: which tempers (`temperfs/tempers.go`, where each one's source stands) stand for which file
system. They are our reading of its behaviour, not that file system. What was seen on BeeGFS itself says so;
WEKA, Lustre and NFS were not run.

Waits of NFS are shorter than the real ones (2 s for 30 to 60), so that tests need not wait a minute.
"""

from __future__ import annotations

from typing import Any

Tempers = dict[str, Any]

_BEEGFS: Tempers = {
    "folder_over_nothing": True, "busy_rename": "EBUSY", "two_step_rename": 0.01, "no_rename_flags": True,
    "local_locks": True, "folder_fsync_nothing": True, "cache": "close-to-open", "entry_seconds": 1.0,
    "statvfs_zero": True, "xattr_bytes": -1, "no_fallocate": True, "time_grain": 10**9,
    "round_seconds": 0.0005, "shared_handles": True,
    "high_inodes": True,  # seen on BeeGFS itself, 7.4.7 and 8.3.1
}  # fmt: skip
_WEKA: Tempers = {"entry_seconds": 1.0, "xattr_bytes": 1024, "folder_fsync_nothing": True}
_NFS: Tempers = {
    "no_rename_flags": True, "cache": "close-to-open", "entry_seconds": 2.0, "absent_seconds": 2.0,
    "attr_seconds": 1.0, "silly_rename": True, "stale_handles": True, "folder_fsync_nothing": True,
}  # fmt: skip

SETS: dict[str, Tempers] = {
    "beegfs7": {**_BEEGFS, "links": "folder", "stubs": "refuse"},
    "beegfs8": {**_BEEGFS, "stubs": "restore"},
    "weka-writecache": {**_WEKA, "cache": "close-to-open", "late_errors": "fsync", "stubs": "restore"},
    "weka-forcedirect": {**_WEKA, "stubs": "restore"},
    "lustre": {
        "cache": "coherent", "local_locks": True, "time_grain": 10**9, "stubs": "restore",
        "no_rename_flags": True,
    },
    "nfs3": {**_NFS, "xattr_bytes": -1, "no_fallocate": True},
    "nfs4": _NFS,
}  # fmt: skip
