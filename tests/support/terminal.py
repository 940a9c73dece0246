"""A command on a pseudo-terminal, and what stood on the screen meanwhile."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import termios
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

CONTROL = re.compile(r"\x1b\[(\?25[lh]|\d*[AK]|[\d;]*m)|\r|\n")
STYLE = re.compile(r"\x1b\[[\d;]*m")


class Screen:
    """What penstock uses of a terminal: lines, cursor up, erase line."""

    def __init__(self) -> None:
        self.lines, self.row = [""], 0

    def write(self, text: str) -> None:
        at = 0
        for match in CONTROL.finditer(text):
            self.lines[self.row] += text[at : match.start()]
            at = match.end()
            code = match[0]
            if code == "\n":
                self.row += 1
                if self.row == len(self.lines):
                    self.lines.append("")
            elif code.endswith("A"):
                self.row -= int(match[1][:-1] or 1)
            elif code.endswith("K"):
                self.lines[self.row] = ""
            elif code.endswith("m"):
                self.lines[self.row] += code
        self.lines[self.row] += text[at:]


class Recorded(NamedTuple):
    status: int
    written: str
    frames: list[list[str]]
    """The lines on the screen after each write, with their styles; the last is the end."""

    def plain(self, frame: int = -1) -> list[str]:
        return [plain(line).rstrip() for line in self.frames[frame]]


def plain(text: str) -> str:
    return STYLE.sub("", text)


def record(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    size: tuple[int, int] = (80, 24),
) -> Recorded:
    """Run it to its end, standard output and error on one terminal of this many columns and rows; `env`
    is all of its environment."""
    parent, child = os.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    process = subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=child, stderr=child
    )
    os.close(child)
    screen, frames, written = Screen(), [], b""
    try:
        while data := os.read(parent, 65536):
            written += data
            screen.write(data.decode("utf-8", "replace"))
            frames.append([line for line in screen.lines if plain(line).strip()])
    except OSError:  # the terminal's other side is closed
        pass
    finally:
        os.close(parent)
    return Recorded(process.wait(60), written.decode("utf-8", "replace"), frames)
