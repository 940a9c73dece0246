"""Which release a command is about, where it may be named or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import PreflightError

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout
    from penstock.state.context import Context


def released(context: Context, layout: DatasetLayout, name: str | None, doing: str) -> str:
    """That release, or the current one. `doing` is the command's verb, for the message. Raises PreflightError
    when it is not there."""
    release, there = name or context.storage.current(layout), context.storage.releases(layout)
    if release is None or release not in there:
        stages = f"`{context.program} run {layout.dataset}` stages a release"
        raise PreflightError(
            f"there is no such release to {doing}" if release else "nothing is published yet",
            where=f"{layout.dataset}/{release}" if release else layout.dataset,
            hint=f"there are: {', '.join(there)}" if there else stages,
        )
    return release
