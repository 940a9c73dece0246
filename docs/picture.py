"""Makes docs/run.svg: a real `penstock run` on a terminal, half-way through the copy and at its end.

`python -m docs.picture`, in the checkout: stages a few thousand small files and two large ones from
the demo's S3 server, in a scratch folder, on a pseudo-terminal, and draws what stood on the screen.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text
from tests.demo.example import serving_folder
from tests.support import terminal

from penstock.target.tree_removal import remove_tree

WIDTH, HEIGHT = 96, 40
FILES, SMALL, LARGE = 3000, 64 << 10, 512 << 20

CONFIG = """\
target: {{root: /scratch/datasets}}
datasets:
  imagenet:
    source: s3://training/imagenet/
    storage_options: {{endpoint_url: "http://127.0.0.1:{port}", anon: true}}
"""


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
            frames = shown(folder)
        remove_tree(folder / "t")
    names = {"/scratch/datasets": str(folder / "t"), "/home/me": str(folder)}
    copying = [f for f in frames if re.search(r"imagenet copy.*\b[3-7]\d%", terminal.plain(" ".join(f[-3:])))]
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print("[bold]$ penstock run")
    body = [*copying[len(copying) // 2], "", "[...]", ""] if copying else []
    for line in [*body, *frames[-1]]:
        for name, real in names.items():
            line = line.replace(real, name)
        console.print(Text.from_ansi(line), soft_wrap=True)
    Path(__file__).with_name("run.svg").write_text(console.export_svg(title="penstock"), encoding="utf-8")


def shown(folder: Path) -> list[list[str]]:
    """The screen after each write; the last is the end."""
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(WIDTH)}
    command = [sys.executable, "-m", "penstock", "run"]
    recorded = terminal.record(command, cwd=folder, env=environment, size=(WIDTH, HEIGHT))
    if recorded.status:
        sys.exit("\n".join(recorded.plain()))
    return recorded.frames


if __name__ == "__main__":
    main()
