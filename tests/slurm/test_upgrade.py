"""Two versions of penstock, installed side by side, over one root on a real cluster: what the first began the
second goes on with, and back again (docs/install.md, "Upgrades")."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cluster.place import LINKED
from tests.cluster.processes import wait_for
from tests.support.wheel import TIMEOUT, beside

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.cluster.place import Place
    from tests.support.wheel import Installation

pytestmark = [pytest.mark.slurm, TIMEOUT]
OLD, NEW = "1.0.0", "1.1.0"


class Version:
    """The commands of one installation, called by the place's user."""

    def __init__(self, place: Place, installed: Installation, number: str) -> None:
        self.place, self.installed, self.number = place, installed, number

    @property
    def python(self) -> str:
        return str(self.installed.bin / "python")

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        program = (str(self.installed.bin / "penstock"), "--config", "my.yaml", "--backend", "slurm")
        return self.place.start(*program, *words)

    def says(self, *words: str, code: int = 0) -> str:
        return self.place.ends(self.start(*words), code)


@pytest.fixture
def versions(place: Place, installation: Installation) -> Iterator[tuple[Version, Version]]:
    for name in LINKED:
        (place.work / name).unlink()
    folder = Path(tempfile.mkdtemp(prefix="penstock-versions-", dir="/tmp"))
    try:
        folder.chmod(0o755)
        made = []
        for number in (OLD, NEW):
            (folder / number).mkdir()
            made.append(Version(place, beside(installation, folder / number, version=number), number))
        yield made[0], made[1]
    finally:
        shutil.rmtree(folder)


def sealed_by(data: Path) -> str:
    return str(json.loads((data.parent / "release.json").read_text())["penstock"])


@pytest.mark.thorough
def test_a_newer_version_goes_on_with_the_arrays_of_an_older_one_and_back_again(
    place: Place, versions: tuple[Version, Version]
) -> None:
    old, new = versions
    place.fill("a", 120)
    place.configure(["a"], plan={"shard_files": 30}, engine={"limit": "150KiB/s"})
    slurm = place.machine.run

    # Elements of the older version are at work, others wait, and its login node is lost.
    first = old.start("run")
    place.until(lambda: len(place.running()) == 2 and place.fetched("a"), "two elements", first)
    ((array, _),) = place.submissions("a", "copy")
    slurm("scontrol", "hold", array)
    assert "copy" in new.says("status")
    place.kill(first)
    assert f"array {array} of copy: no more than 1 at once" in new.says("limit", "a", "--nodes", "1")
    assert "nothing is published" in new.says("path", "a", code=4)
    assert new.says("gate", "a", code=4)

    # The newer version watches them; they go on with the interpreter that they were started with.
    second = new.start("run")
    watched = f"array {array} of an earlier controller lives and is watched"
    place.until(lambda: watched in place.output(second), "the array of the older one", second)
    slurm("scontrol", "release", array)
    script = slurm("scontrol", "write", "batch_script", array, "-").stdout
    assert f"exec {old.python} " in script
    place.ends(second)
    assert place.submissions("a", "copy") == [(array, [0, 1, 2, 3])], "nothing was submitted again"
    data = place.published("a")
    assert sealed_by(data) == NEW
    assert len(place.receipts("a", "copy")) == 4

    # Back: the older version reads what the newer one wrote, and stages the next release from it.
    for words in (("status",), ("gate", "a"), ("releases", "a"), ("show", "a"), ("audit", "a")):
        old.says(*words)
    assert old.says("path", "a").split() == [str(data)]
    place.configure(["a"], cluster={"probe": False})
    reader = Reader(old, data)
    later = _published_anew(place, old)
    assert new.says("path", "a").split() == [str(later)]
    reader.keeps_it_from(new)
    reader = Reader(new, later)
    _published_anew(place, new)
    reader.keeps_it_from(old)


class Reader:
    """A job that pins the current release by one version, and reads it until it is cancelled."""

    def __init__(self, version: Version, data: Path) -> None:
        self.place, self.release = version.place, data.parent.name
        given = self.place.work / f"given-{version.number}"
        path = f"{version.installed.bin}/penstock --config my.yaml path a --job"
        words = ("sbatch", "--parsable", "--partition=data", "--time=10", "--output=job.log", "--wrap")
        script = f"data=$({path}) || exit 1; echo $data > {given.name}; exec sleep 600"
        self.job = self.place.ends(self.place.start(*words, script)).strip()
        wait_for(lambda: given.exists() and given.read_text().strip(), "the job's release", seconds=120)
        assert given.read_text().strip() == str(data)

    def keeps_it_from(self, remover: Version) -> None:
        """Neither `gc` nor `remove` of that version takes the release, until the job has ended."""
        words = ("remove", "a", self.release, "--now")
        assert f"job {self.job} of cluster penstock" in remover.says(*words, code=3)
        assert f"job {self.job} of cluster penstock" in remover.says("gc", "a", "--dry-run")
        slurm = self.place.machine.run
        slurm("scancel", self.job)
        wait_for(lambda: not slurm("squeue", "-h", "-j", self.job).stdout.strip(), "its end", seconds=60)
        assert "removed 1 of" in remover.says(*words)


def _published_anew(place: Place, version: Version) -> Path:
    (place.source / "a" / version.number).write_bytes(b"more")
    version.says("run")
    data = place.published("a")
    assert sealed_by(data) == version.number
    return data


def test_a_newer_version_cancels_what_an_older_one_does_and_does_nothing_beside_it(
    place: Place, versions: tuple[Version, Version]
) -> None:
    old, new = versions
    place.fill("a", 60)
    place.configure(["a"], plan={"shard_files": 30}, engine={"limit": "200KiB/s"})
    running = old.start("run")
    place.until(lambda: place.fetched("a"), "bytes on their way", running)
    assert " run` is at work in this working directory" in new.says("run", code=7)
    ((array, _),) = place.submissions("a", "copy")
    assert f"array {array} of copy" in new.says("cancel", "a")
    assert "copy was cancelled [a]: by " in place.ends(running, 1)
    assert not place.running()
    place.configure(["a"], plan={"shard_files": 30})
    new.says("run")
    assert sealed_by(place.published("a")) == NEW
