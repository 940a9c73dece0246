"""What the site's file binds, a row for each key, for its administrator."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.core.events import CheckResult
from penstock.core.human import printable
from penstock.fs.owners import user_number

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.config.site import Site


def rows(site: Site) -> Iterator[CheckResult]:
    """Yield each key with value and line. Warns of a folder missing on this machine, and of an unknown
    account: what that account stages opens no gate."""
    target, bandwidth = site.bounds.target, site.bounds.bandwidth
    folders: dict[str, tuple[Path, ...]] = {
        "target.roots": target.roots,
        "bandwidth.folder": () if bandwidth.folder is None else (bandwidth.folder,),
    }
    for section, keys in (site.document.value or {}).items():
        for key, value in keys.items():
            name, line = f"{section}.{key}", site.document.line((section, key))
            texts = value if isinstance(value, list) else [value]
            state = printable(f"{', '.join(map(str, texts))} (line {line})")
            yield CheckResult(name, state)
            for folder in folders.get(name, ()):
                if not os.path.isdir(folder):
                    state = f"{printable(str(folder))} is no folder on this machine"
                    yield CheckResult(name, state, "warning", mend=f"correct line {line}, or mount it")
            for account in target.owners if name == "target.owners" else ():
                if user_number(account) is None:
                    state = f"{printable(account)} is no account on this machine: it is nobody"
                    yield CheckResult(name, state, "warning", mend=f"correct line {line}, or give its number")
