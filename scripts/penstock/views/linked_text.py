"""What a seal says of linked files that were carried over, in words."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.views import human


def words(linked: object, storage: object) -> str:
    """For people, of the seal's `linked` and of its evidence of storage; "" where every linked file was read.

    >>> carried = {"files": 989010, "oldest_read": "2026-10-25", "newest_read": "2026-11-22"}
    >>> sealed = {"carried": carried, "read_now": {"sample": {"files": 9990}}, "at_most_95": 300}
    >>> for sentence in words(sealed, {"cold": {}}).split(". "):
    ...     print(sentence)
    989,010 files were not read for this release; each was last read back between 2026-10-25 and 2026-11-22, \
graded as then, its inode, size and mtime unchanged since
    A random 1.00% were read cold: none deviated; with 95 % confidence at most 300 differ
    Moves inside the storage (tiering, rebalancing) are not seen.
    """
    carried = _map(_map(linked).get("carried"))
    files = _files(carried)
    if not files:
        return ""
    text = (
        f"{human.counted(files, 'file')} were not read for this release; each was last read back between "
        f"{carried.get('oldest_read')} and {carried.get('newest_read')}, graded as then, its inode, size and "
        "mtime unchanged since."
    )
    sampled = _files(_map(_map(_map(linked).get("read_now")).get("sample")))
    most = _map(linked).get("at_most_95")
    if sampled and isinstance(most, int):
        how = "read back" if {"written", "reread"} & _map(storage).keys() else "read cold"
        text += (
            f" A random {sampled / (sampled + files):.2%} were {how}: none deviated; with 95 % confidence at "
            f"most {most:,} differ."
        )
    else:
        text += " None of them was drawn: how many differ is not known."
    return f"{text} Moves inside the storage (tiering, rebalancing) are not seen."


def _map(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _files(amount: Mapping[str, object]) -> int:
    files = amount.get("files")
    return files if isinstance(files, int) else 0
