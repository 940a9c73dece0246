"""Judges a dataset: which release its link `current` names, and whether a job may read that release. `gate`,
`path`, `run`, `status`, `releases`, `show`, `rollback` and the report all use this judgement, so they agree.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.errors import (
    ConfigError,
    FailedError,
    FindingsError,
    NewerFormatError,
    OlderVersionError,
    PenstockError,
    PreflightError,
)
from penstock.core.human import brief, printable
from penstock.core.layout import DATA, MANIFEST, MANIFEST_XXH, SEAL
from penstock.dataset import (
    receipts,
    release_records,
    seals,
    staging_notice,
)
from penstock.fs import capabilities, safe_open, small_files
from penstock.target import access, dataset_folders, notices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.core.findings import Verdict
    from penstock.core.layout import DatasetLayout
    from penstock.core.seal import Seal


def no_release(
    layout: DatasetLayout, names: Sequence[str], existing: Sequence[str], hint: str
) -> ConfigError:
    """Return the error for a command whose arguments `names` include no `existing` release."""
    return ConfigError(
        f"there is no release {', '.join(names)}",
        where=str(layout.releases),
        why=f"there are {', '.join(existing)}" if existing else "nothing is published",
        hint=hint,
    )


def named_by_current(release: str) -> str:
    """Return a sentence saying that `current` names `release`, which does not exist."""
    return f"`current` names {printable(release)}, which is not there"


# Decides which release `current` names and whether a job may read it, for every command and view. Jobs wait
# for the judgement, so its cost does not depend on the release's size. It reads a few small files and looks
# up at most `SAMPLED` names; only audits read the data. It touches the folder of pins to learn the file
# system's clock (`fs.capabilities`). The *seal* is `release.json`, in which publish wrote counts and digests.
#
# | what is checked                                       | state if it fails                         |
# |-------------------------------------------------------|-------------------------------------------|
# | `<root>/HOLD` (`target.notices`): it names neither | held                                      |
# | dataset nor release                                   |                                           |
# | `current`: a link into releases/                      | nothing is published, or it leads nowhere |
# | the dataset's folders: no links, nothing but folders  | damaged                                   |
# | `state.json` in the state, if this account may read   | older, newer                              |
# | it: a version from 1.0 on made the state              |                                           |
# | the owners of folder, release and seal: all are       | foreign                                   |
# | trusted (`target.owners`)                             |                                           |
# | the seal: JSON, of this dataset and release           | damaged                                   |
# | the seal's digest: as in the last audit, and as in    | damaged: not the seal that was published  |
# | history.jsonl if this account may read that           |                                           |
# | the seal's signature, if `target.signers` is          | damaged: not signed                       |
# | configured                                            |                                           |
# | manifest.parquet: size, both ends; all of it up to    | damaged                                   |
# | `DIGESTED` bytes                                      |                                           |
# | `SAMPLED` files that the manifest names: they exist   | damaged                                   |
# | the results of the last audits                        | damaged: they cannot be read, or findings |
# |                                                       | stand                                     |

PUBLISHED, NOTHING, DAMAGED = "published", "nothing published", "damaged"
HELD, FOREIGN, OLDER, NEWER = "held", "foreign", "older", "newer"
UNREADABLE = "unreadable"  # this account may not read it, or the file system is unresponsive
BAD = (HELD, DAMAGED, FOREIGN)  # states in which a command that shows the dataset exits with 4
SAMPLED = 32  # most data files looked up by name in one judgement
DIGESTED = 16 << 20  # bytes of the largest manifest that is digested, which takes some 20 ms
_MAGIC = b"PAR1"
_LINE = re.compile(rb"[0-9a-f]{32}  (data/[^\n]+)\n")
_NOT_WHOLE = "the release is not whole"


class NothingPublishedError(FindingsError):
    """The dataset has no link `current`."""


class HeldError(FindingsError):
    """An administrator put the release or the dataset on hold, with a HOLD file (`target.notices`)."""


class ForeignError(FindingsError):
    """An untrusted account owns something that readers would rely on."""


_STATES = (
    (HeldError, HELD),
    (NothingPublishedError, NOTHING),
    (ForeignError, FOREIGN),
    (FindingsError, DAMAGED),
    (OlderVersionError, OLDER),
    (NewerFormatError, NEWER),
    (PenstockError, UNREADABLE),
)


class Published(NamedTuple):
    """A release that a job may read."""

    release: str
    data: Path
    seal: Seal
    digest: str  # `sha256:<hex>` of the seal's bytes


@dataclass
class Judgement:
    """The facts known about a release, and the first error that forbids reading it."""

    layout: DatasetLayout
    release: str = ""  # "" if `current` names no release
    error: PenstockError | None = None  # the error that `gate` and `path` raise; None: readable
    stored: seals.Stored | None = None  # the seal and its digest if readable, even with an error
    verdict: Verdict | None = None  # the result of its owner's audits
    findings: Mapping[str, int] = field(default_factory=dict)  # number of unresolved findings by kind
    named: bool = False  # whether the wanted release exists
    shaped: bool = True  # whether the dataset's folders are folders

    @property
    def state(self) -> str:
        """Return the state's name for people: PUBLISHED, or the state that `error` means."""
        if self.error is None:
            return PUBLISHED
        return next(state for kind, state in _STATES if isinstance(self.error, kind))

    @property
    def problem(self) -> str:
        """Describe the error in one line for people; "" if there is no error."""
        if self.error is None:
            return ""
        what, why = self.error.what, self.error.why
        if self.state == HELD or what in (_NOT_WHOLE, "the dataset is damaged"):
            return why
        return f"{what}: {why}" if why else what

    @property
    def data(self) -> Path:
        return self.layout.release(self.release) / DATA


def judged(
    layout: DatasetLayout,
    owners: Sequence[str] = (),
    *,
    release: str | None = None,
    within: float | None = None,
) -> Judgement:
    """Judge `release` (None: the release that `current` names). Errors are stored in the judgement and not
    raised. The release must belong to one of the accounts `owners` (`target.owners`; (): the root's owner or
    this account). With `within`, all its bytes must have been read back in the last `within` seconds
    (`release_records.read_since`)."""
    return _looked_at(_begun(layout, release), owners, within, pointed=release is None)


def glanced(layout: DatasetLayout, holds: Sequence[notices.Hold]) -> Judgement:
    """Judge the current release by `current`, its seal and its audits alone, with a file operation for each:
    for overviews of many datasets. What decides for a job is `judged`. `holds`: the lines of HOLD."""
    judgement = Judgement(layout)
    _note(judgement, lambda: not_held(layout, "", holds))
    if _note(judgement, lambda: _pointed(judgement)):
        _note(judgement, lambda: not_held(layout, judgement.release, holds))
        _note(judgement, lambda: _sealed(judgement))
        _note(judgement, lambda: _audited(judgement))
        if judgement.error is None:
            _note(judgement, lambda: _without_findings(judgement))
    return judgement


def _pointed(judgement: Judgement) -> None:
    judgement.release = _linked(judgement.layout) or ""
    judgement.named = bool(judgement.release)
    if not judgement.named:
        raise NothingPublishedError("nothing is published", where=str(judgement.layout.current))


def _begun(layout: DatasetLayout, release: str | None) -> Judgement:
    """Find the wanted release and check whether it is on hold."""
    judgement = Judgement(layout, release or "")
    _note(judgement, lambda: not_held(layout, judgement.release))
    judgement.shaped = _note(judgement, lambda: dataset_folders.check_shape(layout))
    _note(judgement, lambda: _marked(layout))
    judgement.named = _note(judgement, lambda: _named(judgement, release))
    if judgement.named:
        _note(judgement, lambda: not_held(layout, judgement.release))
    return judgement


def not_held(layout: DatasetLayout, release: str, holds: Sequence[notices.Hold] | None = None) -> None:
    """Raise HeldError if the release or the dataset is on hold, OSError if the root is unresponsive."""
    held = notices.standing_holds(layout, release, holds)
    if held is not None:
        raise HeldError(
            f"{held.name} is held" if held.dataset else "every dataset below this root is held",
            where=str(layout.root / notices.HOLD_NAME),
            why=str(held),
            hint=f"it opens at once when {held.by} removes that line from the file"
            if held.dataset
            else f"{held.by} corrects the file: readable for everybody, lines `dataset[/release] reason`",
        )


def _looked_at(
    judgement: Judgement, owners: Sequence[str], within: float | None, *, pointed: bool
) -> Judgement:
    """Run the checks that read the release. After an error, checks that need a sound seal are skipped."""
    layout = judgement.layout
    if judgement.named:
        _note(judgement, lambda: _owned(layout, judgement.release, owners, pointed=pointed))
        _note(judgement, lambda: _sealed(judgement))
        _note(judgement, lambda: _audited(judgement))
    for look in (_proven, _whole, _without_findings, partial(_read_within, within=within)):
        if judgement.error is None:
            _note(judgement, partial(look, judgement))
    return judgement


def passed(
    layout: DatasetLayout,
    *,
    within: float | None = None,
    owners: Sequence[str] = (),
    release: str | None = None,
) -> Published:
    """Judge as `judged` does, and return the release or raise the judgement's error. FindingsError: nothing
    is published, or the release is damaged or foreign. PreflightError: this account may not read it.
    OlderVersionError, NewerFormatError: another version made it. FailedError: the file system is
    unresponsive."""
    judgement = _begun(layout, release)
    # A release on hold is not read, since its servers may be unresponsive.
    if judgement.state != HELD:
        _looked_at(judgement, owners, within, pointed=release is None)
    if judgement.error is not None or judgement.stored is None:
        raise judgement.error or _broken(judgement.data.parent, "it was replaced while it was looked at")
    return Published(judgement.release, judgement.data, *judgement.stored)


def _note(judgement: Judgement, look: Callable[[], None]) -> bool:
    """Run the check `look` and return whether it passed. The judgement keeps only its first error."""
    try:
        look()
    except PenstockError as error:
        judgement.error = judgement.error or error
    except OSError as error:
        judgement.error = judgement.error or _unanswered(error, judgement.layout)
    else:
        return True
    return False


def _unanswered(error: OSError, layout: DatasetLayout) -> PenstockError:
    where = str(error.filename or layout.folder)
    if isinstance(error, small_files.NotPlainError):
        return FindingsError(
            _NOT_WHOLE,
            where=where,
            why=f"{printable(where)} is damaged: {error}",
            hint="`penstock audit` says what is damaged, and `penstock repair` fetches it",
        )
    if isinstance(error, PermissionError):
        return PreflightError(
            "the release cannot be read by this account",
            where=where,
            why=str(error.strerror),
            hint="ask the dataset's owner for the group that may read it",
        )
    if error.errno in safe_open.MISPLACED:
        return FindingsError(
            _NOT_WHOLE,
            where=where,
            why=f"{printable(where)}: {error.strerror}",
            hint="`penstock audit` says what is damaged, and `penstock repair` fetches it",
        )
    return FailedError(
        "the release cannot be looked at",
        where=where,
        why=str(error.strerror or error),
        hint="see whether the file system is mounted and answers",
    )


def _marked(layout: DatasetLayout) -> None:
    """Raise OlderVersionError or NewerFormatError if another version made the dataset's state."""
    dataset_folders.check_marker(layout)


def _named(judgement: Judgement, release: str | None) -> None:
    """Determine the wanted release and check that its path consists of folders."""
    layout = judgement.layout
    judgement.release = release or current(layout)
    folder = layout.release(judgement.release)
    try:
        modes = [path.lstat().st_mode for path in (layout.folder, layout.releases, folder)]
    except FileNotFoundError:
        nowhere = named_by_current(judgement.release)
        raise _broken(folder, nowhere if release is None else "there is no such release") from None
    if not all(map(stat.S_ISDIR, modes)):
        raise _broken(folder, "it is no folder (links are not followed below the root)")


def _owned(layout: DatasetLayout, release: str, owners: Sequence[str], *, pointed: bool) -> None:
    """Raise ForeignError if an untrusted account owns a folder above the release, the release or its seal.
    Accounts that may make folders in the root or the dataset could give readers other data. `pointed`: check
    the link `current` too."""
    trusted = access.owners_told(layout.root, owners)
    folder = layout.release(release)
    above = (layout.folder, layout.releases, *([layout.current] if pointed else []))
    for path in (*above, folder, folder / DATA, folder / SEAL):
        try:
            uid = path.lstat().st_uid
        except (FileNotFoundError, NotADirectoryError):
            continue
        if not access.is_listed(uid, trusted):
            who = access.in_words([str(uid)])
            none = "no target.owners are set, so the root's owner and this account count:"
            listed = "target.owners are" if owners else none
            raise ForeignError(
                "the release is not of an account that is trusted with it",
                where=str(path),
                why=f"it belongs to {who}; {listed} {access.in_words(trusted)}",
                hint=f"if {who} stages this dataset, {access.naming(uid)}; else tell the root's owner",
            )


def _sealed(judgement: Judgement) -> None:
    """Load the seal; raise FindingsError if it is missing, damaged, or of another dataset or release."""
    layout, folder = judgement.layout, judgement.layout.release(judgement.release)
    # PermissionError is passed on: an unreadable seal is not a missing seal.
    try:
        judgement.stored = seals.load(layout, judgement.release)
    except (FileNotFoundError, NotADirectoryError):
        raise _broken(folder, f"its seal ({SEAL}) is missing") from None
    except ValueError as error:
        raise _broken(folder, f"its seal ({SEAL}) is damaged: {error}") from None
    seal = judgement.stored.seal
    for key, wanted, stated in (
        ("dataset", layout.dataset, seal.dataset),
        ("release", judgement.release, seal.release),
    ):
        if stated != wanted:
            raise _broken(folder, f"its seal ({SEAL}) is that of another {key}, {brief(stated)}")


def _audited(judgement: Judgement) -> None:
    """Load the audits' result; raise FindingsError if it is damaged, since its findings are then unknown."""
    judgement.verdict = release_records.read_verdict(judgement.layout, judgement.release)
    judgement.findings = release_records.standing_findings(judgement.verdict)


def _proven(judgement: Judgement) -> None:
    """Raise FindingsError if the seal differs from the one that was published, audited or signed."""
    layout, release, stored = judgement.layout, judgement.release, judgement.stored
    if stored is None:
        return
    folder = layout.release(release)
    try:
        published_digest = release_records.published_seal(layout, release)
    except PermissionError:
        # Only the owner may read the state.
        published_digest = None
    if published_digest not in (None, stored.digest):
        why = f"its seal ({SEAL}) is not the one that was published ({published_digest} in the history)"
        raise _broken(folder, why)
    if judgement.verdict is not None and judgement.verdict.seal != stored.digest:
        raise _broken(folder, f"its seal ({SEAL}) is not the one of the last audit's release")
    seals.demand(layout, release, stored)


def _whole(judgement: Judgement) -> None:
    if judgement.stored is not None:
        folder = judgement.layout.release(judgement.release)
        _manifest(folder, judgement.stored.seal)
        _data(folder, judgement.stored.seal)


def _without_findings(judgement: Judgement) -> None:
    if not judgement.findings:
        return
    dataset = judgement.layout.dataset
    raise FindingsError(
        "findings stand against the release",
        where=str(judgement.data.parent),
        why=release_records.counts_text(judgement.findings),
        hint=f"{release_records.advice_on(dataset, judgement.findings)}; its owner may overrule them by "
        f"`penstock audit {dataset} --release {judgement.release} --overrule REASON`",
    )


def _read_within(judgement: Judgement, *, within: float | None) -> None:
    if within is None:
        return
    since = release_records.read_since(judgement.verdict, judgement.stored.seal) if judgement.stored else None
    # The folder of pins shows the file system's clock, and readers may touch it.
    age = None if since is None else capabilities.now(judgement.layout.pins) - since.timestamp()
    if age is not None and -capabilities.BOUND <= age <= within:
        return
    last = "never" if since is None else f"at {since:%Y-%m-%dT%H:%M:%SZ}"
    if age is not None and age < 0:
        last += ", which lies ahead of the clock here"
    raise FindingsError(
        "the release was not audited lately enough",
        where=str(judgement.data.parent),
        why=f"all of it was last read back {last}",
        hint=f"run `penstock audit {judgement.layout.dataset}`",
    )


def current(layout: DatasetLayout) -> str:
    """Return the release that `current` names; raise FindingsError if it names none."""
    release = _linked(layout)
    if release is None:
        staging = staging_notice.find(layout)
        why, hint = str(staging or ""), staging_notice.advice(layout, staging)
        if not (staging and staging.alive) and (end := staging_notice.find_end(layout)):
            last = staging_notice.described_end(layout, end)
            cause = f": {last['why']}" if "why" in last else ""
            why, hint = f"its last run {last['state']} at {last['at']}{cause}", last["to_do"]
        raise NothingPublishedError("nothing is published", where=str(layout.current), why=why, hint=hint)
    return release


def _linked(layout: DatasetLayout) -> str | None:
    """Return the release that `current` leads to, None before the first; raise FindingsError if it is no link
    to a release."""
    try:
        return dataset_folders.current(layout)
    except FailedError as error:
        raise FindingsError(error.what, where=error.where, why=error.why, hint=error.hint) from None


def _manifest(folder: Path, seal: Seal) -> None:
    path = folder / MANIFEST
    sealed = seal.manifests[MANIFEST]
    try:
        with small_files.opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(len(_MAGIC))
            file.seek(max(0, size - len(_MAGIC)))
            tail = file.read()
    except FileNotFoundError:
        raise _broken(folder, f"{MANIFEST} is missing") from None
    except small_files.NotPlainError as error:
        raise _broken(folder, f"{MANIFEST} is damaged: {error}") from None
    if size != sealed.bytes:
        raise _broken(folder, f"{MANIFEST} has {size} bytes, {sealed.bytes} were sealed")
    if (head, tail) != (_MAGIC, _MAGIC):
        raise _broken(folder, f"{MANIFEST} is cut off or overwritten")
    if size <= DIGESTED and receipts.file_digest(path) != sealed.sha256:
        raise _broken(folder, f"{MANIFEST} is not the one that was sealed")


def _data(folder: Path, seal: Seal) -> None:
    data = folder / DATA
    try:
        if not stat.S_ISDIR(data.lstat().st_mode):
            raise _broken(folder, f"{DATA} is no folder")
    except FileNotFoundError:
        raise _broken(folder, f"its {DATA} folder is missing") from None
    if not seal.files:
        return
    named = 0
    for path in _sampled(folder / MANIFEST_XXH) if MANIFEST_XXH in seal.manifests else _listed(folder):
        named += 1
        try:
            status = os.lstat(os.path.join(os.fsencode(folder), path))
        except (FileNotFoundError, NotADirectoryError):
            raise _broken(folder, f"{printable(os.fsdecode(path))} is missing") from None
        if not stat.S_ISREG(status.st_mode):
            raise _broken(folder, f"{printable(os.fsdecode(path))} is no file")
    # A release that has only giant files may have no line in the checksum file.
    if not named and not any(files for _, _, files in os.walk(data)):
        raise _broken(folder, f"its {DATA} folder holds no file")


def _sampled(sums: Path) -> Iterator[bytes]:
    """Yield up to `SAMPLED` names spread over a checksum file. Unreadable lines are skipped here, since
    audits compare the checksum file itself."""
    try:
        with small_files.opened(sums) as file:
            size = os.fstat(file.fileno()).st_size
            for number in range(SAMPLED):
                at = size * number // SAMPLED
                file.seek(at)
                if at:
                    file.readline(small_files.LINE)
                match = _LINE.fullmatch(file.readline(small_files.LINE))
                if match is not None:
                    yield match[1]
    except (FileNotFoundError, small_files.NotPlainError):
        return


def _listed(folder: Path) -> Iterator[bytes]:
    """Yield names as `_sampled` does, but from the manifest, for a release without a checksum file."""
    from penstock.tables.manifest import some_paths  # the import takes 50 ms, which most releases save

    try:
        for path in some_paths(folder / MANIFEST, SAMPLED):
            yield os.fsencode(f"{DATA}/{path}")
    except FailedError as error:
        raise _broken(folder, f"{MANIFEST} cannot be read: {error.why}") from None


def _broken(folder: Path, why: str) -> FindingsError:
    return FindingsError(
        _NOT_WHOLE,
        where=str(folder),
        why=why,
        hint=f"`penstock audit {folder.parent.parent.name}` says what else is damaged; `penstock run "
        f"--new-release {folder.parent.parent.name}` stages the same content anew, and leaves this as it is",
    )
