"""The storage port on a POSIX tree: this module is a `port.Storage`, by the functions that it gathers."""

from penstock.storage.barrier import Barrier
from penstock.storage.dataset_folders import (
    check_owner,
    check_root,
    close_staging,
    current,
    leads,
    links_between_folders,
    open_staging,
    owns,
    prepare,
    releases,
)
from penstock.storage.durable import append_line, make_dirs, read_json, rename, write_json
from penstock.storage.file_replacement import Mender
from penstock.storage.modes import dir_mode, file_mode, group_id, unseal
from penstock.storage.modes import mend as set_permissions
from penstock.storage.reveal import point, reveal
from penstock.storage.staging_writer import StagingWriter
from penstock.storage.tree_removal import open_folders, remove_tree, sweep_temporaries

__all__ = [
    "append_line", "barrier", "check_owner", "check_root", "close_staging", "current", "dir_mode",
    "file_mode", "group_id", "leads", "links_between_folders", "make_dirs", "mender", "open_folders",
    "open_staging", "owns", "point", "prepare", "read_json", "releases", "remove_tree", "rename", "reveal",
    "set_permissions", "sweep_temporaries", "unseal", "write_json", "writer",
]  # fmt: skip

barrier, mender, writer = Barrier, Mender, StagingWriter
