"""What commands say of a release that is not there: one that a person named, or one that `current` names.
Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.errors import ConfigError
from penstock.core.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.layout import DatasetLayout


def no_release(layout: DatasetLayout, names: Sequence[str], there: Sequence[str], hint: str) -> ConfigError:
    """The error of a command that is given these names, none of which is a release that is `there`."""
    return ConfigError(
        f"there is no release {', '.join(names)}",
        where=str(layout.releases),
        why=f"there are {', '.join(there)}" if there else "nothing is published",
        hint=hint,
    )


def named_by_current(release: str) -> str:
    """`current` leads nowhere, in words."""
    return f"`current` names {printable(release)}, which is not there"
