"""What commands say of a release that does not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.errors import ConfigError
from penstock.core.human import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.layout import DatasetLayout


def no_release(
    layout: DatasetLayout, names: Sequence[str], existing: Sequence[str], hint: str
) -> ConfigError:
    """Return the error of a command given these names, none of which is among the `existing` releases."""
    return ConfigError(
        f"there is no release {', '.join(names)}",
        where=str(layout.releases),
        why=f"there are {', '.join(existing)}" if existing else "nothing is published",
        hint=hint,
    )


def named_by_current(release: str) -> str:
    """Say that `current` leads nowhere."""
    return f"`current` names {printable(release)}, which is not there"
