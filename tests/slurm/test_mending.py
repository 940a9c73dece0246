"""`penstock gate --mend --submit` on a real cluster: the look and its repair are a job, by whose exit status
the job after it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.published import flip, writable

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.place import Place

pytestmark = pytest.mark.slurm


def gone(path: Path) -> None:
    with writable(path.parent):
        path.unlink()


def test_a_look_that_is_a_job_mends_and_then_lets_the_next_job_start(place: Place) -> None:
    place.fill("a", 120)
    place.configure(["a"])
    place.ends(place.staging("a"))
    data = place.published("a")
    for index in (3, 47, 110):
        gone(data / f"{index // 100:03d}/file {index:06d}.bin")
    flip(data / "000/file 000007.bin", 11)
    before = sum(place.fetched("a").values())

    job = place.ends(place.penstock("gate", "a", "--mend", "--submit", "--parsable")).strip()
    assert job.isdigit()
    _then(place, job, "opened")
    assert place.published("a") == data
    sizes = [
        (place.source / "a" / f"{i // 100:03d}" / f"file {i:06d}.bin").stat().st_size for i in (3, 7, 47, 110)
    ]
    assert sum(place.fetched("a").values()) - before == sum(sizes)
    said = (place.work / f"results/logs/submit-{job}_0.log").read_text()
    assert "repaired: 4 files" in said, said
    assert "is found with a probability of 100.00%" in said
    place.ends(place.penstock("gate", "a"))

    # What the source has no longer is not mended: the job fails, and what waits for it never starts.
    name = "000/file 000011.bin"
    gone(data / name)
    (place.source / "a" / name).unlink()
    job = place.ends(place.penstock("gate", "a", "--mend", "--submit", "--parsable")).strip()
    waits = ("sbatch", "--wait", f"--dependency=afterok:{job}", "--kill-on-invalid-dep=yes")
    process = place.start(*waits, *_WHERE, f"--output={place.work}/never", "--wrap", "echo started")
    process.wait(120)
    assert not (place.work / "never").exists()
    said = (place.work / f"results/logs/submit-{job}_0.log").read_text()
    assert name in said, said
    assert "could not be repaired" in said
    assert "Traceback" not in said


_WHERE = ("--partition=data", "--time=5")


def _then(place: Place, job: str, word: str) -> None:
    """A job after this one runs, and says the word."""
    out = place.work / f"after-{job}"
    words = ("sbatch", "--wait", f"--dependency=afterok:{job}", "--kill-on-invalid-dep=yes", *_WHERE)
    place.ends(place.start(*words, f"--output={out}", "--wrap", f"echo {word}"))
    assert word in out.read_text()
