"""All steps: Google's and Azure's objects by penstock's readers, all three stores by fsspec's libraries.

What is staged is compared byte for byte. `list` and the elements are processes of their own, so that what the
libraries print at their end is seen.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
import yaml
from tests.contracts.source_contract import content
from tests.sources.conftest import AdlfsStore, AzuriteStore, GcsfsStore, GcsStore, S3fsStore
from tests.support import commands
from tests.support.azurite import KEY
from tests.support.versity import SECRET
from tests.support.whole_way import STEPS
from tests.support.whole_way import content as content_of

from penstock.cli.main import main
from penstock.config.loader import TESTED
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1 << 20

SMALL = {
    "plan.giant_bytes": "2MiB",
    "plan.part_bytes": "1MiB",
    "plan.shard_bytes": "8MiB",
    "engine.workers": 1,
}


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Path]:
    """Where they are staged to; nothing of it is left."""
    yield tmp_path / "target"
    if (tmp_path / "target").exists():
        tree_removal.remove_tree(tmp_path / "target")


def made(kind: str, request: pytest.FixtureRequest, folder: Path) -> tuple[Any, str, dict[str, Any]]:
    """A store, the URL of its prefix and the options by which it is read."""
    name = f"b{uuid.uuid4().hex}"
    store: Any
    if kind == "s3fs":
        store = S3fsStore(request.getfixturevalue("versity"), name, folder)
    elif kind in ("adlfs", "azure"):
        of_azure = AdlfsStore if kind == "adlfs" else AzuriteStore
        store = of_azure(request.getfixturevalue("azurite"), folder, name)
        store.container.upload_blob("elsewhere", b"not of this dataset")
    else:
        server = request.getfixturevalue("fake_gcs")
        store = GcsfsStore(server, name) if kind == "gcsfs" else GcsStore(server, name)
    if kind == "azure":
        return store, store.url, store.options
    config = store.config()
    return store, config.url, dict(config.storage_options)


@pytest.mark.parametrize("kind", ["gcs", "azure", "gcsfs", "s3fs", "adlfs"])
def test_a_dataset_is_staged(
    kind: str,
    request: pytest.FixtureRequest,
    target: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(TESTED, json.dumps(SMALL))
    store, url, options = made(kind, request, tmp_path)
    objects = {f"{n % 5}/blob {n:03d} %41#?": content(str(n), n * 531) for n in range(40)}
    objects["giant"] = content("giant", 5 * MIB + 3)
    objects["a-b"] = b""
    for key, data in objects.items():
        store.put(key, data)
    config = {
        "target": {"root": "target", "keep_free": "1MiB"},
        "datasets": {"d": {"source": url, "storage_options": options}},
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    # What `penstock run` would leave of each step is looked through below as well.
    calls = {
        step: ["--config", "c.yaml", "step", step, "d", "--receipt", f"{step}.json", "--log", f"{step}.log"]
        for step in STEPS
    }
    listed = commands.penstock(*calls.pop("list"), cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr
    monkeypatch.chdir(tmp_path)
    capfd.readouterr()
    ended = [main(call) for call in calls.values()]
    shown = "".join([listed.stdout, listed.stderr, *capfd.readouterr()])
    assert not any(ended), shown
    release = (target / "d/current").resolve()
    assert content_of(release / "data") == {key.encode(): data for key, data in objects.items()}
    proofs = pq.read_table(release / "manifest.parquet", columns=["path", "source_grade"]).to_pylist()
    grades = {row["path"]: row["source_grade"] for row in proofs}
    giant = grades.pop(b"giant")
    # Google states a CRC32C, Azure's SDK an MD5, which parts do not join; s3fs hands on no checksum.
    assert set(grades.values()) == {"size" if kind == "s3fs" else "full"}
    assert giant == ("full" if kind in ("gcs", "gcsfs") else "size")
    written = [
        path for path in tmp_path.rglob("*") if path.is_file() and path.name not in ("secrets", "s3fs")
    ]
    for words in (KEY, SECRET, "Unclosed", "Traceback"):
        assert words not in shown
        assert not [path for path in written if words.encode() in path.read_bytes()]
    if hasattr(store, "close"):
        store.close()
