"""S16, show 6: a stub in a published release. An audit says `offline`, and neither opens nor reads it."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.filesystems.bed import Bed
from tests.filesystems.test_staging import Place
from tests.support.staging_runs import tree
from tests.vendors.beegfs_cluster import Cluster

from penstock.jobs import audits_and_adoptions

if TYPE_CHECKING:
    from pathlib import Path

FILES = {f"d{i % 2}/f {i}": bytes([i]) * 6000 for i in range(8)} | {"giant": bytes(range(250)) * 20_000}
STUB = "d1/f 7"


class Staged(Place):
    """A published release on a bed whose rules are BeeGFS'."""

    def written(self, *, limit: str = "") -> None:
        super().written()
        shutil.rmtree(self.source)
        tree(self.source, FILES)

    def stage(self) -> str:
        """Stage it; the release's data folder, as the bed calls it."""
        done = self.penstock(0, "run")
        assert done.returncode == 0, done.stdout + done.stderr
        return os.path.realpath(self.release(0) / "data").removeprefix(f"{self.bed.nodes[0]}/")

    def audited(self) -> tuple[str, dict[str, object]]:
        """Audit on the other node: what it said, and its result."""
        done = self.penstock(1, "audit", "data")
        assert done.returncode == 0, done.stdout + done.stderr
        newest, ended = next(audits_and_adoptions.audits_of(self.layout))
        assert ended
        result: dict[str, object] = json.loads(newest.layout(self.layout).result.read_bytes())
        return done.stdout, result


def asked_of(bed: Bed, path: str) -> set[str]:
    return {one.name for one in bed.operations() if one.path == path}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "command", [pytest.param(False, marks=pytest.mark.thorough), True], ids=["blocks", "command"]
)
def test_s16_show_6_a_stub_is_offline_and_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, command: bool
) -> None:
    with Bed(nodes=2, named="beegfs8") as bed:
        place = Staged(tmp_path, bed)
        place.settings = {"target.filesystem": "beegfs"}
        data = place.stage()
        if command:
            cluster = Cluster(tmp_path / "beegfs", 8)
            cluster.write(mount=str(bed.nodes[0]))
            monkeypatch.setenv("PATH", f"{cluster.bin}:{os.environ['PATH']}")
        said, result = place.audited()
        assert result["status"] == "PASSED", said
        assert result["grade"] == "reread", "no read of a FUSE file system is cold"
        bed.order("stub", path=f"{data}/{STUB}")
        before = len(bed.operations())
        said, result = place.audited()
        of_stub = {one.name for one in bed.operations()[before:] if one.path == f"{data}/{STUB}"}
        assert not of_stub & {"open", "read", "restore"}, of_stub
        # A name that the kernel knows already is not looked up again.
        assert of_stub & {"lookup", "getattr"}, "it was looked at"
        others = {one.path for one in bed.operations()[before:] if one.name == "read"}
        assert f"{data}/giant" in others
    size = len(FILES[STUB])
    why = "a stub (BeeGFS restores it: auto)" if command else "it has a size and no blocks"
    assert result["skipped"] == {"offline": {"files": 1, "bytes": size, "paths": [[STUB, why]]}}
    assert result["status"] == "PARTLY"
    assert result["grade"] == "reread, of the files that were read"
    assert result["counts"] == {}
    assert "1 offline" in said
    assert "of the files that were read" in said
    if command:
        calls = [call["argv"] for call in cluster.calls()]
        assert len(calls) <= 2 * 5 + 2, "not a command for each file"
        assert all(argv[:3] == ["beegfs", "entry", "info"] for argv in calls)
