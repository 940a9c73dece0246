"""The key that signs releases, tried before anything is copied."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.core.events import CheckResult
from penstock.host import ssh_keygen

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout
    from penstock.doctor.preflight.results import Looks

PROBE = b"penstock preflight\n"


def check(layout: DatasetLayout, looks: Looks) -> None:
    """Try the key, where signatures are configured. Raises PreflightError.

    | `sign_with` | the key                                    | verdict |
    |-------------|--------------------------------------------|---------|
    | no          |                                            | a note  |
    | yes         | cannot sign, or by none of `signers`       | stop    |
    | yes         | signs                                      | ok      |
    """
    signing = layout.signing
    if signing.signers is None:
        return
    ssh_keygen.check_signers(signing.signers)
    if signing.key is None:
        state = "what is published is not signed here, and readers who verify refuse it until it is"
        mend = f"set target.sign_with, or have `penstock sign {layout.dataset}` run after publish"
        looks.saw(CheckResult("signing key", state, "note", mend=mend))
        return
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ssh_keygen.sign_verified(signing.key, signing.signers, PROBE, at)
    looks.saw(CheckResult("signing key", f"{signing.key} signs, and {signing.signers} has it"))
