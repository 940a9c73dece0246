"""describe: a release as Croissant, a format that catalogues read, made from its seal and manifest."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from penstock.config.settings import DescribeConfig
from penstock.core.errors import FindingsError, PreflightError
from penstock.core.layout import MANIFEST, SEAL
from penstock.dataset import receipts, seals
from penstock.dataset.release_choice import check_stands, released
from penstock.extras import croissant
from penstock.extras.published_release import PublishedRelease
from penstock.fs.errno_map import storage_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.dataset.context import Context


class Described(NamedTuple):
    """The description of one release."""

    release: str
    pieces: Iterator[str]  # the document's text, made while it is read
    left_out: Sequence[str]  # keys of the dataset's description that Croissant requires and that are missing


def run(context: Context, dataset: str, release: str | None) -> Described:
    """Describe a release. Raises ConfigError if it does not exist, FindingsError if its manifest is not the
    sealed one, PreflightError if this account may not read it."""
    layout = context.layout(dataset)
    release = released(context, layout, release, "describe")
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
        check_stands(layout, release, "describe")
        raise storage_error(error, "the release cannot be described", str(folder)) from error
    words = context.dataset(dataset).describe or DescribeConfig()
    described = PublishedRelease(folder, stored, words)
    return Described(release, croissant.pieces(described), croissant.left_out(words, stored.seal))
