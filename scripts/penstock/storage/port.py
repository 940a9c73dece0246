"""The port of storage: a target on which releases of datasets are made. Steps know nothing but this.

`registry.open_storage` opens the one implementation there is, a POSIX tree; what differs between file systems
is a row of `filesystem.kinds`, not another implementation. The conformance suite is
tests/contracts/storage_contract.py. All paths are those of the layout (`core.layout`). What makes, closes,
reveals or removes folders may be called again after a crash, and ends as if it had been called once. Errors
of the file system are raised by `filesystem.errno_map`, those of small files as OSError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, Protocol, Self, TypedDict

from penstock.config.access_rules import NO_RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import Unpack

    from penstock.config.access_rules import AccessRules
    from penstock.config.settings import PermissionsConfig
    from penstock.core.documents.probe_report import ProbeReport
    from penstock.core.documents.step_results import ModesSet
    from penstock.core.layout import DatasetLayout
    from penstock.storage.pending_file import Pending


class WriterOptions(TypedDict):
    """What every file of a release gets, and who writes it."""

    file_mode: int
    dir_mode: int
    gid: int | None
    """None: whatever group the folder gives."""
    durability: str
    """`fsync`: each file by itself, before it has its name; `syncfs`: all by `Barrier.wait`."""
    attempt: str
    """Names this attempt in messages."""
    keep_mtime: bool
    """Files get the source's time."""
    rules: NotRequired[AccessRules]
    """Other modes by path, and the ACL of files that are linked."""
    preallocate: NotRequired[bool]
    """False: the probe saw that blocks cannot be reserved. Else the table of file systems decides."""


class Abandoned(NamedTuple):
    """The tree of another run's staging."""

    data: Path
    inode: int = 0
    """Of `data` as the plan saw it: a folder of the same name that came later is none of it. Of 0 (a version
    that did not note it) only links are made, since a name may be a living staging's, or a release's."""


class Posting(NamedTuple):
    """One account's word to all others."""

    name: str
    uid: int
    """Who made it."""
    made: float
    """Its modification time, in seconds since the epoch, by the file system's clock."""
    value: Any
    """None: it is not whole."""


class Settled(NamedTuple):
    """What became of a file of an adopted tree."""

    why: str
    """Why it is not taken over; "" where it is."""
    mtime_ns: int = 0
    ctime_ns: int = 0
    """As they are now."""
    certain: bool = False
    """Nothing touched it between its reading and this."""
    others: bool = False
    """It is the file that was read, but not this account's alone: `AdoptedFiles.own` may help."""


class AdoptedFiles(Protocol):
    """Takes files of a tree over that penstock did not write and that is a staging's `data` now."""

    def settle(
        self, path: str, *, inode: int, size: int, mtime_ns: int, ctime_ns: int, wanted_ns: int
    ) -> Settled:
        """Give a file its final mode, group, ACL and, where times are kept, the time `wanted_ns`, if it is
        still the one that was read, which had the rest. For several threads, on different paths."""

    def own(self, path: str, *, inode: int, size: int) -> int:
        """Have a file of the same bytes, of this account alone, in the place of the one with this inode,
        which is moved aside; by reference where the file system shares blocks. Durable on return. Returns its
        inode; 0 where the file cannot be read, and then nothing is changed. Nothing is compared: whoever
        calls has it read back."""

    def set_aside(self, path: str) -> str:
        """Move what is there out of the release, under its path below another folder; the new place, "" where
        nothing is there. Durable on return; nothing is replaced."""

    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class Postings(NamedTuple):
    """What lies in a folder that many may write."""

    posted: list[Posting]
    """By name."""
    others: int
    """Names of what is no plain file, or too long."""


class Linked(NamedTuple):
    """A file that was linked, looked at before and after."""

    inode: int
    before_ns: int
    """Its ctime, which the link moved."""
    after_ns: int


class Barrier(Protocol):
    """One durability barrier for everything below `data` that is written after this was made."""

    def wait(self) -> None:
        """Raises FailedError: what was written since is to be written anew, never synced again."""

    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class Mender(Protocol):
    """Replaces damaged files of a published release, each whole. For several threads, on different paths."""

    def check(self, path: str) -> None:
        """Enter the folder of `path`, and raise what would refuse a replacement there."""

    def replace(self, path: str, mtime_ns: int, new: Path) -> None:
        """Put the file `new`, which lies on the same file system and whose bytes are durable, at `path`;
        durable on return. On an error `path` is as it was."""

    def dress(self, path: str, mtime_ns: int, new: Path) -> None:
        """Give the file `new` all that it is to have at `path`; durable on return."""

    def share(self, path: str, mtime_ns: int, new: Path) -> None:
        """Put a file at `path` that is a link to `new`, or a copy of it where `path` is to have another mode,
        group, ACL or time, or no link can be made; durable on return. On an error `path` is as it was."""

    def set_mode(self, path: str) -> None:
        """Give a file or folder its published mode, group, owner and ACL again ("." is `data` itself)."""

    def sweep(self, path: str) -> bool:
        """Remove what a killed repair left: only files with a temporary name. False for all else."""

    def make(self, path: str) -> bool:
        """Make a folder that is not there, and those above it; False where it stands already."""

    def holds(self, path: str) -> bool:
        """Whether anything is there under this name (`../name`: beside `data`)."""

    def within(self, parent: str) -> AbstractContextManager[int]:
        """A folder's descriptor; while inside, its owner may write in it."""

    def close(self) -> None:
        """Every folder that was opened has its published mode again. Raises ObjectError."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class Storage(Protocol):
    """Where releases are staged, revealed and removed."""

    # A dataset's folders

    def check_root(self, root: Path, /) -> None:
        """Changes nothing. Raises PreflightError unless `root` can be written or made."""

    def check_owner(self, layout: DatasetLayout, /) -> None:
        """Changes nothing. Raises PreflightError when the dataset's folders are not this account's, or others
        could replace them, or when its state is another one, or is not mounted; FindingsError by
        `check_shape`; OlderVersionError and NewerFormatError where another version made the state."""

    def check_shape(self, layout: DatasetLayout, /) -> None:
        """Changes nothing. Raises FindingsError where something else than a folder has the name of one of the
        dataset's folders."""

    def check_marker(self, layout: DatasetLayout, /) -> bool:
        """Changes nothing. Whether the dataset has a state that is marked as of 1.0 or later, as far as this
        account may look. Raises OlderVersionError, NewerFormatError, FailedError."""

    def mark_state(self, layout: DatasetLayout, /) -> None:
        """Mark a state whose folder is there, unless it is marked. Raises as `check_marker`, and OSError."""

    def drop_state(self, layout: DatasetLayout, /) -> None:
        """Remove a state that holds nothing but its mark. Raises OSError, also where it holds more."""

    def need_state(self, layout: DatasetLayout, /) -> None:
        """Raises PreflightError where the dataset's state is not there."""

    def owns(self, layout: DatasetLayout, /) -> bool:
        """Whether this account is the one that stages the dataset, or nobody has yet."""

    def prepare(self, layout: DatasetLayout, /) -> None:
        """Make the dataset's folders where they are missing. Raises PreflightError."""

    def probe(self, layout: DatasetLayout, /) -> ProbeReport:
        """What the dataset's file system does; tried under the lock, in folders that are gone on return."""

    def sweep_leftovers(self, layout: DatasetLayout, /) -> None:
        """Remove what killed commands left in the dataset's folders: the probe's folders at once, temporary
        files when they are old. By a caller that holds the lock. Raises no error."""

    # Releases

    def releases(self, layout: DatasetLayout, /) -> list[str]:
        """The names of the published releases, sorted."""

    def current(self, layout: DatasetLayout, /) -> str | None:
        """The release that readers get; None before the first."""

    def leads(self, layout: DatasetLayout, /) -> bool:
        """Whether readers reach a release by `current`."""

    def reveal(self, layout: DatasetLayout, release: str, assert_held: Callable[[], None], /) -> None:
        """Give a complete staging its release's name, in one step. `assert_held` is called right before, and
        raises where this run was overtaken."""

    def put_beside(
        self, layout: DatasetLayout, release: str, name: str, write: Callable[[Path], None], /
    ) -> None:
        """Have `write` make a file beside the seal of a published release, whole and durable."""

    def point(self, layout: DatasetLayout, release: str, assert_held: Callable[[], None], /) -> None:
        """Make `current` lead to the release, in one step; `assert_held` as above."""

    def sweep_pointers(self, layout: DatasetLayout, /) -> None:
        """Remove the links that other runs were about to rename to `current`. Durable on return."""

    # The staging of a release

    def open_staging(
        self,
        layout: DatasetLayout,
        release: str,
        dir_mode: int,
        gid: int | None,
        rules: AccessRules = NO_RULES,
        /,
    ) -> Path:
        """The `data` folder of a release's staging, made where it is missing, closed to readers; what is made
        in it inherits the ACL of the rules."""

    def close_staging(self, layout: DatasetLayout, release: str, /) -> None:
        """Give a staging its owner's bits alone again."""

    def open_folders(self, data: Path, /) -> None:
        """Give the owner all bits of every folder of a staging's `data` again."""

    def unseal(self, data: Path, paths: Iterable[str], /) -> None:
        """Give these files of a staging their owner's write bit again."""

    def sweep_temporaries(self, data: Path, /) -> int:
        """Remove the temporary files that dead attempts left; returns how many. Durable on return."""

    def remove_empty(self, data: Path, paths: Iterable[str], /) -> None:
        """Remove the folders above these paths that hold nothing. Durable on return."""

    def shared_stands(self, data: Path, path: str, temporary: str, size: int, /) -> bool:
        """Whether the temporary file that an earlier attempt made by `Writer.begin_shared` is there."""

    def prepare_process(self) -> None:
        """To be called once in each process that writes by `writer`."""

    def writer(self, data: Path, /, **options: Unpack[WriterOptions]) -> Writer:
        """Writes files into a staging's `data`. For one thread."""

    def paced_writer(self, writer: Writer, spend: Callable[[int], None], /, *, keep_mtime: bool) -> Writer:
        """A writer that waits by `spend(n)` before each n metadata operations of `writer`."""

    def barrier(self, data: Path, /) -> Barrier:
        """To be made before what it is to cover is written."""

    # A tree that penstock did not write

    def try_move(self, tree: Path, releases: Path, aside: Path, /) -> None:
        """Changes nothing of the tree. Raises PreflightError where no folder beside it can be renamed to
        `releases`, where a mount lies in the tree, and where nothing could be moved to `aside`."""

    def move_tree(self, tree: Path, data: Path, inode: int, /) -> None:
        """Make the tree, whose top folder has this inode, a staging's `data`, by one rename."""

    def adopted_files(
        self,
        data: Path,
        aside: Path,
        /,
        *,
        file_mode: int,
        gid: int | None,
        keep_mtime: bool,
        fsync: bool,
        rules: AccessRules = NO_RULES,
        note: Callable[[str, str], None] = ...,
    ) -> AdoptedFiles:
        """Of an adopted tree; what the release is not to hold goes to `aside`. `note` is called before each
        such move, with the path in the tree and the new place."""

    # Modes and groups

    def file_mode(self, policy: PermissionsConfig, /) -> int:
        """The mode that files get."""

    def dir_mode(self, policy: PermissionsConfig, /) -> int:
        """The mode that folders get."""

    def group_id(self, policy: PermissionsConfig, /) -> int | None:
        """The configured group's number; None when none is configured. Raises PreflightError."""

    def access_rules(self, policy: PermissionsConfig, /) -> AccessRules:
        """What the policy says beside one mode for files and one for folders, users and groups by number.
        Raises PreflightError for one that this machine does not know."""

    def set_permissions(self, staging: Path, policy: PermissionsConfig, gid: int | None, /) -> ModesSet:
        """Give everything in a staging's `data` its final mode, group and ACL, and check it. Returns
        counts."""

    # A release's damaged files, and whole trees

    def mender(
        self,
        data: Path,
        /,
        *,
        file_mode: int,
        dir_mode: int,
        gid: int | None,
        uid: int | None = None,
        rules: AccessRules = NO_RULES,
    ) -> Mender:
        """Replaces files below `data`, with the mode, group, owner and ACL that were published."""

    def remove_tree(self, path: Path, /, *, moved: Callable[[int], None] | None = None) -> None:
        """Remove a folder and all below it, never through a link. Durable on return. `moved` is called with
        times of the file system's clock, in nanoseconds, from before the first unlink to after the last."""

    def remove_release(self, path: Path, /, *, moved: Callable[[int], None] | None = None) -> None:
        """The same of what was a release, its seal first."""

    # Small files for other accounts (`shared_files`)

    def write_notice(self, path: Path, value: Any, /) -> None:
        """Replace a notice, whole and durably."""

    def read_notice(self, path: Path, /) -> bytes:
        """The content of a notice. Raises FileNotFoundError, FailedError."""

    def forget_notice(self, path: Path, /) -> None:
        """Remove a notice, durably, where there is one."""

    def make_folder_as_above(self, path: Path, /) -> None:
        """Make a folder for postings of all who may write in the folder above. Raises OSError,
        FailedError."""

    def make_folder_for_readers(self, path: Path, like: Path, /) -> None:
        """Make a folder for postings of all who may read the folder `like`, or give it their rights. Raises
        OSError, FailedError."""

    def post(self, folder: Path, name: str, value: Any, /) -> bool:
        """Have a name that nobody has; False where somebody has it. Durable. Raises OSError."""

    def repost(self, folder: Path, name: str, value: Any, /) -> None:
        """Replace the content of a posting of this account, whole. Raises FileNotFoundError, OSError."""

    def beat(self, folder: Path, name: str, /) -> None:
        """Set a posting's time to now. Raises OSError."""

    def withdraw(self, folder: Path, name: str, /) -> None:
        """Give a name back that this account has. Raises OSError."""

    def sweep_unfinished(self, folder: Path, before: float, /) -> None:
        """Remove what processes of this account left that were killed while they changed a posting, before
        this time of the file system's clock. Raises OSError."""

    def posting_names(self, folder: Path, /) -> list[str]:
        """The names of what accounts posted, none of it opened; none where there is no folder. Raises
        OSError."""

    def postings(self, folder: Path, names: Sequence[str] | None = None, /) -> Postings:
        """What accounts posted under these names, None: all; none where there is no folder. Raises
        OSError."""

    # Small files of a run: durable on return, whole or not at all

    def make_dirs(self, path: Path, mode: int = 0o700) -> None:
        """Make a folder and its missing parents with `mode`."""

    def write_json(self, path: Path, value: Any, *, mode: int = 0o600) -> None:
        """Replace a file whole."""

    def read_json(self, path: Path, /) -> Any:
        """The content of a file that `write_json` wrote. Raises FileNotFoundError, ValueError."""

    def append_line(self, path: Path, value: Any, *, mode: int = 0o600) -> None:
        """Append one JSON line; one writer at a time."""

    def rename(self, old: Path, new: Path) -> None:
        """Rename within one folder."""


class Writer(Protocol):
    """Writes into a staging's `data`; for one thread.

    A file has its final name only with all its bytes, its final mode, group and time; under
    `durability="fsync"` its bytes are durable before that name exists, under `"syncfs"` once `Barrier.wait`
    has returned. An attempt that was given up and writes on can only replace bytes by the same bytes, and
    stops at its next check. No path leaves `data`, no link is followed.
    """

    # Whole files

    def begin(self, path: str, size: int, *, holes: bool = False) -> Pending:
        """A new file under a temporary name. Where it will have holes, no blocks are reserved."""

    def finish(self, pending: Pending, mtime_ns: int) -> None:
        """Time, durability, final name. On an error the final name is as before."""

    def put(self, path: str, data: memoryview, mtime_ns: int) -> None:
        """`begin`, `write_all` and `finish` of a file whose bytes are all at hand."""

    def discard(self, pending: Pending) -> None:
        """Forget what is not finished; of a giant's part only the descriptor."""

    def remove(self, path: str) -> None:
        """Nothing has this name on return: its object left the source."""

    # Parts of files, by several attempts and nodes

    def begin_part(self, path: str, size: int, offset: int, length: int) -> Pending:
        """A giant's file under its final name, `size` long, to be written from `offset`."""

    def finish_part(self, pending: Pending, mtime_ns: int | None = None) -> None:
        """Durability, then the time."""

    def begin_shared(self, path: str, temporary: str, size: int) -> None:
        """Make the temporary file of a large one, whose parts are written by `begin_range`."""

    def begin_range(self, path: str, temporary: str, size: int, offset: int) -> Pending | None:
        """A part of it; None where another attempt has given the file its name."""

    def finish_shared(self, path: str, temporary: str, size: int, mtime_ns: int) -> bool:
        """Time, durability and final name of a temporary file that has all its bytes. False where neither it
        nor a file of this size under the final name is there."""

    def drop_shared(self, path: str, temporary: str) -> None:
        """Remove a temporary file that nothing of this attempt writes any more."""

    # Files that lie on the target already

    def link(self, base_data: Path, path: str, size: int, mtime_ns: int, held_as: str = "") -> bool:
        """Link an unchanged file of a published release, which has the path `held_as` there, if that is
        another one. False: copy it instead."""

    def held(self, base_data: Path, path: str, size: int, mtime_ns: int | None) -> int | None:
        """A descriptor of an unchanged file of a published release, which the caller closes; None where it is
        not as it was published, or may not be read."""

    def link_many(self, base_data: Path, files: Sequence[tuple[str, int, int]]) -> list[Linked | None]:
        """Link unchanged files of a published release: path, size and time of each. None: copy it instead."""

    def take_over(self, stagings: Sequence[Abandoned], path: str, size: int, mtime_ns: int) -> bool:
        """Have a file that one of these abandoned stagings holds. False: copy it instead."""

    def move(self, staging: Abandoned, path: str, size: int, mtime_ns: int | None) -> bool:
        """One rename out of an abandoned staging. False where that cannot be."""

    def holds(self, path: str, size: int, mtime_ns: int | None) -> bool:
        """Whether a file of this size, and of this time if one is given, has this name."""

    # The attempt

    def alive(self, pending: Pending) -> None:
        """Raises FailedError when this attempt was overtaken; to be called now and then."""

    def settle(self) -> None:
        """Make the names durable that were given since the last call, before a journal says so."""

    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
