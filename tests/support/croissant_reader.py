"""mlcroissant, the reference reader of Croissant, in a virtual environment of its own.

Made once, in the repository's cache, of envs/mlcroissant.lock: 370 MB, half a minute. A machine that cannot
make it is named in the one message that skips.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.go_servers import locked_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

LOCK = Path(__file__).resolve().parents[2] / "envs/mlcroissant.lock"
LIMIT = 600


def python() -> Path:
    """The interpreter that has mlcroissant as it is locked. Raises UnavailableError."""
    return locked_environment("mlcroissant", LOCK) / "bin/python"


class CroissantReader:
    """A process that reads documents, one after the other; its imports take two seconds."""

    def __init__(self) -> None:
        """Raises UnavailableError."""
        self._process = subprocess.Popen(
            [str(python()), "-c", _READ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def read(self, document: Path, records: Sequence[str] = ()) -> dict[str, Any]:
        """What mlcroissant makes of a document: `errors`, `warnings`, `name`, ..., and of each record set in
        `records` its rows, for which it opens the files and compares their SHA-256. AssertionError with
        mlcroissant's own words where it fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(document), *records]) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert "failed" not in answer, answer["failed"][-4000:]
        return answer

    def close(self) -> None:
        """The process ends with its input."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(LIMIT)
        self._process.stdout.close()


_READ = """
import json, logging, os, sys, traceback
logging.disable(logging.ERROR)
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
import mlcroissant as mlc
def plain(value):
    return value.decode() if isinstance(value, bytes) else str(value)
def read(document, *records):
    dataset = mlc.Dataset(jsonld=document)
    m = dataset.metadata
    return {
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
            for name in records
        },
    }
for line in sys.stdin:
    try:
        answer = read(*json.loads(line))
    except Exception:
        answer = {"failed": traceback.format_exc()}
    print(json.dumps(answer), file=answers)
"""
