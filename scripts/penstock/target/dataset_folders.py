"""A dataset's folders on the target: made with their modes, checked to belong to one account, and the marker
of the state folder, which says whether this version can use the state.

Only the owner of `<root>/<dataset>` stages the dataset. Every other account is rejected before anything
changes. The operator manages the root, which may be a link and may belong to any account.

The state is the folder `.penstock` with runs and journals. It is in the dataset's folder, or below
`target.state_root`. In the second case, the dataset's folder has a file `.penstock`, the pointer to it.
"""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import re
import secrets
import stat
from typing import TYPE_CHECKING

import penstock
from penstock.config.access_rules import NO_RULES
from penstock.core import dataset_documents
from penstock.core.dataset_documents import StateMarker, StatePointer, StateRoot
from penstock.core.errors import FailedError, FindingsError, OlderVersionError, PenstockError, PreflightError
from penstock.core.layout import ADOPT_TRIAL, ANSWER, DATA, PROBE
from penstock.fs import capabilities, owners, small_files
from penstock.fs.capabilities import traits_of_mount
from penstock.fs.owners import account
from penstock.fs.safe_open import OPEN_FOLDER, printable, set_owner_mode, storage_error
from penstock.fs.small_files import create_file, fsync_dir

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from penstock.config.access_rules import AccessRules
    from penstock.core.layout import DatasetLayout
    from penstock.core.run_documents import ProbeReport


# The marker of a dataset's state folder (`.penstock/state.json`), which shows whether this version of
# penstock can use the state.
#
# From version 1.0 on, the marker is the first file made in a state folder.
#
# | the state folder          | `state.json`                | result                                      |
# |---------------------------|-----------------------------|---------------------------------------------|
# | missing, or closed to     |                             | there is no state, or this account cannot   |
# | this account              |                             | check it                                    |
# | has no files of a run     | missing                     | a new state, which `mark_state` marks       |
# | has files of a run        | missing                     | a version before 1.0: OlderVersionError     |
# | exists                    | of a known format           | accepted                                    |
# | exists                    | of a higher format          | NewerFormatError                            |

# Names in a state folder; if a dataset was ever staged, adopted or audited, its state has at least one of
# them.
_OF_A_RUN = frozenset({"adoptions", "audits", "claims", "history.jsonl", "repairs", "runs"})


def check_marker(layout: DatasetLayout) -> bool:
    """Return whether the dataset has a marked state. False if there is none, or this account may not look.

    Raises OlderVersionError or NewerFormatError if another version made the state, and FailedError for a
    damaged marker.
    """
    path = layout.state_marker
    try:
        dataset_documents.STATE_MARKER.from_json(small_files.read(path), path)
    except ValueError as error:
        raise FailedError(
            "a state file is damaged",
            where=str(path),
            why=str(error),
            hint="put the file back, or remove it: `penstock run` makes it anew",
        ) from None
    except FileNotFoundError:
        return _without(layout)
    except (NotADirectoryError, PermissionError):
        return False
    return True


def mark_state(layout: DatasetLayout) -> None:
    """Durably mark an existing state folder, if it has no marker. Raises the errors of `check_marker`, and
    OSError."""
    if not check_marker(layout):
        marker = dataset_documents.STATE_MARKER.to_json(StateMarker(penstock.__version__))
        small_files.create_file(layout.state_marker, small_files.json_line(marker))


def drop_state(layout: DatasetLayout) -> None:
    """Remove a state folder that is empty, or has only its marker. Raises OSError if it has more files."""
    if os.listdir(layout.state) == [layout.state_marker.name]:
        content = small_files.read(layout.state_marker)
        layout.state_marker.unlink()
        try:
            layout.state.rmdir()
        except OSError:  # another process has begun to use the folder
            small_files.create_file(layout.state_marker, content)
            raise
    else:
        layout.state.rmdir()


def _without(layout: DatasetLayout) -> bool:
    """Judge a state without a marker, for `check_marker`."""
    try:
        names = set(os.listdir(layout.state))
    except OSError:
        return False
    if layout.state_marker.name in names:
        return True  # another process has made the marker
    if not names & _OF_A_RUN:
        return False
    moves = [layout.folder] if layout.state_root is None else [layout.folder, layout.state.parent]
    moved = " and ".join(f"`mv {place} {place}.old`" for place in moves)
    raise OlderVersionError(
        "the dataset's state is of a penstock before 1.0",
        where=str(layout.state),
        why=f"it has no {layout.state_marker.name}, and nothing was changed",
        hint=f"move it aside, while nothing is at work: {moved}; then `penstock run {layout.dataset}` stages "
        "the dataset anew, or `penstock adopt --seal` makes a release of the files that are there",
    )


_POINTER = re.compile(r"releases/([^/]+)")
_NEXT_POINTER = re.compile(r"\.current\.[0-9a-f]{16}")
# Seconds after which a temporary file counts as left by a killed command. A running command needs a temporary
# file only for moments, except for a job's answer. This stays until preflight, which waits for minutes, has
# read it.
LEFT_AFTER = 3600.0
# names of the folders with which `adopted_files.try_move` tries a rename
ADOPT_TRIALS = re.compile(rf"{re.escape(ADOPT_TRIAL)}[0-9a-f]{{16}}")
_ANSWERS = re.compile(rf"{re.escape(ANSWER)}\d.*")
_LEFT = re.compile(rf"\.try-[0-9a-f]{{16}}.*|{small_files.UNFINISHED.pattern}")
_KINDS = {
    stat.S_IFREG: "a file", stat.S_IFLNK: "a link", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket",
}  # fmt: skip


def check_root(root: Path) -> None:
    """Raise PreflightError unless this account may write in `root`, or can make it in its parent."""
    where = root if os.path.lexists(root) else root.parent
    if not where.is_dir():
        why = "it is not a folder" if os.path.lexists(where) else f"neither it nor {where} exists"
        raise PreflightError(
            "the target cannot be used",
            where=str(root),
            why=why,
            hint="create the folder, or correct `target.root`",
        )
    traits = traits_of_mount(os.path.realpath(where))
    if not traits.holds_files:
        raise PreflightError(
            "the target cannot be used",
            where=str(root),
            why=f"{where} is of the kernel ({traits.name}): no file can be kept there",
            hint="name a folder on the parallel file system",
        )
    if not os.access(where, os.W_OK | os.X_OK, effective_ids=True):
        raise PreflightError(
            "the target cannot be used",
            where=str(root),
            why=f"{account(os.geteuid())} may not write in {where}",
            hint="ask its owner for write permission, or correct `target.root`",
        )


def check_owner(layout: DatasetLayout) -> None:
    """Raise PreflightError unless the dataset's folders are plain folders of this account.

    Not everybody may write in them, and no other account may be able to replace them. Raises the errors of
    `check_state` and `check_shape` too, and OlderVersionError or NewerFormatError if another version of
    penstock made the state.
    """
    for root in (layout.root, layout.state_root):
        if root is not None:
            _check_names_stay(root)
    away = layout.state == layout.state_pointer and _pointed(layout) is not None  # see `check_state`
    for path in (layout.folder, layout.releases, *(() if away else (layout.state.parent, layout.state))):
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            # The path is missing, or something above it is no folder, which this loop or `check_root`
            # reports.
            continue
        except OSError as error:
            raise PreflightError(
                "the target cannot be used",
                where=str(path),
                why=f"{error.strerror}, for {account(os.geteuid())}",
                hint="ask the owner of the folder above it, or correct `target.root`",
            ) from None
        _check_own(path, status)
        if path == layout.folder:
            check_shape(layout)
            _check_folders(layout, () if away else layout.folders_of_owner)
    check_state(layout)
    check_marker(layout)


def check_shape(layout: DatasetLayout) -> None:
    """Raise FindingsError if the dataset's folder, or a folder that readers use, is no folder.

    Folders that this account may not look at are skipped.
    """
    _check_folders(layout, (layout.folder, *layout.folders_of_readers))


def _check_folders(layout: DatasetLayout, folders: Iterable[Path]) -> None:
    for path in folders:
        try:
            mode = os.lstat(path).st_mode
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
        if not stat.S_ISDIR(mode):
            name = path.relative_to(layout.folder.parent) if layout.state_root is None else path
            raise FindingsError(
                "the dataset is damaged",
                where=printable(str(path)),
                why=f"{printable(str(name))} is {_KINDS.get(stat.S_IFMT(mode), 'a device')}, and must be a "
                "folder (links are not followed below the root)",
                hint="move it away, and put back the folder that belongs there; where that is lost, "
                f"`penstock run {layout.dataset}` makes it anew",
            )


def _check_names_stay(root: Path) -> None:
    """Raise PreflightError if accounts other than the root's owner may rename its entries.

    Such accounts could replace a dataset's folder with a link between two calls of a step.

    | may write in the root              | sticky | result                                            |
    |------------------------------------|--------|---------------------------------------------------|
    | only its owner                     | any    | accepted                                          |
    | a group, or everybody              | yes    | accepted: only an entry's maker may rename it     |
    | the owner's own group, which has   | no     | accepted: umask 002 lets it write in each folder  |
    | no other members                   |        |                                                   |
    | another group, or everybody        | no     | PreflightError                                    |
    """
    try:
        status = os.stat(root)
    except OSError:
        return
    if not stat.S_ISDIR(status.st_mode):
        return
    others = status.st_mode & stat.S_IWOTH
    group = status.st_mode & stat.S_IWGRP and not _is_own_group(status)
    if (others or group) and not status.st_mode & stat.S_ISVTX:
        raise PreflightError(
            "the target's root is open to others",
            where=str(root),
            why=f"{'everybody' if others else 'its group'} may rename the datasets' folders in it "
            f"(mode {stat.S_IMODE(status.st_mode):04o})",
            hint=f"`chmod +t {root}` keeps each name with who made it; or take the write permission away",
        )


def _is_own_group(status: os.stat_result) -> bool:
    """Return whether the group has the owner's name and no other member."""
    try:
        group, owner = grp.getgrgid(status.st_gid), pwd.getpwuid(status.st_uid).pw_name
        return group.gr_name == owner and set(group.gr_mem) <= {owner}
    except KeyError:
        return False


def owns(layout: DatasetLayout) -> bool:
    """Return whether this account stages the dataset, or no account does yet."""
    try:
        return os.lstat(layout.folder).st_uid == os.geteuid()
    except OSError:
        return not os.path.lexists(layout.folder) and os.access(layout.root, os.X_OK, effective_ids=True)


def _unreadable(path: Path, error: OSError) -> PreflightError:
    return PreflightError(
        "the dataset cannot be read by this account",
        where=str(path),
        why=f"{error.strerror}, for {account(os.geteuid())}",
        hint="ask its owner for the group that may read it",
    )


def make_folder(layout: DatasetLayout) -> bool:
    """Make the dataset's folder, and the root if it is missing, as `prepare` does. Returns whether the
    dataset's folder was missing."""
    check_owner(layout)
    check_root(layout.root)
    missing = not os.path.lexists(layout.folder)
    for path in (layout.root, layout.folder):
        _make(path, 0o755)
    return missing


def prepare(layout: DatasetLayout) -> None:
    """Durably make missing folders, whatever the umask is. `<dataset>` and `releases` get the mode 0755,
    `.penstock` 0700.

    Raises the errors of `check_root` and `check_owner`.
    """
    # The owner is checked first: advice to get write permission in the root would not help other accounts.
    check_owner(layout)
    check_root(layout.root)
    if layout.state_root is not None:
        check_root(layout.state_root)
    for path, mode in (
        (layout.root, 0o755),
        (layout.folder, 0o755),
        (layout.releases, 0o755),
        (layout.state.parent.parent, 0o755),
        (layout.state.parent, 0o755),
        (layout.state, 0o700),
    ):
        _make(path, mode)
    for path in (layout.folder, layout.releases, layout.state.parent, layout.state):
        _check_own(path, os.lstat(path))
    _with_mode(layout.state, 0o700)
    mark_state(layout)
    if layout.state_root is not None:
        _bind_state(layout)


def open_staging(
    layout: DatasetLayout, release: str, dir_mode: int, gid: int | None, rules: AccessRules = NO_RULES
) -> Path:
    """Return the `data` folder of a release's staging, which is made if it is missing.

    The staging folder has the mode 0700 until it is published. `data` has the setgid bit, group and default
    ACL that all files and folders below it inherit. Raises FailedError if the release is already published.
    """
    if os.path.lexists(layout.release(release)):
        raise FailedError(
            "this release is published already", where=str(layout.release(release)), hint="name another one"
        )
    staging = layout.staging(release)
    _make(staging, 0o700)
    _check_own(staging, os.lstat(staging))
    _with_mode(staging, 0o700)
    data = staging / DATA
    _make(data, 0o700)
    _check_own(data, os.lstat(data))
    wanted = rules.folder("", dir_mode)
    open_mode = wanted.mode | (0o700 if gid is None else 0o2700)
    _with_mode(data, open_mode, gid)
    if wanted.default is not None:
        try:
            owners.write_acl(data, wanted.default, owners.DEFAULT)
        except OSError as error:
            raise storage_error(error, "cannot set the default ACL", str(data)) from None
    return data


def close_staging(layout: DatasetLayout, release: str) -> None:
    """Set a staging's mode to 0700, as a publish that was killed before its rename left no write bit."""
    try:
        _with_mode(layout.staging(release), 0o700)
    except OSError as error:
        raise storage_error(error, "cannot close the staging", str(layout.staging(release))) from None


def releases(layout: DatasetLayout) -> list[str]:
    """Return the sorted names of the published releases. Raises PreflightError if this account may not list
    them."""
    try:
        with os.scandir(layout.releases) as entries:
            return sorted(
                e.name for e in entries if not e.name.startswith(".") and e.is_dir(follow_symlinks=False)
            )
    except FileNotFoundError:
        return []
    except PermissionError as error:
        raise _unreadable(layout.releases, error) from None


def current(layout: DatasetLayout) -> str | None:
    """Return the release that the link `current` leads to, or None before the first release.

    Raises FailedError if it is no link into `releases/`, and PreflightError if this account may not look.
    """
    try:
        text = os.readlink(layout.current)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise _unreadable(layout.current, error) from None
    except OSError:
        raise FailedError(
            "`current` is not a symbolic link",
            where=str(layout.current),
            why="something else has its name",
            hint=f"move it away: `penstock run {layout.dataset}` makes the link anew",
        ) from None
    match = _POINTER.fullmatch(text)
    if match is None or match[1].startswith("."):
        raise FailedError(
            "`current` does not lead to a release",
            where=str(layout.current),
            why=f"it names {printable(text)}",
            hint="link it to releases/<release>, or remove it: "
            f"`penstock run {layout.dataset}` makes it anew",
        )
    return match[1]


def leads(layout: DatasetLayout) -> bool:
    """Return whether `current` leads to an existing release."""
    named = current(layout)
    return named is not None and layout.release(named).is_dir()


def _pointed(layout: DatasetLayout) -> StatePointer | None:
    """Read the pointer to a state below a state root, or return None if there is no pointer.

    Raises FailedError for a damaged pointer.
    """
    try:
        kind = os.lstat(layout.state_pointer).st_mode
        # Without a state root, this name is the state's folder, and `_check_own` judges other kinds.
        if stat.S_ISREG(kind) or (layout.state_root is not None and not stat.S_ISDIR(kind)):
            return dataset_documents.STATE_POINTER.from_json(
                small_files.read(layout.state_pointer), layout.state_pointer
            )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise FailedError(
            "a state file is damaged",
            where=str(layout.state_pointer),
            why=str(error),
            hint="put the file back, or remove it: `penstock run` makes it anew",
        ) from None
    return None


def _bind_state(layout: DatasetLayout) -> None:
    """Write the pointer from the dataset's folder to the state below `target.state_root`, and a pointer back.

    Two nodes may make the first state at once, while one of them has not mounted the state root. Only one
    node then continues.
    """
    pointed = _pointed(layout)
    made = StateRoot(pointed.id if pointed else secrets.token_hex(8), str(layout.root.absolute()))
    create_file(layout.root_pointer, json.dumps(dataset_documents.STATE_ROOT.to_json(made)).encode() + b"\n")
    pointer = StatePointer(str(layout.state_root), _id_of_state(layout) or "")
    content = json.dumps(dataset_documents.STATE_POINTER.to_json(pointer)).encode() + b"\n"
    create_file(layout.state_pointer, content, mode=0o644)
    check_state(layout)


def check_state(layout: DatasetLayout) -> None:
    """Raise PreflightError if the dataset's state is missing here, or belongs to another dataset.

    Two nodes must never work on one staging with two different states.

    | `.penstock` in the   | `target.    | `.penstock` below         | result                                |
    | dataset's folder     | state_root` | `target.state_root`       |                                       |
    |----------------------|-------------|---------------------------|---------------------------------------|
    | a folder, or missing | not set     |                           | accepted                              |
    | a file               | not set     |                           | error: `target.state_root` is unset   |
    | a folder             | set         |                           | error: two states                     |
    | a file               | set         | has the same id, or was   | accepted                              |
    |                      |             | made by hand              |                                       |
    | a file               | set         | has another id or root    | error: belongs to another dataset     |
    | a file               | set         | missing                   | error: not mounted, or lost           |
    | missing, but there   | set         | missing                   | error: not mounted, or lost           |
    | is a release         |             |                           |                                       |
    | missing, no release  | set         | missing                   | accepted: the first run               |
    | missing              | set         | exists                    | accepted: killed before `_bind_state` |
    """
    pointed = _pointed(layout)
    if layout.state_root is None:
        if pointed is not None:
            raise PreflightError(
                "the dataset's state lies elsewhere",
                where=str(layout.state_pointer),
                why=f"it lies below {printable(pointed.state_root)}, and `target.state_root` is not set",
                hint=f"set `target.state_root: {printable(pointed.state_root)}`",
            )
        return
    if layout.state_pointer.is_dir():
        raise PreflightError(
            "the dataset has a state in its own folder",
            where=str(layout.state_pointer),
            why=f"`target.state_root` is {layout.state_root}",
            hint=f"leave `target.state_root` out, or move the state: `mv {layout.state_pointer} "
            f"{layout.state.parent}/` where there is none, while nothing is at work",
        )
    if not layout.state.is_dir():
        if pointed is not None or releases(layout):
            need_state(layout)
        return
    state_id = _id_of_state(layout)
    if pointed is not None and state_id is not None and state_id != pointed.id:
        raise PreflightError(
            "this state folder is not the dataset's",
            where=str(layout.state),
            why=f"the dataset was staged with another one, below {printable(pointed.state_root)}",
            hint="mount it, or correct `target.state_root`; this one was made where it was not mounted",
        )


def need_state(layout: DatasetLayout) -> None:
    """Raise PreflightError if the dataset's state is missing."""
    if layout.state.is_dir():
        return
    made = f"`mkdir -p -m 700 {layout.state}`, and " if layout.state_root is not None else ""
    raise PreflightError(
        "the dataset's state is missing",
        where=str(layout.state),
        why="its lock and its history lie there: without it nobody knows what is at work, and nothing was "
        "changed",
        hint=f"mount it, or correct `target.state_root`; where it is lost, {made}"
        f"`penstock step list {layout.dataset}` makes it anew",
    )


def _id_of_state(layout: DatasetLayout) -> str | None:
    """Return the id of the state below `target.state_root`, or None if a person made or detached the folder.

    Raises PreflightError for the state of another root, whose journals would be read as this root's.
    """
    try:
        bound = dataset_documents.STATE_ROOT.from_json(
            small_files.read(layout.root_pointer), layout.root_pointer
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise FailedError(
            "a state file is damaged",
            where=str(layout.root_pointer),
            why=str(error),
            hint="put the file back, or remove it: `penstock run` makes it anew",
        ) from None
    if bound.root != str(layout.root.absolute()):
        raise PreflightError(
            "this state folder is another root's",
            where=str(layout.state),
            why=f"it belongs to {printable(bound.root)}, and the target's root is {layout.root}",
            hint="give each root a `target.state_root` of its own; where the root itself was moved here, "
            f"remove {layout.root_pointer}",
        )
    return bound.id


def probe(layout: DatasetLayout) -> ProbeReport:
    """Measure in hidden folders what the file system really does. The caller must hold the dataset's lock.
    Raises no OSError."""
    from penstock.fs import probe

    return probe.probe(layout.folder, beside=layout.releases)


def sweep_leftovers(layout: DatasetLayout) -> None:
    """Remove files and folders that killed commands of this account left in the dataset and at the root.

    | name                     | left by                               | removed                         |
    |--------------------------|---------------------------------------|---------------------------------|
    | `.penstock-probe`        | a probe, with the lock                | at once                         |
    | `.penstock-rehearsal`    | a rehearsal, with the lock            | at once                         |
    | `.current.<hex>`         | a move of `current`, with the lock    | at once                         |
    | `.try-<hex>`             | preflight, without the lock           | if unchanged for `LEFT_AFTER`   |
    | `.<hex>.tmp`             | a document that was being written     | if unchanged for `LEFT_AFTER`   |
    | `.penstock-adopt-<hex>`  | an adoption, without the lock         | if unchanged for `LEFT_AFTER`   |
    | `.penstock-probe-<job>`  | preflight's jobs, without the lock    | if unchanged for `LEFT_AFTER`   |

    The caller must hold the dataset's lock. Entries that cannot be removed stay until the next command, and
    no command reads them. Never raises.
    """
    from penstock.target.tree_removal import remove_tree

    for folder in (layout.folder / PROBE, layout.releases / PROBE, layout.rehearsal):
        with contextlib.suppress(PenstockError):
            if os.path.lexists(folder):
                remove_tree(folder)
    with contextlib.suppress(OSError):
        sweep_pointers(layout)
    for folder in (layout.folder, layout.verdict("").parent, layout.state.parent, layout.state):
        sweep_old(folder, _LEFT)
    sweep_old(layout.releases, ADOPT_TRIALS)
    sweep_old(layout.root, _ANSWERS)


def sweep_pointers(layout: DatasetLayout) -> None:
    """Durably remove the temporary links that killed commands were about to rename to `current`."""
    with os.scandir(layout.folder) as entries:
        old = [e.path for e in entries if _NEXT_POINTER.fullmatch(e.name) and e.is_symlink()]
    for path in old:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    if old:
        fsync_dir(layout.folder)


def sweep_old(folder: Path, names: re.Pattern[str]) -> None:
    """Remove this account's files and empty folders with these names if unchanged for `LEFT_AFTER`
    seconds."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        left = [entry for entry in entries if names.fullmatch(entry.name)]
        before = capabilities.now(folder) - LEFT_AFTER if left else 0.0
        for entry in left:
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if status.st_uid != os.geteuid() or max(status.st_mtime, status.st_ctime) >= before:
                    continue
                if stat.S_ISREG(status.st_mode):
                    os.unlink(entry.path)
                elif stat.S_ISDIR(status.st_mode):
                    os.rmdir(entry.path)


def _open(path: Path) -> int:
    return os.open(path, OPEN_FOLDER)


def _make(path: Path, mode: int) -> None:
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, mode & 0o777)
            _with_mode(path, mode)
            fsync_dir(path.parent)
    except OSError as error:
        raise PreflightError(
            "cannot create a folder",
            where=str(path),
            why=str(error.strerror),
            hint="let this account write there, or name another target.root",
        ) from None


def _with_mode(path: Path, mode: int, gid: int | None = None) -> None:
    """Set `mode`, but keep a setgid bit, which gives new folders the group of a project's folder."""
    fd = _open(path)
    try:
        set_owner_mode(fd, mode | (os.fstat(fd).st_mode & stat.S_ISGID), gid)
    except OSError as error:
        raise storage_error(error, f"cannot set mode {mode:04o} or group {gid}", str(path)) from None
    finally:
        os.close(fd)


def _check_own(path: Path, status: os.stat_result) -> None:
    why = ""
    if not stat.S_ISDIR(status.st_mode):
        why = "it is not a folder (links are not followed below the root)"
    elif status.st_uid != os.geteuid():
        why = f"it belongs to {account(status.st_uid)}, and this is {account(os.geteuid())}"
    elif status.st_mode & stat.S_IWOTH:
        why = "everybody may write in it"
    if why:
        raise PreflightError(
            "the dataset's folder cannot be used",
            where=str(path),
            why=why,
            hint="one account owns a dataset, and no other changes it: run this as its owner; to stage data "
            "of your own, choose another name or root",
        )
