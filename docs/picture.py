"""Makes docs/run.svg: a real `penstock run` on a terminal, half-way through the copy and at its end.

`python -m docs.picture`, in the checkout: stages a few thousand small files and two large ones from
the demo's S3 server, in a scratch folder, on a pseudo-terminal, and draws what stood on the screen.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text
from tests.demo.example import serving_folder

from penstock.storage.tree_removal import remove_tree

WIDTH, HEIGHT = 96, 40
FILES, SMALL, LARGE = 3000, 64 << 10, 512 << 20
CONTROL = re.compile(r"\x1b\[(\?25[lh]|\d*[AK]|[\d;]*m)|\r|\n")

CONFIG = """\
target: {{root: /scratch/datasets}}
datasets:
  imagenet:
    source: s3://training/imagenet/
    storage_options: {{endpoint_url: "http://127.0.0.1:{port}", anon: true}}
plan: {{giant_bytes: 256MiB, part_bytes: 64MiB}}
"""


class Screen:
    """What the display uses of a terminal: lines, cursor up, erase line."""

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


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for index in range(FILES):
            path = folder / "source/imagenet" / f"{index % 50:03d}" / f"{index:06d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.urandom(SMALL))
        for name in ("train.tar", "val.tar"):
            (folder / "source/imagenet" / name).write_bytes(os.urandom(1 << 20) * (LARGE >> 20))
        with serving_folder(folder / "source", "training", folder, 0) as port:
            text = CONFIG.format(port=port).replace("/scratch/datasets", str(folder / "t"))
            (folder / "config.yaml").write_text(text)
            frames = record(folder)
        remove_tree(folder / "t")
    shown = {"/scratch/datasets": str(folder / "t"), "/home/me": str(folder)}
    copying = [f for f in frames if re.search(r"imagenet copy.*\b[3-7]\d%", plain(f[-3:]))]
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print("[bold]$ penstock run")
    body = [*copying[len(copying) // 2], "", "[...]", ""] if copying else []
    for line in [*body, *frames[-1]]:
        for name, real in shown.items():
            line = line.replace(real, name)
        if "Using workflow" not in line:
            console.print(Text.from_ansi(line), soft_wrap=True)
    Path(__file__).with_name("run.svg").write_text(console.export_svg(title="penstock"), encoding="utf-8")


def plain(lines: list[str]) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", " ".join(lines))


def record(folder: Path) -> list[list[str]]:
    """The screen after each write; the last is the end."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(WIDTH)}
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "run"], cwd=folder, env=environment,
        stdin=subprocess.DEVNULL, stdout=child, stderr=child,
    )  # fmt: skip
    os.close(child)
    screen, frames = Screen(), []
    while True:
        try:
            data = os.read(parent, 65536)
        except OSError:
            break
        if not data:
            break
        screen.write(data.decode("utf-8", "replace"))
        frames.append([line for line in screen.lines if plain([line]).strip()])
    os.close(parent)
    if process.wait():
        sys.exit("\n".join(frames[-1]))
    return frames


if __name__ == "__main__":
    main()
