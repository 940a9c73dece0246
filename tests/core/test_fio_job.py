"""The job for fio has the sizes that were copied, and fio understands it."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from penstock.core import run_documents

if TYPE_CHECKING:
    from pathlib import Path

SIZES = {
    "mixed": [0, 1, 100, 100, 5000, 70_000, 3 << 20, 90 << 20],
    "one": [4096],
    "empty": [0],
    "many": list(range(1, 200_000, 13)),
}


@pytest.mark.parametrize("kind", SIZES)
def test_fio_parses_it(tmp_path: Path, kind: str) -> None:
    """Z4: the job parses."""
    if shutil.which("fio") is None:
        pytest.skip("fio is not installed")
    job = tmp_path / "job.fio"
    job.write_text(run_documents.fio_job("data", SIZES[kind], 16, "fsync"))
    done = subprocess.run(
        ["fio", "--parse-only", job], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert os.listdir(tmp_path) == ["job.fio"]


@pytest.mark.parametrize("durability", ["fsync", "syncfs"])
def test_it_makes_as_many_files_of_these_sizes(durability: str) -> None:
    sizes = SIZES["many"]
    job = configparser.ConfigParser(comment_prefixes=(";",))
    job.read_string(run_documents.fio_job("data", sizes, 16, durability))
    assert ("fsync_on_close" in job["global"]) == (durability == "fsync")
    files = processes = 0
    for name in job.sections()[1:]:
        section = job[name]
        low, high = map(int, section["filesize"].split("-"))
        count = int(section["nrfiles"]) * int(section["numjobs"])
        assert count >= sum(low <= size <= high for size in sizes)
        files += count
        processes += int(section["numjobs"])
    assert len(sizes) <= files < 1.01 * len(sizes) + 16
    assert 16 <= processes <= 16 + len(job.sections())
