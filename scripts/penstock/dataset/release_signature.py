"""The signature `release.json.sig` over a release's seal (`release.json`: counts and digests).

The bytes of `release.json` are signed, so `ssh-keygen -Y verify` can verify it. The seal has the manifests'
digests, and these have each file's: one signature covers the release.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from penstock.core.errors import FindingsError
from penstock.core.layout import SEAL, SIGNATURE
from penstock.dataset import seals
from penstock.fs import small_files
from penstock.host import ssh_keygen
from penstock.target import published_folder

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.layout import DatasetLayout, SigningKeys
    from penstock.dataset.seals import Stored

MISSING = "it is missing"  # what `problem` says without a signature


def write(staging: Path, signing: SigningKeys) -> None:
    """Sign the seal of a staging, durably; without a key, remove the signature of an earlier attempt. Raises
    OSError, PreflightError."""
    if signing.key is None:
        (staging / SIGNATURE).unlink(missing_ok=True)
    else:
        small_files.write_file(staging / SIGNATURE, made(signing.key, signing.signers, staging))


def made(key: Path, signers: Path | None, folder: Path) -> bytes:
    """Sign the seal in this folder. Raises OSError, ValueError, PreflightError."""
    stored = seals.in_folder(folder)
    content = small_files.read(folder / SEAL)
    return ssh_keygen.sign_verified(key, signers, content, stored.seal.sealed)


def put(layout: DatasetLayout, release: str, signature: bytes) -> None:
    """Write the signature beside the seal of a published release. Raises FailedError."""
    published_folder.put_beside(
        layout, release, SIGNATURE, lambda path: small_files.write_file(path, signature)
    )


def problem(layout: DatasetLayout, release: str, stored: Stored) -> str:
    """Say why the signature does not hold; "" if it does, or without `target.signers`. Raises PreflightError
    if it cannot be verified, OSError."""
    signers = layout.signing.signers
    return _unsigned(signers, layout.release(release), stored) if signers is not None else ""


def demand(layout: DatasetLayout, release: str, stored: Stored) -> None:
    """Raise FindingsError for a `problem`.

    | what does not hold     | what to do                                      |
    |------------------------|-------------------------------------------------|
    | it is missing          | sign it, if the release is of before            |
    | anything else          | find out who; stage the same content anew       |
    """
    why = problem(layout, release, stored)
    if not why:
        return
    dataset, who = layout.dataset, "find out who wrote there"
    hint = (
        f"{who}; `penstock run --new-release {dataset}` stages the same content anew, and trusts nothing here"
    )
    if why == MISSING:
        sign = f"`penstock sign {dataset} {release}`"
        hint = f"if it was published before releases were signed, its owner signs it by {sign}; else {who}"
    raise FindingsError(
        "the release is not signed as `target.signers` asks",
        where=str(layout.release(release)),
        why=f"{SIGNATURE}: {why}",
        hint=hint,
    )


def _unsigned(signers: Path, folder: Path, stored: Stored) -> str:
    try:
        signature = small_files.read(folder / SIGNATURE)
    except FileNotFoundError:
        return MISSING
    except ValueError as error:
        return str(error)
    seal = small_files.read(folder / SEAL)
    if f"sha256:{hashlib.sha256(seal).hexdigest()}" != stored.digest:
        return f"{SEAL} was replaced while it was looked at"
    try:
        ssh_keygen.verified_signer(signers, seal, signature, stored.seal.sealed)
    except ssh_keygen.SignatureError as error:
        return str(error)
    return ""
