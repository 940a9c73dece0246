"""`penstock status --root`: all datasets, for any account, by six file operations each at most; --watch."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.support.commands import penstock
from tests.target.conftest import need

from penstock.core.layout import DatasetLayout

if TYPE_CHECKING:
    from pathlib import Path

MOST = 6
WATCHING = """
import sys
from penstock.cli.commands import stagings
from penstock.cli.main import main
stagings.WATCHED = stagings.LONGEST_WATCHED = 0.1
sys.exit(main(sys.argv[1:]))
"""


def rows(root: Path, status: int = 0) -> dict[str, dict[str, str]]:
    done = penstock("status", "--root", str(root), "--json", cwd=root)
    assert done.returncode == status, done.stderr
    document = json.loads(done.stdout)
    return document.get("datasets") or {document["dataset"]: document}


def test_each_state_of_a_dataset_has_its_row(layout: DatasetLayout, root: Path) -> None:
    for name in ("held", "broken", "begun"):
        shutil.copytree(layout.folder, root / name, symlinks=True)
    (root / "HOLD").write_text("held storage target 17\n")
    seal = DatasetLayout(root, "broken").release(layout.current.readlink().name) / "release.json"
    seal.chmod(0o644)
    seal.write_text("{")
    (root / "begun/current").unlink()
    (root / "folder").mkdir()  # no dataset's
    shown = rows(root, status=4)
    assert {name: row["state"] for name, row in shown.items()} == {
        "data": "published", "held": "held", "broken": "damaged", "begun": "nothing published",
    }  # fmt: skip
    assert shown["data"]["files"]
    assert shown["data"]["sealed"]
    assert shown["held"]["why"].startswith("storage target 17")
    assert "its seal (release.json) is damaged" in shown["broken"]["why"]


def test_a_name_that_no_dataset_has(root: Path) -> None:
    done = penstock("status", "dat", "--root", str(root), cwd=root)
    assert done.returncode == 2
    assert 'no dataset is named "dat"; did you mean data?' in done.stderr


def test_six_operations_a_dataset_and_nothing_is_touched(
    layout: DatasetLayout, root: Path, tmp_path: Path
) -> None:
    for name in ("other", "third"):
        shutil.copytree(layout.folder, root / name, symlinks=True)
    trace = tmp_path / "trace"
    words = [need("strace"), "-f", "-y", "-e", "trace=%file,getdents64", "-o", str(trace)]
    command = [*words, sys.executable, "-m", "penstock", "status", "--root", str(root)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 4, done.stderr  # seals of the copies are of another dataset
    calls = [line for line in trace.read_text().splitlines() if str(root) in line and "execve(" not in line]
    for name in ("data", "other", "third"):
        own = [line for line in calls if re.search(rf"{root}/{name}[/>\"]", line)]
        looks = [line for line in own if "AT_EMPTY_PATH" not in line]  # of an open file: no server is asked
        assert 1 <= len(looks) <= MOST, looks
    assert not [line for line in calls if re.search(r"O_(WRONLY|RDWR|CREAT)|utime|mkdir", line)]


def test_watch_looks_again_until_it_is_left(root: Path) -> None:
    command = [sys.executable, "-c", WATCHING, "status", "--root", str(root), "--watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        tables = 0
        while tables < 3:
            tables += "DATASET" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(60) == 0
