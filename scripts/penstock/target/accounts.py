"""Which accounts are trusted with what: those that a configuration lists, by name or number.

For `dataset.gate` and `dataset.staging_notice` (whose releases count), preflight and the status. Reads this
machine's accounts and, where none is listed, the root's owner; changes nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.config import file_choice
from penstock.fs.owners import user_name, user_number

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def is_listed(uid: int, names: Sequence[str]) -> bool:
    """Whether one of these names or numbers is the account of number `uid`. A name that this machine does not
    know is nobody.

    | a listed one is                       | it is this account                            |
    |---------------------------------------|-----------------------------------------------|
    | a name that this machine knows        | where its number is, or this account's name   |
    | a number                              | where it is the number                        |
    """
    return any(user_number(name) == uid or (name and user_name(uid) == name) for name in names)


def owners_told(root: Path, names: Sequence[str]) -> Sequence[str]:
    """The accounts whose releases count below a root: those listed (`target.owners`); where none is, the
    root's owner and this process's own account. Raises OSError."""
    return names or tuple(dict.fromkeys((str(root.stat().st_uid), str(os.geteuid()))))


def naming(uid: int) -> str:
    """The hint of a message: what to write into which configuration, so that `penstock gate` and `penstock
    path` take what the account of this number stages."""
    entry = f"`target: {{owners: [{user_name(uid) or uid}]}}`"
    return (
        f"write {entry} into the configurations of those who read it, or have the administrator write it "
        f"into {file_choice.SITE}, for everybody on this machine"
    )


def in_words(names: Sequence[str]) -> str:
    """These accounts in a message: a number with its name."""
    return ", ".join(_in_words(name) for name in names)


def _in_words(name: str) -> str:
    known = user_name(int(name)) if name.isascii() and name.isdecimal() else ""
    return f"{known} (uid {name})" if known else name if known or not name.isdecimal() else f"uid {name}"
