"""The commands by which root gives a dataset to another account. Pure: nothing is looked at, nothing is
executed.

| what                                    | how                                                             |
|-----------------------------------------|-----------------------------------------------------------------|
| folder, releases, manifests, state, and | `chown -hR --from=OLD NEW`: what belongs to the old owner, and  |
| the owner's own pins                    | nothing else; links themselves, not what they lead to           |
| readers' pins, auditors' verdicts       | stay those of the accounts that made them                       |
| state elsewhere (`target.state_root`)   | the same command for its folder                                 |
| promises of its runs                    | the same command for each file                                  |
| groups, modes, ACLs                     | stay as they are                                                |
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.core.layout import DatasetLayout


def commands(layout: DatasetLayout, old: int, new: int, promises: Sequence[Path]) -> list[str]:
    """Lines for a shell of root's; each may be given again. `promises`: the files of the dataset's runs."""
    places = [layout.folder.absolute()]
    if layout.state_root is not None:
        places.append(layout.state.parent.absolute())
    lines = [_line(["chown", "-hR", f"--from={old}", str(new), "--", str(place)]) for place in places]
    lines += [_line(["chown", "-h", f"--from={old}", str(new), "--", str(one)]) for one in promises]
    return lines


def _line(words: Sequence[str]) -> str:
    """One line, whatever bytes a path has: `shlex.quote` leaves line ends and bytes that are no text as
    they are."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    raw = word.encode("utf-8", "surrogateescape")
    if word.isprintable():
        return shlex.quote(word)
    # Bytes that a terminal may not show, or reads as orders, as bash, ksh and zsh write them.
    return "$'" + "".join(_escaped(byte) for byte in raw) + "'"


def _escaped(byte: int) -> str:
    if 0x20 <= byte < 0x7F and byte not in b"'\\":
        return chr(byte)
    return f"\\x{byte:02x}"
