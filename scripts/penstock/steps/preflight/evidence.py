"""The evidence that the configuration asks for: whether it can be reached here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.checks import CheckResult
from penstock.errors import PreflightError
from penstock.filesystem.capabilities import facts
from penstock.release.evidence import beyond
from penstock.sources.registry import states_checksums

if TYPE_CHECKING:
    from penstock.config.settings import DatasetConfig
    from penstock.core.layout import DatasetLayout
    from penstock.state.context import Context
    from penstock.steps.preflight.looks import Looks


def check(context: Context, config: DatasetConfig, layout: DatasetLayout, looks: Looks) -> None:
    """Raises PreflightError for proofs that the configuration requires and that are impossible here."""
    verify = context.config.verify
    stated = bool(config.checksums) or any(states_checksums(source.url) for source in config.sources)
    silent = [source.url for source in config.sources if not states_checksums(source.url)]
    if verify.source_checksum == "require" and silent and not config.checksums:
        raise PreflightError(
            "this source never states a checksum, and one is required of every file",
            where=", ".join(silent),
            hint=f"name checksum files beside the data in `datasets.{config.name}.checksums`, or set "
            "`verify.source_checksum: auto`",
        )
    alone = not context.cluster.abilities.has_nodes
    why = beyond(verify, kind=facts(layout.root).kind, alone=alone, stated=stated)
    if why:
        raise PreflightError(
            f"the grade {verify.minimum_grade} cannot be reached",
            where="verify.minimum_grade",
            why=why,
            hint="lower it, or change what keeps files from it",
        )
    asked = []
    if verify.source_checksum == "require":
        asked.append("a checksum of the source for each file")
    if verify.minimum_grade != "auto":
        asked.append(f"the grade {verify.minimum_grade}")
    if asked:
        looks.saw(CheckResult("evidence", f"nothing rules out what is required: {', '.join(asked)}"))
