"""An interpreter that runs a few lines before everything: for faults within processes that penstock starts,
which are isolated (`host.interpreter`), so that no variable of the environment reaches them."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path


def python(folder: Path, lines: str) -> str:
    """A virtual environment made in `folder`, with all that this one has, whose interpreter runs these lines
    first: its path."""
    (folder / "bin").mkdir(parents=True)
    packages = folder / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    packages.mkdir(parents=True)
    made = folder / "bin/python"
    made.symlink_to(Path(sys.executable).resolve())
    (folder / "pyvenv.cfg").write_text(f"home = {made.resolve().parent}\n")
    (packages / "penstock_injected.py").write_text(lines)
    own = sysconfig.get_path("purelib")
    (packages / "injected.pth").write_text(
        f"import site; site.addsitedir({own!r})\nimport penstock_injected\n"
    )
    return str(made)
