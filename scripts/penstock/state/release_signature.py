"""The signature over a release's seal, `release.json.sig` beside it, and whether it and the history hold.

Signed are the bytes of `release.json`, so that `ssh-keygen -Y verify` alone can verify it. The seal has the
digests of the manifests, and these of each file: one signature covers the release.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.layout import SEAL, SIGNATURE
from penstock.errors import FindingsError
from penstock.filesystem import plain_files
from penstock.signing import ssh_keygen
from penstock.state import history, seals, signed_history
from penstock.storage import durable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.core.layout import DatasetLayout, Signing
    from penstock.state.seals import Stored
    from penstock.storage.port import Storage

MISSING = "it is missing"
LATE, TRIES = 0.2, 5
"""Seconds between looks, and how many: `current` leads to a release right before the history names it."""


class Problem(NamedTuple):
    """What does not hold."""

    name: str
    """Of the file."""
    why: str


def write(staging: Path, signing: Signing) -> None:
    """Sign the seal of a staging, durably, where this account signs; else no signature of an earlier attempt
    stays. Raises OSError, PreflightError."""
    if signing.key is None:
        (staging / SIGNATURE).unlink(missing_ok=True)
    else:
        durable.write_file(staging / SIGNATURE, made(signing.key, signing.signers, staging))


def made(key: Path, signers: Path | None, folder: Path) -> bytes:
    """The signature of the seal in this folder. Raises OSError, ValueError, PreflightError."""
    stored = seals.in_folder(folder)
    content = plain_files.read(folder / SEAL)
    return ssh_keygen.sign_verified(key, signers, ssh_keygen.RELEASE, content, stored.seal.sealed)


def put(storage: Storage, layout: DatasetLayout, release: str, signature: bytes) -> None:
    """Write the signature beside the seal of a published release. Raises FailedError."""
    storage.put_beside(layout, release, SIGNATURE, lambda path: durable.write_file(path, signature))


def problems(layout: DatasetLayout, release: str, stored: Stored) -> list[Problem]:
    """What does not hold of the release's signature and of the history; empty where all does, and without
    `target.signers`. Raises PreflightError where it cannot be verified, OSError, NewerFormatError."""
    if layout.signing.signers is None:
        return []
    found = [Problem(layout.history.name, why) for why in signed_history.problems(layout)]
    found += seal_problems(layout, release, stored)
    if not found and layout.signing.of_owner and not _is_named(layout, release, stored.digest):
        found.append(Problem(layout.history.name, _not_named(release)))
    return found


def seal_problems(layout: DatasetLayout, release: str, stored: Stored) -> list[Problem]:
    """The same of the seal's signature alone."""
    if layout.signing.signers is None:
        return []
    why = _unsigned(layout.signing.signers, layout.release(release), stored)
    return [Problem(SIGNATURE, why)] if why else []


def demand(layout: DatasetLayout, release: str, stored: Stored) -> None:
    """Raises FindingsError for `problems`."""
    for _ in range(TRIES):
        found = problems(layout, release, stored)
        if not found:
            return
        if [one.why for one in found] != [_not_named(release)]:
            break
        time.sleep(LATE)
    raise refusal(layout, release, found)


def refusal(layout: DatasetLayout, release: str, found: Sequence[Problem]) -> FindingsError:
    """The error for what `problems` found."""
    return FindingsError(
        "the release is not signed as `target.signers` asks",
        where=str(layout.release(release)),
        why="; ".join(f"{one.name}: {one.why}" for one in found),
        hint=_advice(layout, release, found),
    )


def _advice(layout: DatasetLayout, release: str, found: Sequence[Problem]) -> str:
    """
    | what does not hold                  | what to do                                          |
    |-------------------------------------|-----------------------------------------------------|
    | nothing of it is signed             | sign it, if it is of before                         |
    | the history does not name it        | go on with a publication that was killed            |
    | the history, perhaps the seal, too  | find out who; put back what was, or accept it       |
    | the seal alone                      | find out who; stage the same content anew           |
    """
    dataset, who = layout.dataset, "find out who wrote there"
    history_name = layout.history.name
    unsigned = {(SIGNATURE, MISSING), (history_name, signed_history.unsigned(layout))}
    if (SIGNATURE, MISSING) in found and unsigned.issuperset(found):
        sign = f"`penstock sign {dataset} {release}`"
        return f"if it was published before releases were signed, its owner signs it by {sign}; else {who}"
    if [one.why for one in found] == [_not_named(release)]:
        return f"where a publication was killed, `penstock run {dataset}` goes on with it; else {who}"
    if any(one.name == history_name for one in found):
        accept = f"`penstock sign {dataset} --accept REASON`"
        return f"{who}, and put back what was; {accept} signs the history as it stands"
    anew = f"`penstock run --new-release {dataset}`"
    return f"{who}; {anew} stages the same content anew, and trusts nothing here"


def _not_named(release: str) -> str:
    return f"it does not name release {release} with this seal"


def _unsigned(signers: Path, folder: Path, stored: Stored) -> str:
    """Why the signature does not hold; "" where it does."""
    try:
        signature = plain_files.read(folder / SIGNATURE)
    except FileNotFoundError:
        return MISSING
    except ValueError as error:
        return str(error)
    seal = plain_files.read(folder / SEAL)
    if f"sha256:{hashlib.sha256(seal).hexdigest()}" != stored.digest:
        return f"{SEAL} was replaced while it was looked at"
    try:
        ssh_keygen.signer(signers, ssh_keygen.RELEASE, seal, signature, stored.seal.sealed)
    except ssh_keygen.SignatureError as error:
        return str(error)
    return ""


def _is_named(layout: DatasetLayout, release: str, digest: str) -> bool:
    try:
        return history.published_seal(layout, release) == digest
    except PermissionError:
        # The state is its owner's alone.
        return True
