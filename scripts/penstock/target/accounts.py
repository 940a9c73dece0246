"""Which accounts a configuration trusts, by name or number."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.config import file_choice
from penstock.fs.owners import user_name, user_number

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def is_listed(uid: int, names: Sequence[str]) -> bool:
    """Return whether one of these names or numbers is account `uid`. Unknown names match nobody.

    | a listed name or number               | matches                                       |
    |---------------------------------------|-----------------------------------------------|
    | a name that this machine knows        | where its number is, or this account's name   |
    | a number                              | where it is the number                        |
    """
    return any(user_number(name) == uid or (name and user_name(uid) == name) for name in names)


def owners_told(root: Path, names: Sequence[str]) -> Sequence[str]:
    """Return the accounts whose releases count below a root: `target.owners`, else the root's owner and this
    account.

    Raises OSError.
    """
    return names or tuple(dict.fromkeys((str(root.stat().st_uid), str(os.geteuid()))))


def naming(uid: int) -> str:
    """Hint how `penstock gate` and `penstock path` come to accept this account's releases."""
    entry = f"`target: {{owners: [{user_name(uid) or uid}]}}`"
    return (
        f"write {entry} into the configurations of those who read it, or have the administrator write it "
        f"into {file_choice.SITE}, for everybody on this machine"
    )


def in_words(names: Sequence[str]) -> str:
    return ", ".join(_in_words(name) for name in names)


def _in_words(name: str) -> str:
    user = user_name(int(name)) if name.isascii() and name.isdecimal() else ""
    return f"{user} (uid {name})" if user else name if user or not name.isdecimal() else f"uid {name}"
