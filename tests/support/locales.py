"""A locale that is not UTF-8, made by `localedef`: the machine need not have one."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

NAME = "de_DE.ISO-8859-15"


def latin9(folder: Path) -> dict[str, str]:
    """The variables of a process whose locale is German in ISO-8859-15; the locale lies in `folder`."""
    letters = (f"<U{ord(bytes([byte]).decode('iso-8859-15')):04X}> /x{byte:02x} x" for byte in range(256))
    head = "<code_set_name> ISO-8859-15\n<comment_char> %\n<escape_char> /\n<mb_cur_min> 1\n<mb_cur_max> 1\n"
    rows = "\n".join(letters)
    (folder / "charmap").write_text(f"{head}CHARMAP\n{rows}\nEND CHARMAP\n")
    (folder / "locale").write_text("comment_char %\nescape_char /\nLC_CTYPE\nEND LC_CTYPE\n")
    # --force: a locale of characters alone, without the names of months; it says so, and ends with 1.
    subprocess.run(
        ["localedef", "--force", "-i", folder / "locale", "-f", folder / "charmap", folder / NAME],
        capture_output=True,
        check=False,
    )
    return {"LOCPATH": str(folder), "LC_ALL": NAME}
