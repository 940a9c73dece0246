"""sign: adds a signature to a release that was published without one.

Nothing is signed that is not as it was published: the seal must be the one in the history, manifests and
records those of the seal. Only the data is not read, which an audit does.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypedDict

from penstock.core.dataset_documents import Signing
from penstock.core.errors import ConfigError, FindingsError
from penstock.dataset import history, seals
from penstock.dataset.release_choice import released
from penstock.jobs.dataset_hold import holding
from penstock.keep.audit import audit_plan
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context

STEP = "sign"


class Signed(TypedDict):
    """What the command did with one release."""

    dataset: str
    release: str
    signed: bool  # False: a valid signature existed


def run(context: Context, dataset: str, release: str | None) -> Signed:
    """Sign a release. Raises ConfigError without `target.sign_with` or such a release, FindingsError if it is
    not as published, PreflightError for a key that cannot sign, LockedError."""
    layout = context.layout(dataset)
    key = _key(layout)
    dataset_folders.check_owner(layout)
    release = released(context, layout, release, STEP)
    with holding(context, dataset, "", STEP):
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
            author=history.this_author(),
            seal=stored.digest,
        )
        history.append(layout, line)
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
