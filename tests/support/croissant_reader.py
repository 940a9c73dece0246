"""mlcroissant, the reference reader of Croissant, in a virtual environment of its own.

Made once, in the repository's cache, of envs/mlcroissant.lock: 370 MB, half a minute. A machine that cannot
make it is named in the one message that skips.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.go_servers import CACHE, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

LOCK = Path(__file__).resolve().parents[2] / "envs/mlcroissant.lock"
LIMIT = 600


def python() -> Path:
    """The interpreter that has mlcroissant as it is locked. Raises UnavailableError."""
    place = CACHE / "mlcroissant"
    done, wanted = place / "installed", LOCK.read_text()
    CACHE.mkdir(exist_ok=True)
    with open(CACHE / "mlcroissant.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists() or done.read_text() != wanted:
            _run([sys.executable, "-m", "venv", "--clear", str(place)])
            pip = (
                str(place / "bin/python"),
                "-m",
                "pip",
                "--disable-pip-version-check",
                "install",
                "--quiet",
            )
            _run([*pip, "--no-compile", "--require-hashes", "-r", str(LOCK)])
            done.write_text(wanted)
    return place / "bin/python"


def read(document: Path, records: Sequence[str] = ()) -> dict[str, Any]:
    """What mlcroissant makes of a document: `errors`, `warnings`, `name`, ..., and of each record set in
    `records` its rows, for which it opens the files and compares their SHA-256."""
    words = [str(python()), "-c", _READ, str(document), *records]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


_READ = """
import json, logging, sys
logging.disable(logging.ERROR)
import mlcroissant as mlc
dataset = mlc.Dataset(jsonld=sys.argv[1])
m = dataset.metadata
def plain(value):
    return value.decode() if isinstance(value, bytes) else str(value)
print(json.dumps({
    "errors": sorted(m.ctx.issues.errors),
    "warnings": sorted(m.ctx.issues.warnings),
    "name": m.name,
    "version": m.version,
    "license": m.license,
    "url": m.url,
    "creators": [one.name for one in m.creators],
    "published": str(m.date_published),
    "objects": {one.id: [one.content_url, one.content_size, one.sha256] for one in m.file_objects},
    "sets": {one.id: one.includes for one in m.file_sets},
    "records": {
        name: [{key: plain(value) for key, value in row.items()} for row in dataset.records(name)]
        for name in sys.argv[2:]
    },
}))
"""


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{command[0]}: {error}") from None
    if done.returncode:
        raise UnavailableError(f"{' '.join(command)} failed: {done.stderr[-800:]}")
