"""Additions to a published release: a signature, and a description as Croissant (a format that catalogues
read). The description is made from seal and manifest alone.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from penstock.config.settings import DescribeConfig
from penstock.core.dataset_documents import Signing
from penstock.core.errors import ConfigError, FindingsError, PreflightError
from penstock.core.layout import MANIFEST, SEAL
from penstock.dataset import receipts, release_records, seals
from penstock.dataset.pins import check_release_stands, choose_release
from penstock.extras import croissant
from penstock.extras.croissant import PublishedRelease
from penstock.fs.safe_open import storage_error
from penstock.jobs.dataset_state import holding
from penstock.keep import audit_plan
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context


class Described(NamedTuple):
    """The description of one release."""

    release: str
    pieces: Iterator[str]  # pieces of the document's text, made during iteration
    left_out: Sequence[str]  # keys that Croissant requires but the dataset's description lacks


def describe(context: Context, dataset: str, release: str | None) -> Described:
    """Describe a release. Raises ConfigError if it does not exist, FindingsError if its manifest does not
    match the seal, PreflightError if this account may not read it."""
    layout = context.layout(dataset)
    release = choose_release(context, layout, release, "describe")
    folder = layout.release(release)
    try:
        stored = seals.in_folder(folder)
        sealed = stored.seal.manifests.get(MANIFEST)
        if not receipts.is_sealed(folder / MANIFEST, sealed):
            raise FindingsError(
                "the manifest is not the one that was sealed: nothing is described by it",
                where=str(folder / MANIFEST),
                hint=f"run `penstock audit {dataset}`: it says what else is damaged",
            )
    except ValueError as error:
        raise FindingsError(
            "the release's seal is damaged",
            where=str(folder / SEAL),
            why=str(error),
            hint="`penstock rollback` makes a whole release current",
        ) from None
    except FileNotFoundError as error:
        raise FindingsError(
            "the release is not whole",
            where=str(folder),
            why=f"{os.path.basename(error.filename or SEAL)} is missing",
            hint=f"run `penstock audit {dataset}`: it says what else is damaged",
        ) from None
    except PermissionError as error:
        raise PreflightError(
            "the release cannot be read by this account",
            where=str(folder),
            why=str(error.strerror),
            hint="ask the dataset's owner for the group that may read it",
        ) from None
    except OSError as error:
        check_release_stands(layout, release, "describe")
        raise storage_error(error, "the release cannot be described", str(folder)) from error
    words = context.dataset(dataset).describe or DescribeConfig()
    described = PublishedRelease(folder, stored, words)
    return Described(release, croissant.pieces(described), croissant.left_out(words, stored.seal))


# sign: adds a signature to a release that was published without one.
#
# Only a release that is as published is signed: the history must have the seal's digest, and manifests and
# records must match the seal. The data itself is not read; audits do that.

SIGN = "sign"


class Signed(TypedDict):
    """The result of the command for one release."""

    dataset: str
    release: str
    signed: bool  # whether the release was signed by this call; False if a valid signature existed already


def sign(context: Context, dataset: str, release: str | None) -> Signed:
    """Sign a release. Raises ConfigError if `target.sign_with` or the release is missing, FindingsError if it
    is not as published, PreflightError for a key that cannot sign, LockedError."""
    layout = context.layout(dataset)
    key = _key(layout)
    dataset_folders.check_owner(layout)
    release = choose_release(context, layout, release, SIGN)
    with holding(context, dataset, "", SIGN):
        stored = audit_plan.read_seal(layout, release)
        if not seals.problem(layout, release, stored):
            return {"dataset": dataset, "release": release, "signed": False}
        unsigned = layout.without_signing()
        if damaged := audit_plan.unsound(unsigned, release, *stored):
            raise FindingsError(
                "the release is not as it was published: it is not signed",
                where=str(layout.release(release)),
                why="; ".join(damaged),
                hint="stage the same content as a new release: "
                f"`{context.program} run --new-release {dataset}`",
            )
        made = seals.made(key, layout.signing.signers, layout.release(release))
        line = Signing(
            at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            dataset=dataset,
            release=release,
            claim=context.hold.number if context.hold else 0,
            author=release_records.this_author(),
            seal=stored.digest,
        )
        release_records.append_history(layout, line)
        context.assert_held()
        seals.put(layout, release, made)
    return {"dataset": dataset, "release": release, "signed": True}


def _key(layout: DatasetLayout) -> Path:
    if layout.signing.key is None:
        raise ConfigError(
            "no key is configured that signs",
            where="target.sign_with",
            hint="give the path of an OpenSSH key, and in `target.signers` the file of those who may sign",
        )
    return layout.signing.key
