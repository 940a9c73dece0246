"""The storage port on a POSIX tree: this module is a `port.Storage`, by the functions that it gathers.

A function's module is imported when it is first called, so a command that needs two of them does not wait for
all (8 ms of CPU time of the 110 that an element takes to start).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

    barrier, mender, writer = Barrier, Mender, StagingWriter

_HOMES = {
    "barrier": "Barrier",
    "dataset_folders": "check_owner check_root close_staging current leads links_between_folders "
    "open_staging owns prepare releases",
    "durable": "append_line make_dirs read_json rename write_json",
    "file_replacement": "Mender",
    "modes": "dir_mode file_mode group_id mend unseal",
    "reveal": "point reveal",
    "staging_writer": "StagingWriter",
    "tree_removal": "open_folders remove_tree sweep_temporaries",
}
_CALLED = {"Barrier": "barrier", "Mender": "mender", "StagingWriter": "writer", "mend": "set_permissions"}
"""What goes by another name in the port."""
_FUNCTIONS = {
    _CALLED.get(name, name): (module, name) for module, names in _HOMES.items() for name in names.split()
}

__all__ = [
    "append_line", "barrier", "check_owner", "check_root", "close_staging", "current", "dir_mode",
    "file_mode", "group_id", "leads", "links_between_folders", "make_dirs", "mender", "open_folders",
    "open_staging", "owns", "point", "prepare", "read_json", "releases", "remove_tree", "rename", "reveal",
    "set_permissions", "sweep_temporaries", "unseal", "write_json", "writer",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _FUNCTIONS:
        raise AttributeError(f"the storage port has no {name!r}")
    module, own = _FUNCTIONS[name]
    return getattr(import_module(f"penstock.storage.{module}"), own)
