"""The storage contract over the file systems of this machine, and what a full one does."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.contracts.storage_contract import StorageContract, make_writer, put
from tests.target.conftest import need, need_root

from penstock.core.errors import NoSpaceError
from penstock.fs.capabilities import facts
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.target.staging_writer import StagingWriter


class TestHere(StorageContract):
    """On the RAM file system and on the disk's."""


# ext4 must be testable; the others where their tools happen to be.
_KINDS = ["ext4", *(kind for kind in ("xfs", "btrfs") if shutil.which(f"mkfs.{kind}"))]


@pytest.fixture(scope="module", params=_KINDS)
def mounted(request: pytest.FixtureRequest) -> Iterator[Path]:
    need_root()
    make = need(f"mkfs.{request.param}")
    with tempfile.TemporaryDirectory(prefix="penstock-loop-") as folder:
        image, point = Path(folder) / "image", Path(folder) / "mnt"
        point.mkdir()
        with image.open("wb") as file:
            file.truncate(400 << 20)
        subprocess.run([make, "-q", str(image)], check=True, capture_output=True)
        mount = ["mount", "-o", "loop", str(image), str(point)]
        done = subprocess.run(mount, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"cannot mount {request.param} here: {done.stderr.strip()}")
        try:
            assert facts(point).kind == request.param
            yield point
        finally:
            subprocess.run(["umount", str(point)], check=True)


class TestMounted(StorageContract):
    """On file systems of our own."""

    @pytest.fixture
    def place(self, mounted: Path) -> Iterator[Path]:
        folder = Path(tempfile.mkdtemp(dir=mounted))
        yield folder
        tree_removal.remove_tree(folder)

    def test_cold_means_cold(self, place: Path) -> None:
        from penstock.engine.rereader import COLD_TRIES
        from penstock.fs.cold_read import ColdReader
        from penstock.target.staging_folder import Barrier

        with Barrier(place) as barrier, make_writer(place) as writer:
            put(writer, "f", bytes(100_000))
            barrier.wait()
        with ColdReader(place, facts(place)) as reader:
            # As verify does: under load a page may still be held by the kernel when it is to be dropped.
            methods = {reader.read("f", 0, 100_000, lambda _: None).method for _ in range(COLD_TRIES)}
        assert methods & {"direct", "dropped"}


@pytest.mark.parametrize(("options", "size"), [("size=256k", 70_000), ("size=8m,nr_inodes=12", 10)])
def test_a_full_target_is_told_and_resumed(options: str, size: int) -> None:
    need_root()
    with tempfile.TemporaryDirectory(prefix="penstock-full-") as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "penstock-test", folder], check=True)
        try:
            place = Path(folder)
            with make_writer(place) as writer:
                with pytest.raises(NoSpaceError) as caught:
                    _fill(writer, size)
                assert caught.value.exit_code == 6
                assert "[f" in str(caught.value)
                assert not [n.name for n in place.iterdir() if n.name.startswith(".p.")]
                (place / "f0").unlink()
                put(writer, "again", bytes(size))
                assert (place / "again").stat().st_size == size
        finally:
            subprocess.run(["umount", folder], check=True)


def _fill(writer: StagingWriter, size: int) -> None:
    for number in range(100):
        pending = writer.begin(f"f{number}", size)
        try:
            pending.write_all(memoryview(bytes(size)))
        except NoSpaceError:
            writer.discard(pending)
            raise
        writer.finish(pending, 0)
