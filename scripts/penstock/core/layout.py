"""The name of each file and folder below a target's root, for all that reads or writes there.

Paths are put together and nothing more: no file is looked at, and no name is checked. docs/formats.md says
what the files hold, docs/glossary.md what a seal, a pin, a claim or a shard is.

<root>/.operations/<name>
<root>/<dataset>/current -> releases/<release>
<root>/<dataset>/releases/<release>/{data/, manifest.parquet, manifest.xxh128, release.json}
<root>/<dataset>/releases/.<release>.staging/data/...
<root>/<dataset>/audits/<release>.json           the verdict on a release, for everybody
<root>/<dataset>/pins/<name>, last-pins.json
<root>/<dataset>/under-way.json                  who stages it now; under-way.repair.json: who repairs it
<root>/<dataset>/.penstock/                      the dataset's state: its owner's alone
    lock, history.jsonl, claims/<number>.json, ...
    runs/<run>/, repairs/<release>/              of a run or a repair (`RunLayout`),
    audits/<audit>/, adoptions/<comparison>/     of an audit or a comparison: the same

With `target.state_root` the state lies in <state_root>/<dataset>/.penstock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

DATA = "data"
MANIFEST = "manifest.parquet"
MANIFEST_XXH = "manifest.xxh128"
MANIFEST_SHA256 = "manifest.sha256"
SEAL = "release.json"
SIGNATURE = "release.json.sig"
"""Over the seal's bytes, where `target.sign_with` names a key."""
EMPTY_FOLDERS = "empty-folders.json"
"""In a run whose dataset keeps its source's empty folders, and in its release; else it is not there."""
CROISSANT = "croissant.json"
"""The description of a release (`penstock.extras`), of a dataset whose configuration has `describe`."""
BESIDE_DATA = frozenset({MANIFEST, MANIFEST_XXH, MANIFEST_SHA256, SEAL, SIGNATURE, CROISSANT})
"""What may stand beside `data/` in each release."""
CURRENT = "current"
UNDER_WAY = "under-way.json"
DATASET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
RELEASE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""What `datasets` and `datasets.*.release` may say, matched in full."""
LISTING = "listing.parquet"
STATED = "stated.parquet"
"""Tables in a run's folder."""
REPAIRS = "repairs"
STATE = ".penstock"
PROBE = ".penstock-probe"
"""The hidden folder in which the probe works, in a dataset's folder and in `releases`."""
ANSWER = ".penstock-probe-"
"""With the job's number behind it: a node's answer to preflight, at the root or beside it."""
ADOPT_TRIAL = ".penstock-adopt-"
"""With hexadecimal digits behind it: an empty folder, beside a tree that is adopted or in `releases`."""
ADOPTIONS = "adoptions"
ADOPTED = "adopted.json"


class SigningKeys(NamedTuple):
    """Where the keys lie that seals are signed and verified with."""

    key: Path | None = None
    """`target.sign_with`; None: this configuration signs nothing."""
    signers: Path | None = None
    """`target.signers`; None: no signature is asked for."""


NO_SIGNING = SigningKeys()


@dataclass(frozen=True)
class DatasetLayout:
    """The paths of one dataset."""

    root: Path
    """The configured target root."""
    dataset: str
    state_root: Path | None = None
    """`target.state_root`: where `.penstock` lies instead, if configured."""
    signing: SigningKeys = NO_SIGNING

    def without_signing(self) -> DatasetLayout:
        """The same paths: nothing is signed, and no signature is asked for."""
        return replace(self, signing=NO_SIGNING)

    @property
    def operations(self) -> Path:
        """Who has which share of `target.ops`: files of all accounts that write below the root."""
        return self.root / ".operations"

    @property
    def promises(self) -> Path:
        """Where versions before 1.0 posted what a run would still write."""
        return self.root / ".promises"

    # What everybody reads ----------------------------------------------------------------------

    @cached_property
    def folder(self) -> Path:
        """What the dataset has below the root."""
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
        """What the last audits and repairs of a release said, for everybody who reads it."""
        return self.folder / "audits" / f"{release}.json"

    @property
    def pins(self) -> Path:
        """Files by which readers say which release they read."""
        return self.folder / "pins"

    @property
    def under_way(self) -> Path:
        """Who stages the dataset now, and what it will still write, for accounts that may not read its
        state."""
        return self.folder / UNDER_WAY

    @property
    def last_pins(self) -> Path:
        """Who pinned each release last, as gc noted it."""
        return self.folder / "last-pins.json"

    @property
    def repair_under_way(self) -> Path:
        """The same of a repair or a rehearsal, which may take place between the steps of a run."""
        return self.folder / "under-way.repair.json"

    @property
    def under_ways(self) -> tuple[Path, ...]:
        return (self.under_way, self.repair_under_way)

    @property
    def folders_of_readers(self) -> tuple[Path, ...]:
        """The folders in `folder` that readers look into: each is one, or is not there."""
        return (self.releases, self.pins, self.verdict("").parent)

    # Beside the releases, for a time -----------------------------------------------------------

    def staging(self, release: str) -> Path:
        """The tree of a release while it grows."""
        return self.releases / f".{release}.staging"

    def repair_staging(self, release: str) -> Path:
        """What a repair fetches, beside the release and on the same file system; gone when it ended."""
        return self.releases / f".{release}.repair"

    @property
    def rehearsal(self) -> Path:
        """What a rehearsal copies, where staging would lie; gone when it ended."""
        return self.releases / ".penstock-rehearsal"

    def removing(self, release: str) -> Path:
        """A file, while this release is about to be removed: no reader pins it any more."""
        return self.releases / f".removing-{release}"

    @property
    def dataset_reserve(self) -> Path:
        """Files to remove where no space is left for a pin or an audit."""
        return self.folder / ".reserve"

    # The state ---------------------------------------------------------------------------------

    @cached_property
    def state(self) -> Path:
        """The folder of the dataset's state, the owner's alone."""
        if self.state_root is not None:
            return self.state_root / self.dataset / STATE
        return self.folder / STATE

    @property
    def state_marker(self) -> Path:
        """Says that penstock 1.0 or a later version made the state."""
        return self.state / "state.json"

    @property
    def state_pointer(self) -> Path:
        """In the dataset's folder, where its state lies elsewhere (`state_root`): a file in place of the
        state's folder, which names that."""
        return self.folder / STATE

    @property
    def root_pointer(self) -> Path:
        """In a state that lies elsewhere (`state_root`): the root that it belongs to."""
        return self.state / "root.json"

    @property
    def lock(self) -> Path:
        """Which step changes the dataset now."""
        return self.state / "lock"

    @property
    def claims(self) -> Path:
        """Which runs the dataset was staged for, by number: the later steps work on the highest one's."""
        return self.state / "claims"

    @property
    def history(self) -> Path:
        """A line for each publication, rollback, removal and repair."""
        return self.state / "history.jsonl"

    @property
    def rollback(self) -> Path:
        """Where `current` is about to be led back to; gone once the history says that it was."""
        return self.state / "rollback.json"

    @property
    def intervals(self) -> Path:
        """When processes linked or unlinked files that releases share, as far as the history lacks it."""
        return self.state / "intervals"

    @property
    def replaced(self) -> Path:
        """Holds a file by the name of each run whose release was staged again by `--new-release`."""
        return self.state / "replaced"

    @property
    def unfinished_listing(self) -> Path:
        """What list has so far of its sources; gone when the listing is complete."""
        return self.state / "listing"

    @property
    def ended(self) -> Path:
        """How the last command that staged the dataset ended, where that was no success."""
        return self.state / "ended.json"

    @property
    def ended_room(self) -> Path:
        """The same file while there is nothing to say: made ahead, as the file system may be full later."""
        return self.state / ".ended.room"

    @property
    def succeeded(self) -> Path:
        """Empty; its time is that of the last run that ended with 0, or 1970 where none has yet."""
        return self.state / "succeeded"

    @property
    def rehearsal_result(self) -> Path:
        """What the last rehearsal measured."""
        return self.state / "rehearsal.json"

    @property
    def notices(self) -> Path:
        """Holds a mark of each notice that was sent (`keep.notices`)."""
        return self.state / "notices"

    @property
    def reserve(self) -> Path:
        """Files to remove where no space is left for the records of a removal."""
        return self.state / "reserve"

    @cached_property
    def runs(self) -> Path:
        """A folder for each run (`RunLayout`)."""
        return self.state / "runs"

    def run(self, run: str) -> RunLayout:
        return RunLayout(self.runs / run)

    def repair(self, release: str) -> RunLayout:
        """What a repair of this release plans and has fetched so far; gone when it ended."""
        return RunLayout(self.state / REPAIRS / release)

    @property
    def audits(self) -> Path:
        """A folder for each audit (`RunLayout`): what it saw and found."""
        return self.state / "audits"

    @property
    def audit_history(self) -> Path:
        """A line for each audit, and for each time that findings were overruled: apart from `history`, since
        audits do not hold the dataset's lock."""
        return self.state / "audits.jsonl"

    @property
    def adoptions(self) -> Path:
        """A folder for each comparison of a tree with the dataset's source (`penstock adopt`)."""
        return self.state / ADOPTIONS

    @property
    def folders_of_owner(self) -> tuple[Path, ...]:
        """The state's folders, and what it lies in: each is one, or is not there."""
        state = (self.runs, self.claims, self.audits, self.adoptions, self.unfinished_listing, self.replaced)
        return (self.state.parent, self.state, *state, self.state / REPAIRS, self.notices)


@dataclass(frozen=True)
class RunLayout:
    """The durable state of one run, from a listing to a release; also of a repair, an audit or a comparison
    of a tree with its source (`penstock adopt`), each of which has some of these files."""

    folder: Path

    # The whole run -----------------------------------------------------------------------------

    @property
    def run_file(self) -> Path:
        """`RunInfo` as JSON: written once by list, never changed."""
        return self.folder / "run.json"

    @property
    def listing(self) -> Path:
        """Every object that is to be staged, frozen by list."""
        return self.folder / LISTING

    @property
    def empty_folders(self) -> Path:
        return self.folder / EMPTY_FOLDERS

    @property
    def stated(self) -> Path:
        """The checksum files beside the data that list read, as it listed them; only where the
        configuration names any (`checksums`)."""
        return self.folder / STATED

    @property
    def plan(self) -> Path:
        """What plan decided, but for the rows of the shards."""
        return self.folder / "plan.json"

    @property
    def probe(self) -> Path:
        """What the file system did when plan tried it."""
        return self.folder / "probe.json"

    @property
    def adopted(self) -> Path:
        """Says that this run's staging is, or is to become, a tree that penstock did not write."""
        return self.folder / ADOPTED

    @property
    def taken(self) -> Path:
        """Says that another run took this run's staging over, and what the staging is called now."""
        return self.folder / "taken.json"

    @property
    def amended(self) -> Path:
        """The listing as the release holds it, where a run followed its source (`changed: follow`)."""
        return self.folder / "amended.parquet"

    @property
    def result(self) -> Path:
        """Of an audit, or of a comparison: how it ended; missing until then."""
        return self.folder / "result.json"

    @property
    def linked_damage(self) -> Path:
        """Holds a file for each shard with linked files that had other bytes than their release states.
        Where it is there, all linked files are read."""
        return self.folder / "linked-damage"

    # Elements ----------------------------------------------------------------------------------

    @property
    def arrays(self) -> Path:
        """The ids of submitted arrays, durable before the wait."""
        return self.folder / "arrays.jsonl"

    @property
    def throttle(self) -> Path:
        """How many elements may run at once, where a person changed it."""
        return self.folder / "throttle.json"

    @property
    def logs(self) -> Path:
        """Folder of the elements' logs."""
        return self.folder / "logs"

    def shard(self, index: int) -> Path:
        """The rows of the plan that one element does."""
        return self.folder / "shards" / f"{index:05d}.parquet"

    def receipt(self, step: str, index: int | None = None) -> Path:
        """The proof that a step, or its element of this index, is done."""
        name = f"{step}.json" if index is None else f"{step}/{index:05d}.json"
        return self.folder / "receipts" / name

    def outcome(self, step: str, index: int, generation: int) -> Path:
        """What went wrong in an element's attempt, under the claim of this generation: written when it ends
        without a receipt."""
        return self.folder / "outcomes" / step / f"{index:05d}.{generation}.json"

    def progress(self, step: str, index: int) -> Path:
        """A small file that a running element rewrites: bytes and files so far."""
        return self.folder / "progress" / step / f"{index:05d}.json"

    def usage(self, step: str) -> Path:
        """Folder of small files that workers rewrite: what each process used so far."""
        return self.folder / "usage" / step

    def claims(self, step: str) -> Path:
        """Folder of the claims by which workers divide the shards of a step."""
        return self.folder / "claims" / step

    def leaving(self, step: str) -> Path:
        """The numbers of the workers that are to end before their next shard."""
        return self.folder / "leaving" / f"{step}.json"

    def claim(self, step: str, index: int, generation: int) -> Path:
        """That a worker took this shard: the claim of this generation, from 1 on."""
        return self.claims(step) / f"{index:05d}.{generation}.json"

    # What elements write of a shard ------------------------------------------------------------

    def journals(self, index: int) -> Path:
        """Folder of a shard's journals, one file an attempt."""
        return self.folder / "journal" / f"{index:05d}"

    def records(self, index: int) -> Path:
        """What verify saw of a shard, written under this name only when it is whole."""
        return self.folder / "records" / f"{index:05d}.parquet"

    def survey(self, index: int) -> Path:
        """Of a comparison: the folder of what was seen of a shard's rows. Of a run that adopted a tree: how
        the files stand that it took over."""
        return self.folder / "survey" / f"{index:05d}"

    def audited_rows(self, index: int) -> Path:
        """Of an audit: what its elements saw of the shard so far."""
        return self.folder / "seen" / f"{index:05d}.json"

    def fetched(self, index: int) -> Path:
        """Of a repair: what became of each file of the shard."""
        return self.folder / "fetched" / f"{index:05d}.json"
