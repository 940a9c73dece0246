"""Whether the evidence that the configuration requires can be reached here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.source_kinds import of_url
from penstock.core.errors import PreflightError
from penstock.core.events import CheckResult
from penstock.listing.evidence import beyond

if TYPE_CHECKING:
    from penstock.config.settings import DatasetConfig
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.doctor.preflight.mount_answers import Answers
    from penstock.doctor.preflight.results import Looks


def check(
    context: Context, config: DatasetConfig, layout: DatasetLayout, answers: Answers, looks: Looks
) -> None:
    """Raise PreflightError for required proofs that are impossible here."""
    verify = context.config.verify
    silent = [source.url for source in config.sources if not of_url(source.url).states_checksums]
    if verify.source_checksum == "require" and silent and not config.checksums:
        raise PreflightError(
            "this source never states a checksum, and one is required of every file",
            where=", ".join(silent),
            hint=f"name checksum files beside the data in `datasets.{config.name}.checksums`, or set "
            "`verify.source_checksum: auto`",
        )
    if not answers.silent(layout.root):
        check_grade(context, answers.facts(layout.root, "the target").kind)
    asked = []
    if verify.source_checksum == "require":
        asked.append("a checksum of the source for each file")
    if verify.minimum_grade != "auto":
        asked.append(f"the grade {verify.minimum_grade}")
    if asked:
        looks.saw(CheckResult("evidence", f"nothing rules out what is required: {', '.join(asked)}"))


def check_grade(context: Context, kind: str, where: str = "") -> None:
    """Raise PreflightError where a target of this kind cannot reach `verify.minimum_grade`. `where` begins
    the message for a node's view: `on the node n1, `."""
    verify = context.config.verify
    why = beyond(verify, kind=kind, alone=not context.cluster.abilities.has_nodes)
    if why:
        raise PreflightError(
            f"{where}the grade {verify.minimum_grade} cannot be reached",
            where="verify.minimum_grade",
            why=why,
            hint="lower it, or change what keeps files from it",
        )
