"""Where everything of a dataset lies below the target root. One place for every name.

<root>/.promises/<name>
<root>/<dataset>/current -> releases/<release>
<root>/<dataset>/releases/.<release>.staging/data/...
<root>/<dataset>/releases/<release>/{data/, manifest.parquet, manifest.xxh128, release.json}
<root>/<dataset>/audits/<release>.json
<root>/<dataset>/verdicts/<name>
<root>/<dataset>/pins/<name>
<root>/<dataset>/under-way.json
<root>/<dataset>/.penstock/{lock, claims/<number>.json, history.jsonl, runs/<run>/...}
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
"""Of a run whose dataset keeps its source's empty folders, and of its release; else it is not there."""
CROISSANT = "croissant.json"
"""The description of a release (`penstock.extras`), of a dataset whose configuration has `describe`."""
BESIDE_DATA = frozenset({MANIFEST, MANIFEST_XXH, MANIFEST_SHA256, SEAL, SIGNATURE, CROISSANT})
"""What may stand beside `data/` in each release."""
CURRENT = "current"
DATASET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
RELEASE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""What `datasets` and `datasets.*.release` may say, matched in full."""
LISTING = "listing.parquet"
STATED = "stated.parquet"
ARCHIVED = "archived.parquet"
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

    def without_signers(self) -> DatasetLayout:
        """The same paths, with no signature asked for."""
        return replace(self, signing=NO_SIGNING)

    @property
    def promises(self) -> Path:
        """What the runs of all datasets and accounts will still write below this root."""
        return self.root / ".promises"

    @cached_property
    def folder(self) -> Path:
        return self.root / self.dataset

    @cached_property
    def releases(self) -> Path:
        return self.folder / "releases"

    @property
    def current(self) -> Path:
        return self.folder / CURRENT

    @cached_property
    def state(self) -> Path:
        if self.state_root is not None:
            return self.state_root / self.dataset / STATE
        return self.folder / STATE

    @property
    def root_file(self) -> Path:
        """Of a state folder that lies elsewhere (`state_root`): names the root that it belongs to."""
        return self.state / "root.json"

    @property
    def state_marker(self) -> Path:
        """Says that penstock 1.0 or a later version made the state."""
        return self.state / "state.json"

    @property
    def state_file(self) -> Path:
        """Of a dataset whose state lies elsewhere (`state_root`): a file in the place of the state's folder,
        which says where."""
        return self.folder / STATE

    @property
    def lock(self) -> Path:
        return self.state / "lock"

    @property
    def history(self) -> Path:
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
    def audits(self) -> Path:
        """What each audit saw and found: its owner's alone."""
        return self.state / "audits"

    @property
    def adoptions(self) -> Path:
        """What comparisons of a tree with the dataset's source saw (`penstock adopt`)."""
        return self.state / ADOPTIONS

    @property
    def audit_history(self) -> Path:
        """A line for each audit, and each word that overruled one: apart from `history`, since audits do
        not hold the dataset's lock."""
        return self.state / "audits.jsonl"

    def verdict(self, release: str) -> Path:
        """What stands against a release, for everybody who reads it."""
        return self.folder / "audits" / f"{release}.json"

    @property
    def pins(self) -> Path:
        """What readers say that they read."""
        return self.folder / "pins"

    @property
    def under_way(self) -> Path:
        """Who stages it now, for accounts that may not read the state."""
        return self.folder / "under-way.json"

    @property
    def dataset_reserve(self) -> Path:
        """Files that are removed for pins and audits where no space is left."""
        return self.folder / ".reserve"

    @property
    def reserve(self) -> Path:
        """Files that are removed for removals where no space is left."""
        return self.state / "reserve"

    def removing(self, release: str) -> Path:
        """There while this release is about to be removed: no reader pins it any more."""
        return self.releases / f".removing-{release}"

    def repair(self, release: str) -> RunLayout:
        """What a repair of this release plans and has fetched so far; gone when it ended."""
        return RunLayout(self.state / REPAIRS / release)

    @property
    def ended(self) -> Path:
        """How the last command that staged it ended, where that was no success."""
        return self.state / "ended.json"

    @property
    def ended_room(self) -> Path:
        """The same file while there is nothing to say."""
        return self.state / ".ended.room"

    @property
    def folders_of_readers(self) -> tuple[Path, ...]:
        """The folders in `folder` that readers look into: each is one, or is not there."""
        return (self.releases, self.pins, self.verdict("").parent)

    @property
    def folders_of_owner(self) -> tuple[Path, ...]:
        """The same of the state."""
        state = (self.runs, self.claims, self.audits, self.adoptions, self.segments, self.replaced)
        return (self.state.parent, self.state, *state, self.state / REPAIRS)

    @property
    def segments(self) -> Path:
        """What was listed so far of a listing that is not done; gone when it is."""
        return self.state / "listing"

    @cached_property
    def runs(self) -> Path:
        return self.state / "runs"

    @property
    def claims(self) -> Path:
        """Which runs the dataset was staged for, by number: the later steps work on the highest one's."""
        return self.state / "claims"

    @property
    def replaced(self) -> Path:
        """Holds a file by the name of each run whose release was staged again by `--new-release`."""
        return self.state / "replaced"

    def staging(self, release: str) -> Path:
        return self.releases / f".{release}.staging"

    def repair_staging(self, release: str) -> Path:
        """What a repair fetches, beside the release and on the same file system; gone when it ended."""
        return self.releases / f".{release}.repair"

    def release(self, release: str) -> Path:
        return self.releases / release

    def run(self, run: str) -> RunLayout:
        return RunLayout(self.runs / run)


@dataclass(frozen=True)
class RunLayout:
    """The durable state of one run: one listing on its way to one release."""

    folder: Path

    @property
    def listing(self) -> Path:
        return self.folder / LISTING

    @property
    def empty_folders(self) -> Path:
        return self.folder / EMPTY_FOLDERS

    @property
    def stated(self) -> Path:
        """The checksum files beside the data that list read, as it listed them; only where the
        configuration names any."""
        return self.folder / STATED

    @property
    def archived(self) -> Path:
        """The objects that were archived when they were listed last, as a listing whose column `token` holds
        the class; only where there are any."""
        return self.folder / ARCHIVED

    @property
    def amended(self) -> Path:
        """The listing as the release holds it, by publish of a run that followed its source."""
        return self.folder / "amended.parquet"

    @property
    def run_file(self) -> Path:
        """`RunInfo` as JSON: written once by list, never changed."""
        return self.folder / "run.json"

    @property
    def plan(self) -> Path:
        return self.folder / "plan.json"

    @property
    def probe(self) -> Path:
        """What the file system did when plan tried it."""
        return self.folder / "probe.json"

    @property
    def arrays(self) -> Path:
        """The ids of submitted arrays, durable before the wait."""
        return self.folder / "arrays.jsonl"

    @property
    def throttle(self) -> Path:
        """How many elements may run at once, where a person changed it."""
        return self.folder / "throttle.json"

    @property
    def adopted(self) -> Path:
        """Says that this run's staging is, or is to become, a tree that penstock did not write."""
        return self.folder / ADOPTED

    @property
    def taken(self) -> Path:
        """Says that another run was planned with this run's staging, and what that is called now."""
        return self.folder / "taken.json"

    @property
    def result(self) -> Path:
        """How an audit or a comparison of a tree with its source ended; one without it has not."""
        return self.folder / "result.json"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def linked_damage(self) -> Path:
        """Holds a file for each shard with linked files that had other bytes than their release states.
        Where it is there, all linked files are read."""
        return self.folder / "linked-damage"

    def shard(self, index: int) -> Path:
        return self.folder / "shards" / f"{index:05d}.parquet"

    def journals(self, index: int) -> Path:
        """Folder of a shard's journals, one file an attempt."""
        return self.folder / "journal" / f"{index:05d}"

    def receipt(self, step: str, index: int | None = None) -> Path:
        name = f"{step}.json" if index is None else f"{step}/{index:05d}.json"
        return self.folder / "receipts" / name

    def outcome(self, step: str, index: int) -> Path:
        """What went wrong in an element's last attempt: written when it ends without a receipt."""
        return self.folder / "outcomes" / step / f"{index:05d}.json"

    def records(self, index: int) -> Path:
        """What verify saw of a shard, written under this name only when it is whole."""
        return self.folder / "records" / f"{index:05d}.parquet"

    def survey(self, index: int) -> Path:
        """Of a comparison of a tree with its source: the folder of what was seen of a shard's rows. Of a run
        that adopted a tree: how the files stand that it took over."""
        return self.folder / "survey" / f"{index:05d}"

    def readings(self, index: int) -> Path:
        """Of an audit: what its elements saw of the shard so far."""
        return self.folder / "seen" / f"{index:05d}.json"

    def fetched(self, index: int) -> Path:
        """Of a repair: what became of each file of the shard."""
        return self.folder / "fetched" / f"{index:05d}.json"

    def progress(self, step: str, index: int) -> Path:
        """A small file that a running element rewrites: bytes and files so far."""
        return self.folder / "progress" / step / f"{index:05d}.json"
