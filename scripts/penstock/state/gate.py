"""The release that a job may read now, and the checks that `gate` and `path` make before they name it.

Jobs wait for the answer, so its cost does not depend on the size of the release: a few small files are read,
and at most `SAMPLED` names of data are looked up. The bytes of the data are checked by audits alone.

| looked at                                             | where it deviates                         |
|-------------------------------------------------------|-------------------------------------------|
| the owner of folder, release and seal: one that is    | the release is not of such an account     |
| trusted (`target.owners`)                             |                                           |
| `current`: a link into releases/                      | nothing is published, or it leads nowhere |
| the seal: JSON, of this dataset and release           | the release is not whole                  |
| its digest, in history.jsonl where this account reads | it is not the seal that was published     |
| that                                                  |                                           |
| where `target.signers` is configured: the signature   | the release is not signed                 |
| over the seal, and that over the history              |                                           |
| manifest.parquet: size, both ends; all of it up to    | the release is not whole                  |
| `DIGESTED` bytes                                      |                                           |
| `SAMPLED` files that the manifest names are there     | the release is not whole                  |
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.documents.seal import SealedManifest
from penstock.core.layout import DATA, MANIFEST, MANIFEST_XXH, SEAL
from penstock.errors import FailedError, FindingsError, PreflightError
from penstock.filesystem import clock, plain_files
from penstock.filesystem.errno_map import printable
from penstock.policy import accounts
from penstock.state import auditor_verdicts, history, receipts, release_signature, seals, verdicts
from penstock.storage.registry import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from penstock.core.documents.seal import Seal
    from penstock.core.layout import DatasetLayout

SAMPLED = 32
DIGESTED = 16 << 20
"""Bytes of a manifest up to which its digest is computed: some 20 ms."""
_MAGIC = b"PAR1"
_LINE = re.compile(rb"[0-9a-f]{32}  (data/[^\n]+)\n")


class Published(NamedTuple):
    """A release that was looked at: of `published` and `passed` the one that `current` names."""

    release: str
    data: Path
    seal: Seal
    digest: str
    """`sha256:<hex>` of the seal's bytes."""


def published(layout: DatasetLayout, owners: Sequence[str] = ()) -> Published:
    """The current release, of one of these accounts (`target.owners`; (): the root's owner or this one).
    Raises FindingsError when nothing is published or what is there is not whole, PreflightError when this
    account may not read it, NewerFormatError."""
    return looked_at(layout, current(layout), owners)


def looked_at(layout: DatasetLayout, release: str, owners: Sequence[str] = ()) -> Published:
    """This release, whether `current` names it or not. Raises as `published`."""
    folder = layout.release(release)
    try:
        _owned(layout, release, owners)
        seal, digest = _seal(layout, release)
        _manifest(folder, seal)
        _data(folder, seal)
    except PermissionError as error:
        raise PreflightError(
            "the release cannot be read by this account",
            where=str(error.filename or folder),
            why=str(error.strerror),
            hint="ask the dataset's owner for the group that may read it",
        ) from None
    except OSError as error:
        raise FailedError(
            "the release cannot be looked at",
            where=str(error.filename or folder),
            why=str(error.strerror or error),
            hint="see whether the file system is mounted and answers",
        ) from None
    return Published(release, folder / DATA, seal, digest)


def passed(
    layout: DatasetLayout,
    *,
    within: float | None = None,
    owners: Sequence[str] = (),
    auditors: Sequence[str] = (),
) -> Published:
    """The current release, when no findings stand against it and, with `within` (seconds), all of it was
    read back since then (`verdicts.read_since`), by its owner's audits and by those of `auditors`
    (`target.auditors`). Raises as `published`; FindingsError for these, too."""
    return without_findings(layout, published(layout, owners), within=within, auditors=auditors)


def without_findings(
    layout: DatasetLayout, found: Published, *, within: float | None = None, auditors: Sequence[str] = ()
) -> Published:
    """What `passed` demands beyond `published`, of a release that was looked at. Raises as `passed`."""
    verdict = verdicts.read(layout, found.release)
    if verdict is not None and verdict.seal != found.digest:
        raise _broken(found.data.parent, f"its seal ({SEAL}) is not the one of the last audit's release")
    own = verdict
    verdict = auditor_verdicts.joined(layout, found.release, own, found.digest, auditors)
    counts = verdicts.standing(verdict)
    if counts:
        theirs = auditor_verdicts.told(
            auditor_verdicts.read(layout, found.release, found.digest, auditors), own
        )
        # A repair goes by the owner's audits: what an auditor alone found it would not know.
        one = f"`penstock audit {layout.dataset} --release {found.release}"
        first = f"{one}` by its owner sees it, too; then " if theirs else ""
        raise FindingsError(
            "findings stand against the release",
            where=str(found.data.parent),
            why="; ".join(filter(None, (verdicts.told(counts), theirs))),
            hint=f"{first}{verdicts.advice(layout.dataset, counts)}; its owner may overrule them by "
            f"{one} --overrule REASON`",
        )
    if within is not None:
        _read_within(layout, found, verdicts.read_since(verdict, found.seal), within)
    return found


def _owned(layout: DatasetLayout, release: str, owners: Sequence[str]) -> None:
    """Raises FindingsError where the folder, the release or its seal is of an account that is not trusted:
    who may make a folder in the root, or in the dataset's, could show readers anything."""
    trusted = accounts.owners_told(layout.root, owners)
    folder = layout.release(release)
    for path in (layout.folder, layout.releases, layout.current, folder, folder / DATA, folder / SEAL):
        try:
            uid = path.lstat().st_uid
        except (FileNotFoundError, NotADirectoryError):
            continue
        if not accounts.is_listed(uid, trusted):
            who = accounts.told([str(uid)])
            raise FindingsError(
                "the release is not of an account that is trusted with it",
                where=str(path),
                why=f"it belongs to {who}; target.owners are {accounts.told(trusted)}",
                hint=f"if {who} stages this dataset, name it in `target.owners`; else tell the root's owner",
            )


def _read_within(layout: DatasetLayout, found: Published, since: datetime | None, within: float) -> None:
    # The folder of pins is the one that readers may touch, for the file system's clock.
    age = None if since is None else clock.now(layout.pins) - since.timestamp()
    if age is not None and -clock.BOUND <= age <= within:
        return
    last = "never" if since is None else f"at {since:%Y-%m-%dT%H:%M:%SZ}"
    if age is not None and age < 0:
        last += ", which lies ahead of the clock here"
    raise FindingsError(
        "the release was not audited lately enough",
        where=str(found.data.parent),
        why=f"all of it was last read back {last}",
        hint=f"run `penstock audit {layout.dataset}`",
    )


def current(layout: DatasetLayout) -> str:
    """The release that `current` names. Raises FindingsError when there is none."""
    try:
        release = open_storage().current(layout)
    except FailedError as error:
        raise FindingsError(
            "the pointer names no release", where=error.where, why=error.why, hint=error.hint
        ) from None
    if release is None:
        raise FindingsError(
            "nothing is published", where=str(layout.current), hint=f"run `penstock run {layout.dataset}`"
        )
    return release


def _seal(layout: DatasetLayout, release: str) -> seals.Stored:
    # What this account may not read is not said to be missing: PermissionError passes.
    try:
        stored = seals.load(layout, release)
    except (FileNotFoundError, NotADirectoryError):
        raise _broken(layout.release(release), f"its seal ({SEAL}) is missing") from None
    except ValueError as error:
        raise _broken(layout.release(release), f"its seal ({SEAL}) is damaged: {error}") from None
    seal, digest = stored
    for key, wanted, told in (
        ("dataset", layout.dataset, seal.dataset),
        ("release", release, seal.release),
    ):
        if told != wanted:
            why = f"its seal ({SEAL}) is that of another {key}, {printable(told)}"
            raise _broken(layout.release(release), why)
    try:
        known = history.published_seal(layout, release)
    except PermissionError:
        # The state is its owner's alone.
        known = None
    if known not in (None, digest):
        why = f"its seal ({SEAL}) is not the one that was published ({known} in the history)"
        raise _broken(layout.release(release), why)
    release_signature.demand(layout, release, stored)
    return stored


def _manifest(folder: Path, seal: Seal) -> None:
    path = folder / MANIFEST
    told = seal.manifests.get(MANIFEST, SealedManifest())
    try:
        with plain_files.opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(len(_MAGIC))
            file.seek(max(0, size - len(_MAGIC)))
            tail = file.read()
    except FileNotFoundError:
        raise _broken(folder, f"{MANIFEST} is missing") from None
    except plain_files.NotPlainError as error:
        raise _broken(folder, f"{MANIFEST} is damaged: {error}") from None
    if told.bytes is not None and size != told.bytes:
        raise _broken(folder, f"{MANIFEST} has {size} bytes, {told.bytes} were sealed")
    if (head, tail) != (_MAGIC, _MAGIC):
        raise _broken(folder, f"{MANIFEST} is cut off or overwritten")
    if size <= DIGESTED and receipts.file_digest(path) != told.sha256:
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
            found = os.lstat(os.path.join(os.fsencode(folder), path))
        except (FileNotFoundError, NotADirectoryError):
            raise _broken(folder, f"{printable(os.fsdecode(path))} is missing") from None
        if not stat.S_ISREG(found.st_mode):
            raise _broken(folder, f"{printable(os.fsdecode(path))} is no file")
    # A release of giants alone may have no line there.
    if not named and not any(files for _, _, files in os.walk(data)):
        raise _broken(folder, f"its {DATA} folder holds no file")


def _sampled(sums: Path) -> Iterator[bytes]:
    """Some names out of a checksum file, from all over it; none where it names none. What damage of the
    checksum file itself leaves unreadable is passed over: an audit compares it."""
    try:
        with plain_files.opened(sums) as file:
            size = os.fstat(file.fileno()).st_size
            for number in range(SAMPLED):
                at = size * number // SAMPLED
                file.seek(at)
                if at:
                    file.readline(plain_files.LINE)
                match = _LINE.fullmatch(file.readline(plain_files.LINE))
                if match is not None:
                    yield match[1]
    except (FileNotFoundError, plain_files.NotPlainError):
        return


def _listed(folder: Path) -> Iterator[bytes]:
    """As `_sampled`, out of the manifest: of a release without a checksum file."""
    from penstock.formats.manifest import some_paths  # 50 ms that most releases need not

    try:
        for path in some_paths(folder / MANIFEST, SAMPLED):
            yield os.fsencode(f"{DATA}/{path}")
    except FailedError as error:
        raise _broken(folder, f"{MANIFEST} cannot be read: {error.why}") from None


def _broken(folder: Path, why: str) -> FindingsError:
    return FindingsError(
        "the release is not whole",
        where=str(folder),
        why=why,
        hint="`penstock audit` says what else is damaged",
    )
