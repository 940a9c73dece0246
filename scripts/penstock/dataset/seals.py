"""Reads the seals of a dataset's releases: the only reader of `release.json`. Also makes and verifies the
signature over a seal, `release.json.sig` beside it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.errors import FailedError, FindingsError
from penstock.core.layout import SEAL, SIGNATURE
from penstock.core.seal import RELEASE_SEAL
from penstock.fs import small_files
from penstock.host import ssh_keygen
from penstock.target import reveal

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.layout import DatasetLayout, SigningKeys
    from penstock.core.seal import Seal
    from penstock.dataset.documents import Run


class Stored(NamedTuple):
    """A seal and the digest of its bytes."""

    seal: Seal
    digest: str  # `sha256:<hex>`, as the dataset's history names the seal


def load(layout: DatasetLayout, release: str) -> Stored:
    """Read the seal of a release. Raises OSError, ValueError if it is damaged, NewerFormatError."""
    return in_folder(layout.release(release))


def in_folder(folder: Path) -> Stored:
    """Read the seal in a release's or staging's folder. Raises as `load`."""
    path = folder / SEAL
    return of_content(small_files.read(path), path)


def of_content(content: bytes, path: Path) -> Stored:
    """Parse `content`, read from the seal at `path`. Raises ValueError, NewerFormatError."""
    return Stored(RELEASE_SEAL.from_json(content, path), f"sha256:{hashlib.sha256(content).hexdigest()}")


def find(layout: DatasetLayout, release: str) -> Stored | None:
    """Read the seal of a release; None if it is missing or damaged. Raises FailedError if it cannot be read,
    NewerFormatError."""
    try:
        return load(layout, release)
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        where = str(layout.release(release) / SEAL)
        raise FailedError(
            "a release's seal cannot be read",
            where=where,
            why=str(error),
            hint="`penstock audit` says what is damaged; `penstock rollback` makes another release current",
        ) from error


def of_run(run: Run) -> Stored | None:
    """Read the seal of the run's published release; None if this run did not publish it. Raises as `find`."""
    stored = find(run.layout, run.release)
    return stored if stored is not None and stored.seal.run == run.id else None


# The signature `release.json.sig` over a release's seal (`release.json`: counts and digests).
#
# The bytes of `release.json` are signed, so `ssh-keygen -Y verify` can verify the signature. The seal has the
# manifests' digests, and the manifests have each file's digest. So one signature covers the release.

MISSING = "it is missing"  # result of `problem` without a signature


def write(staging: Path, signing: SigningKeys) -> None:
    """Sign the seal of a staging, durably. Without a key, remove the signature of an earlier attempt. Raises
    OSError, PreflightError."""
    if signing.key is None:
        (staging / SIGNATURE).unlink(missing_ok=True)
    else:
        small_files.write_file(staging / SIGNATURE, made(signing.key, signing.signers, staging))


def made(key: Path, signers: Path | None, folder: Path) -> bytes:
    """Sign the seal in this folder. Raises OSError, ValueError, PreflightError."""
    stored = in_folder(folder)
    content = small_files.read(folder / SEAL)
    return ssh_keygen.sign_verified(key, signers, content, stored.seal.sealed)


def put(layout: DatasetLayout, release: str, signature: bytes) -> None:
    """Write the signature beside the seal of a published release. Raises FailedError."""
    reveal.put_beside(layout, release, SIGNATURE, lambda path: small_files.write_file(path, signature))


def problem(layout: DatasetLayout, release: str, stored: Stored) -> str:
    """Say why the signature is not valid; "" if it is, or without `target.signers`. Raises PreflightError if
    it cannot be verified, OSError."""
    signers = layout.signing.signers
    return _unsigned(signers, layout.release(release), stored) if signers is not None else ""


def demand(layout: DatasetLayout, release: str, stored: Stored) -> None:
    """Raise FindingsError if the signature has a `problem`.

    | the problem            | what to do                                      |
    |------------------------|-------------------------------------------------|
    | it is missing          | sign it, if the release is older than the keys  |
    | any other              | find out who did it; stage the content anew     |
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
