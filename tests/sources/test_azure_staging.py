"""Blobs of a real Azure server staged by the command that people type, compared byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
import yaml
from tests.contracts.source_contract import content
from tests.support import commands
from tests.support.azurite import KEY
from tests.support.whole_way import content as content_of

from penstock.config.fixed_settings import TESTED
from penstock.storage import tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.sources.conftest import AzuriteStore

SMALL = '{"plan.giant_bytes": "2MiB", "plan.part_bytes": "1MiB", "plan.shard_bytes": "8MiB"}'


MIB = 1 << 20


@pytest.fixture
def store(azure_store: AzuriteStore, tmp_path: Path) -> Iterator[AzuriteStore]:
    """The same; nothing of the target that it is staged to is left."""
    yield azure_store
    if (tmp_path / "target").exists():
        tree_removal.remove_tree(tmp_path / "target")


def test_two_hundred_blobs_and_a_giant(
    store: AzuriteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TESTED, SMALL)
    blobs = {f"{n % 7}/{n % 3}/blob {n:03d} %41#?": content(str(n), n * 531) for n in range(198)}
    blobs["giant"] = content("giant", 5 * MIB + 3)
    blobs["a-b"] = b""
    for key, data in blobs.items():
        store.put(key, data)
    store.container.upload_blob("elsewhere", b"not of this dataset")
    config = {
        "target": {"root": "target", "keep_free": "1MiB"},
        "datasets": {"d": {"source": store.url, "storage_options": store.options}},
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    done = commands.penstock("--config", "c.yaml", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    release = (tmp_path / "target/d/current").resolve()
    assert content_of(release / "data") == {key.encode(): data for key, data in blobs.items()}
    grades = pq.read_table(release / "manifest.parquet", columns=["size", "source_grade"]).to_pylist()
    assert {row["source_grade"] for row in grades if row["size"] < 2 * MIB} == {"full"}
    shown = done.stdout + done.stderr
    told = [path for path in tmp_path.rglob("*") if path.is_file() and path != store.secrets]
    for words in (KEY.encode(), b"Unclosed", b"Traceback"):
        assert words.decode() not in shown
        assert not [path for path in told if words in path.read_bytes()]
