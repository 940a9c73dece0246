"""What gc and remove would do, or did, as lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import human
from penstock.look.views import text_block

if TYPE_CHECKING:
    from penstock.core.step_results import Collected


PINS = 20  # ended pins named at most


def collected(removal: Collected, columns: int = 0) -> str:
    """Return one block for a dataset; lines beyond `columns` continue indented (0: no limit)."""
    gone = [release for release in removal["releases"] if release["removed"]]
    would = removal["dry_run"]
    verb = "would remove" if would else "removed"
    lines = [
        f"{removal['dataset']}: {verb} {len(gone)} of {human.counted(len(removal['releases']), 'release')}"
    ]
    for release in removal["releases"]:
        amount = f"{human.size(release['bytes'])} in {human.counted(release['files'], 'file')}"
        mark, why = ("-", "nothing holds it") if release["removed"] else ("=", "; ".join(release["held_by"]))
        lines.append(f"  {mark} {human.printable(release['release'])}  {amount}: {human.printable(why)}")
    for staging in removal["stagings"]:
        why = f": stays, {staging['why']}" if staging["why"] else ""
        lines.append(f"  {'=' if why else '-'} {human.printable(staging['staging'])}{human.printable(why)}")
    if removal["interrupted"]:
        what = human.counted(len(removal["interrupted"]), "folder")
        lines.append(f"  {what} of an interrupted removal {'would be' if would else 'were'} removed, too")
    lines += [f"  pin {human.printable(pin)}" for pin in removal["ended_pins"][:PINS]]
    if len(removal["ended_pins"]) > PINS:
        lines.append(f"  and {len(removal['ended_pins']) - PINS:,} more pins that stand no more")
    done = "would be" if would else "was"
    lines += [f"  pin {human.printable(name)} {done} taken back" for name in removal["unpinned"]]
    if gone or removal["interrupted"] or any(staging["removed"] for staging in removal["stagings"]):
        lines += removal["frees"].in_words("would free" if would else "freed, as counted before")
    if folder := removal.get("gone"):
        lines.append(f"  the dataset {'would go' if would else 'is gone'}, {human.printable(folder)}")
    if removal["waits"]:
        lines.append(f"  {human.printable(removal['waits'])}")
    return "".join(f"{text}\n" for line in lines for text in _wrapped(line, columns))


def _wrapped(line: str, columns: int) -> list[str]:
    if not columns or len(line) <= columns:
        return [line]
    below = " " * (len(line) - len(line.lstrip()) + 2)
    return text_block.wrapped(line, columns, below=below)
