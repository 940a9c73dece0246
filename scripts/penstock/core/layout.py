"""Names every file and folder below a target's root, and decides which keys can be paths there. Pure: the
functions join and check paths, and touch no file.

docs/formats.md says what the files hold, docs/glossary.md what a seal, a pin, a claim or a shard is.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from operator import lt
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.errors import FailedError
from penstock.core.human import in_quotes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path


# Uses keys as paths unchanged, or rejects them with a reason. List checks all keys before a copy begins.
#
# Keys are never URL-decoded or normalised: `%2e%2e`, blanks, newlines, quotes and bytes that are not UTF-8
# are legal. Rejected are names that no POSIX folder can have, that would leave the release, or that penstock
# gives to its temporary files.

SEGMENT_BYTES = 255  # most bytes of a name in a path: NAME_MAX of Linux
PATH_BYTES = 4000  # most bytes of a key; the rest of PATH_MAX, 4096, is for the target's root and release
SHOWN = 1000  # most offenders that are shown; all are counted
TEMPORARY = re.compile(r"\.p\.[0-9a-f]{16}")  # names of unfinished files in a release


def check_key(key: str, kept: Collection[str] = ()) -> str | None:
    """Return why `key` cannot be a path below a release, or None if it can. `kept`: names that the target's
    file system reserves.

    | key                        | answer                        |
    |----------------------------|-------------------------------|
    | `a b/%2e%2e/-x\\n`          | None                          |
    | `` or `a//b` or `a/`       | empty segment                 |
    | `/a`                       | leading slash                 |
    | `a/./b`, `../b`            | `.` or `..` segment           |
    | NUL anywhere               | NUL                           |
    | a segment of 256 bytes     | segment too long              |
    | more than 4,000 bytes      | path too long                 |
    | `.p.` and 16 hex digits    | reserved for temporary files  |
    | a segment among `kept`     | the file system's own         |
    """
    if "\0" in key:
        return "has a NUL byte"
    if key.startswith("/"):
        return "begins with a slash"
    encoded = os.fsencode(key)
    if len(encoded) > PATH_BYTES:
        return f"is {len(encoded)} bytes long; a path may have {PATH_BYTES}"
    for segment in key.split("/"):
        if not segment:
            return "has an empty segment"
        if segment in {".", ".."}:
            return f"has a segment {in_quotes(segment)}"
        if len(segment) > SEGMENT_BYTES // 4 and len(os.fsencode(segment)) > SEGMENT_BYTES:
            return f"has a segment of {len(os.fsencode(segment))} bytes; a name may have {SEGMENT_BYTES}"
        if segment.startswith(".p.") and TEMPORARY.fullmatch(segment):
            return "has a segment of the form that names temporary files"
        if segment in kept:
            return (
                f"has a segment {in_quotes(segment)}, a name that the target's file system keeps for itself"
            )
    return None


def all_good(keys: Sequence[str], kept: Collection[str] = ()) -> bool:
    """Return whether `check_key` certainly passes a whole batch. If not, each key must be checked. The batch
    is joined by a NUL segment and searched at the speed of memory."""
    if not keys:
        return True
    text = os.fsencode("/" + "/\0/".join(keys) + "/")
    if b"//" in text or b"/./" in text or b"/../" in text or b"/.p." in text:
        return False
    if any(os.fsencode(f"/{name}/") in text for name in kept):
        return False
    if text.count(b"\0") != len(keys) - 1:
        return False
    if max(map(len, text.split(b"/"))) > SEGMENT_BYTES:
        return False
    return max(map(len, keys)) <= PATH_BYTES // 4 or max(map(len, map(os.fsencode, keys))) <= PATH_BYTES


@dataclass
class Offenders:
    """Rejected keys. All are counted, and the first ones are kept to be shown."""

    total: int = 0
    shown: list[tuple[str, str]] = field(default_factory=list)

    def add(self, key: str, reason: str) -> None:
        self.total += 1
        if len(self.shown) < SHOWN:
            self.shown.append((key, reason))

    def lines(self) -> list[str]:
        """Return one line for each offender, escaped for a terminal."""
        lines = [f"{in_quotes(key)} {reason}" for key, reason in self.shown]
        if self.total > len(self.shown):
            lines.append(f"and {self.total - len(self.shown)} more")
        return lines


class Conflicts:
    """Finds collisions in a stream of paths in byte order.

    A path that appears twice collides. So does a file that is a folder of another path (`a` beside `a/b`,
    even with `a-c` between them). Only the prefixes of the newest path are in memory. Raises FailedError if
    the stream is out of order, since then no result is certain.
    """

    def __init__(self) -> None:
        self.files: dict[str, None] = {}  # the first SHOWN files that are also folders of other paths
        self._open: list[str] = []
        self._last = b""
        self._started = False

    def add(self, paths: Sequence[str]) -> Iterable[tuple[str, str]]:
        """Add the next paths; return (path, reason) for each collision."""
        if not paths:
            return []
        encoded = [os.fsencode(path) for path in paths]
        rising = all(map(lt, encoded[:-1], encoded[1:])) and (not self._started or self._last < encoded[0])
        collisions: list[tuple[str, str]] = []
        if not rising:
            collisions.extend(self._doubled(paths, encoded))
        self._started, self._last = True, encoded[-1]
        stack = self._open
        for path in paths:
            while stack and not path.startswith(stack[-1]):
                stack.pop()
            if stack:
                files = [file for file in stack if len(path) > len(file) and path[len(file)] == "/"]
                collisions.extend(
                    (path, f"needs a folder where {in_quotes(file)} is a file") for file in files
                )
                if files and len(self.files) < SHOWN:
                    self.files.update(dict.fromkeys(files))
                if stack[-1] == path:
                    continue
            stack.append(path)
        return collisions

    def _doubled(self, paths: Sequence[str], encoded: Sequence[bytes]) -> Iterable[tuple[str, str]]:
        ordered = [self._last, *encoded] if self._started else list(encoded)
        named = ["", *paths] if self._started else list(paths)
        for (first, second), name in zip(pairwise(ordered), named[1:], strict=True):
            if first == second:
                yield name, "is listed twice"
            elif first > second:
                raise FailedError(
                    "the listing is not in ascending order",
                    why=f"{in_quotes(name)} came after {in_quotes(os.fsdecode(first))}",
                    hint="the source changed its order while it was listed, or does not keep one: list again",
                )


DATA = "data"
MANIFEST = "manifest.parquet"
MANIFEST_XXH = "manifest.xxh128"
MANIFEST_SHA256 = "manifest.sha256"
SEAL = "release.json"
SIGNATURE = "release.json.sig"  # signature over the seal's bytes, if `target.sign_with` names a key
# a file in a run and its release, if the dataset keeps its source's empty folders
EMPTY_FOLDERS = "empty-folders.json"
CROISSANT = "croissant.json"  # description of a release, if the dataset has `describe` (`penstock.extras`)
# names of all files that may be beside `data/` in a release
BESIDE_DATA = frozenset({MANIFEST, MANIFEST_XXH, MANIFEST_SHA256, SEAL, SIGNATURE, CROISSANT})
CURRENT = "current"
UNDER_WAY = "under-way.json"
# Names that `datasets` and `datasets.*.release` accept, matched in full.
DATASET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
RELEASE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
LISTING = "listing.parquet"  # name of a file in a run's folder
STATED = "stated.parquet"  # name of a file in a run's folder
REPAIRS = "repairs"
STATE = ".penstock"
PROBE = ".penstock-probe"  # the probe's hidden folder, in a dataset's folder and in `releases`
# Prefix, before the job's number, of a node's answer to preflight, at the root or beside it.
ANSWER = ".penstock-probe-"
# Prefix, before hexadecimal digits, of an empty folder beside an adopted tree or in `releases`.
ADOPT_TRIAL = ".penstock-adopt-"
ADOPTIONS = "adoptions"
ADOPTED = "adopted.json"


class SigningKeys(NamedTuple):
    """Files with the keys that sign and verify seals."""

    key: Path | None = None  # `target.sign_with`; None if seals are not signed
    signers: Path | None = None  # `target.signers`; None if no signature is required


NO_SIGNING = SigningKeys()


@dataclass(frozen=True)
class DatasetLayout:
    """The paths of one dataset."""

    root: Path  # the configured target root
    dataset: str
    state_root: Path | None = None  # `target.state_root`: another place for `.penstock`, if configured
    signing: SigningKeys = NO_SIGNING

    def without_signing(self) -> DatasetLayout:
        """Return the same paths without keys, so that no seal is signed and no signature required."""
        return replace(self, signing=NO_SIGNING)

    @property
    def operations(self) -> Path:
        """The folder in which all accounts that write below the root note their shares of `target.ops`."""
        return self.root / ".operations"

    @property
    def promises(self) -> Path:
        """The folder in which versions before 1.0 noted how much a run would still write."""
        return self.root / ".promises"

    # What everybody reads ----------------------------------------------------------------------

    @cached_property
    def folder(self) -> Path:
        return self.root / self.dataset

    @property
    def current(self) -> Path:
        """The link to the release that readers use."""
        return self.folder / CURRENT

    @cached_property
    def releases(self) -> Path:
        return self.folder / "releases"

    def release(self, release: str) -> Path:
        return self.releases / release

    def verdict(self, release: str) -> Path:
        """Return the file with the last audits and repairs of a release, for every reader."""
        return self.folder / "audits" / f"{release}.json"

    @property
    def pins(self) -> Path:
        """The folder of files with which readers state the release that they read."""
        return self.folder / "pins"

    @property
    def under_way(self) -> Path:
        """Tells other accounts which process stages the dataset, and what it will still write."""
        return self.folder / UNDER_WAY

    @property
    def last_pins(self) -> Path:
        """The file in which gc notes who pinned each release last."""
        return self.folder / "last-pins.json"

    @property
    def repair_under_way(self) -> Path:
        """As `under_way`, but for a repair or rehearsal, which may run between the steps of a run."""
        return self.folder / "under-way.repair.json"

    @property
    def under_ways(self) -> tuple[Path, ...]:
        return (self.under_way, self.repair_under_way)

    @property
    def folders_of_readers(self) -> tuple[Path, ...]:
        """The folders in `folder` that readers open. Each exists as a folder or is missing."""
        return (self.releases, self.pins, self.verdict("").parent)

    # Beside the releases, for a time -----------------------------------------------------------

    def staging(self, release: str) -> Path:
        """Return the folder in which a release is built."""
        return self.releases / f".{release}.staging"

    def repair_staging(self, release: str) -> Path:
        """Return the folder of a repair's fetched files, on the release's file system."""
        return self.releases / f".{release}.repair"

    @property
    def rehearsal(self) -> Path:
        """The folder of files that a rehearsal copies, beside the place of a staging; removed afterwards."""
        return self.releases / ".penstock-rehearsal"

    def removing(self, release: str) -> Path:
        """Return the mark of a release about to be removed. Readers pin no release with this mark."""
        return self.releases / f".removing-{release}"

    @property
    def dataset_reserve(self) -> Path:
        """Spare files, to be removed when no space is left for a pin or an audit."""
        return self.folder / ".reserve"

    # The state ---------------------------------------------------------------------------------

    @cached_property
    def state(self) -> Path:
        """The folder of the dataset's state, which only the owner may use."""
        if self.state_root is not None:
            return self.state_root / self.dataset / STATE
        return self.folder / STATE

    @property
    def state_marker(self) -> Path:
        """The file that marks the state as made by penstock 1.0 or later."""
        return self.state / "state.json"

    @property
    def state_pointer(self) -> Path:
        """If `state_root` is configured: a file in place of the state's folder, with that folder's path."""
        return self.folder / STATE

    @property
    def root_pointer(self) -> Path:
        """A file in a state that is elsewhere (`state_root`): the root that the state belongs to."""
        return self.state / "root.json"

    @property
    def lock(self) -> Path:
        """The lock of the step that is changing the dataset."""
        return self.state / "lock"

    @property
    def claims(self) -> Path:
        """The numbered claims of runs that staged the dataset. Later steps work on the highest."""
        return self.state / "claims"

    @property
    def history(self) -> Path:
        """The file with a line for each publication, rollback, removal and repair."""
        return self.state / "history.jsonl"

    @property
    def rollback(self) -> Path:
        """The release that `current` is about to lead to again; removed once the history has the rollback."""
        return self.state / "rollback.json"

    @property
    def intervals(self) -> Path:
        """When processes linked or unlinked files that releases share, until the history has these times."""
        return self.state / "intervals"

    @property
    def replaced(self) -> Path:
        """Holds a file named after each run whose release was staged again by `--new-release`."""
        return self.state / "replaced"

    @property
    def unfinished_listing(self) -> Path:
        """The parts of its sources that list has listed so far; removed when the listing is complete."""
        return self.state / "listing"

    @property
    def ended(self) -> Path:
        """How the last command that staged the dataset failed or was stopped."""
        return self.state / "ended.json"

    @property
    def ended_room(self) -> Path:
        """The empty file that becomes `ended`, made beforehand because the file system may be full later."""
        return self.state / ".ended.room"

    @property
    def succeeded(self) -> Path:
        """An empty file whose time is the end of the last successful run, or 1970 if there was none."""
        return self.state / "succeeded"

    @property
    def rehearsal_result(self) -> Path:
        """The measurements of the last rehearsal."""
        return self.state / "rehearsal.json"

    @property
    def notices(self) -> Path:
        """Holds a mark of each notice that was sent (`keep.notices`)."""
        return self.state / "notices"

    @property
    def reserve(self) -> Path:
        """Spare files, to be removed when no space is left for the records of a removal."""
        return self.state / "reserve"

    @cached_property
    def runs(self) -> Path:
        """The parent of a folder for each run (`RunLayout`)."""
        return self.state / "runs"

    def run(self, run: str) -> RunLayout:
        return RunLayout(self.runs / run)

    def repair(self, release: str) -> RunLayout:
        """Return the state of a repair of this release, which is removed after the repair."""
        return RunLayout(self.state / REPAIRS / release)

    @property
    def audits(self) -> Path:
        """The parent of a folder for each audit (`RunLayout`)."""
        return self.state / "audits"

    @property
    def audit_history(self) -> Path:
        """The file with a line for each audit and overruling. It is not `history`, as audits hold no lock."""
        return self.state / "audits.jsonl"

    @property
    def adoptions(self) -> Path:
        """The parent of a folder for each comparison of a tree with the source (`penstock adopt`)."""
        return self.state / ADOPTIONS

    @property
    def folders_of_owner(self) -> tuple[Path, ...]:
        """The state's folders, and their parent. Each exists as a folder or is missing."""
        state = (self.runs, self.claims, self.audits, self.adoptions, self.unfinished_listing, self.replaced)
        return (self.state.parent, self.state, *state, self.state / REPAIRS, self.notices)


@dataclass(frozen=True)
class RunLayout:
    """The durable state of a run, from a listing to a release. A repair, an audit or a comparison (`penstock
    adopt`) has some of these files."""

    folder: Path

    # The whole run -----------------------------------------------------------------------------

    @property
    def run_file(self) -> Path:
        """`RunInfo` as JSON. List writes it once, and it never changes."""
        return self.folder / "run.json"

    @property
    def listing(self) -> Path:
        """The list of all objects to be staged, frozen by list."""
        return self.folder / LISTING

    @property
    def empty_folders(self) -> Path:
        return self.folder / EMPTY_FOLDERS

    @property
    def stated(self) -> Path:
        """The checksum files beside the data that list read, if the configuration names any (`checksums`)."""
        return self.folder / STATED

    @property
    def plan(self) -> Path:
        """The decisions of plan, without the rows of the shards."""
        return self.folder / "plan.json"

    @property
    def probe(self) -> Path:
        """The result of plan's trial of the target's file system."""
        return self.folder / "probe.json"

    @property
    def adopted(self) -> Path:
        """The mark of a run whose staging is, or is to become, a tree that penstock did not write."""
        return self.folder / ADOPTED

    @property
    def taken(self) -> Path:
        """The mark of a run whose staging another run took over, with the staging's current name."""
        return self.folder / "taken.json"

    @property
    def amended(self) -> Path:
        """The listing as the release holds it, if the run followed its source (`changed: follow`)."""
        return self.folder / "amended.parquet"

    @property
    def result(self) -> Path:
        """The result of an audit or a comparison; missing before its end."""
        return self.folder / "result.json"

    @property
    def linked_damage(self) -> Path:
        """A folder with a file for each shard whose linked files had other bytes than their release states.
        If this folder exists, all linked files are read."""
        return self.folder / "linked-damage"

    # Elements ----------------------------------------------------------------------------------

    @property
    def arrays(self) -> Path:
        """The ids of submitted arrays, made durable before penstock waits for them."""
        return self.folder / "arrays.jsonl"

    @property
    def throttle(self) -> Path:
        """The number of elements that may run at once, if a person changed it."""
        return self.folder / "throttle.json"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def shard(self, index: int) -> Path:
        """Return the file with the rows of a shard."""
        return self.folder / "shards" / f"{index:05d}.parquet"

    def receipt(self, step: str, index: int | None = None) -> Path:
        """Return the proof that a step, or its element `index`, is done."""
        name = f"{step}.json" if index is None else f"{step}/{index:05d}.json"
        return self.folder / "receipts" / name

    def outcome(self, step: str, index: int, generation: int) -> Path:
        """Return why an attempt under the claim of this generation ended without a receipt."""
        return self.folder / "outcomes" / step / f"{index:05d}.{generation}.json"

    def progress(self, step: str, index: int) -> Path:
        """Return the small file in which a running element updates its counts of bytes and files."""
        return self.folder / "progress" / step / f"{index:05d}.json"

    def usage(self, step: str) -> Path:
        """Return the folder in which workers update the resources that their processes have used."""
        return self.folder / "usage" / step

    def claims(self, step: str) -> Path:
        """Return the folder of claims with which workers divide a step's shards among themselves."""
        return self.folder / "claims" / step

    def leaving(self, step: str) -> Path:
        """Return the file that lists the workers that are to end before their next shard."""
        return self.folder / "leaving" / f"{step}.json"

    def claim(self, step: str, index: int, generation: int) -> Path:
        """Return a worker's claim of this shard; `generation` counts from 1."""
        return self.claims(step) / f"{index:05d}.{generation}.json"

    # What elements write of a shard ------------------------------------------------------------

    def journals(self, index: int) -> Path:
        """Return the folder of a shard's journals, with a file for each attempt."""
        return self.folder / "journal" / f"{index:05d}"

    def records(self, index: int) -> Path:
        """Return verify's records of a shard. The file gets this name only when it is complete."""
        return self.folder / "records" / f"{index:05d}.parquet"

    def survey(self, index: int) -> Path:
        """Return a comparison's findings on a shard's rows, or what a run took over from an adopted tree."""
        return self.folder / "survey" / f"{index:05d}"

    def audited_rows(self, index: int) -> Path:
        """Return the file of what an audit's elements have seen of the shard so far."""
        return self.folder / "seen" / f"{index:05d}.json"

    def fetched(self, index: int) -> Path:
        """Return the file with the result for each file in a repair's shard."""
        return self.folder / "fetched" / f"{index:05d}.json"
