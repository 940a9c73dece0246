"""The storage port on a POSIX tree: this module is a `port.Storage`, by the functions that it gathers.

A function's module is imported when it is first called, so a command that needs two of them does not wait for
all (8 ms of CPU time of the 110 that an element takes to start).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.core.text import in_quotes

if TYPE_CHECKING:
    from penstock.storage.adopted_files import AdoptedFiles, move_tree, try_move
    from penstock.storage.barrier import Barrier
    from penstock.storage.dataset_folders import (
        check_owner,
        check_root,
        check_shape,
        close_staging,
        current,
        leads,
        need_state,
        open_staging,
        owns,
        prepare,
        probe,
        releases,
        sweep_leftovers,
        sweep_pointers,
    )
    from penstock.storage.durable import append_line, make_dirs, read_json, rename, write_json
    from penstock.storage.file_replacement import Mender
    from penstock.storage.modes import (
        access_rules,
        dir_mode,
        file_mode,
        group_id,
        set_permissions,
        unseal,
    )
    from penstock.storage.paced_writer import PacedWriter
    from penstock.storage.part_files import shared_stands
    from penstock.storage.published_folder import put_beside
    from penstock.storage.reveal import point, reveal
    from penstock.storage.shared_files import (
        beat,
        forget_notice,
        make_folder_as_above,
        make_folder_for_readers,
        post,
        posting_names,
        postings,
        read_notice,
        repost,
        sweep_unfinished,
        withdraw,
        write_notice,
    )
    from penstock.storage.staging_writer import StagingWriter, prepare_process
    from penstock.storage.state_marker import check_marker, drop_state, mark_state
    from penstock.storage.tree_removal import (
        open_folders,
        remove_empty,
        remove_release,
        remove_tree,
        sweep_temporaries,
    )

    adopted_files, barrier, mender, paced_writer = AdoptedFiles, Barrier, Mender, PacedWriter
    writer = StagingWriter

_HOMES = {
    "adopted_files": "AdoptedFiles move_tree try_move",
    "barrier": "Barrier",
    "dataset_folders": "check_owner check_root check_shape close_staging current leads need_state "
    "open_staging owns prepare probe releases sweep_leftovers sweep_pointers",
    "durable": "append_line make_dirs read_json rename write_json",
    "file_replacement": "Mender",
    "paced_writer": "PacedWriter",
    "modes": "access_rules dir_mode file_mode group_id set_permissions unseal",
    "part_files": "shared_stands",
    "published_folder": "put_beside",
    "reveal": "point reveal",
    "shared_files": "beat forget_notice make_folder_as_above make_folder_for_readers post posting_names "
    "postings read_notice repost sweep_unfinished withdraw write_notice",
    "staging_writer": "StagingWriter prepare_process",
    "state_marker": "check_marker drop_state mark_state",
    "tree_removal": "open_folders remove_empty remove_release remove_tree sweep_temporaries",
}
_CALLED = {
    "AdoptedFiles": "adopted_files",
    "Barrier": "barrier",
    "Mender": "mender",
    "PacedWriter": "paced_writer",
    "StagingWriter": "writer",
}
"""What goes by another name in the port."""
_FUNCTIONS = {
    _CALLED.get(name, name): (module, name) for module, names in _HOMES.items() for name in names.split()
}

__all__ = [
    "access_rules", "adopted_files",
    "append_line", "barrier", "beat", "check_marker", "check_owner", "check_root",
    "check_shape", "close_staging",
    "current", "dir_mode", "drop_state", "file_mode", "forget_notice", "group_id", "leads", "make_dirs",
    "make_folder_as_above", "make_folder_for_readers", "mark_state", "mender", "move_tree", "need_state",
    "open_folders", "open_staging", "owns", "paced_writer", "point", "post", "posting_names", "postings",
    "prepare", "prepare_process", "probe", "put_beside",
    "read_json", "read_notice", "releases", "remove_empty", "remove_release", "remove_tree", "rename",
    "repost", "reveal", "set_permissions", "shared_stands", "sweep_leftovers", "sweep_pointers",
    "sweep_temporaries", "sweep_unfinished", "try_move", "unseal", "withdraw", "write_json",
    "write_notice", "writer",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _FUNCTIONS:
        raise AttributeError(f"the storage port has no {in_quotes(name)}")
    module, own = _FUNCTIONS[name]
    return getattr(import_module(f"penstock.storage.{module}"), own)
