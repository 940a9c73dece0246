"""A bucket in which objects change during the copy, on a real S3 server, by the command that people type."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.living import Bucket, Place, run_while_it_changes, whole
from tests.support.versity import UnavailableError, Versity

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    folder = Path(tempfile.mkdtemp(prefix="living-", dir="/var/tmp"))
    (folder / "root").mkdir()
    server = Versity(folder / "root", log=folder / "log")
    try:
        server.start()
    except UnavailableError as error:
        pytest.skip(f"no real S3 server: {error}")
    try:
        yield Bucket(server, f"b{uuid.uuid4().hex}", objects=300, size=32_000)
    finally:
        server.stop()
        shutil.rmtree(folder)


def test_a_living_bucket_is_published_and_its_rerun_has_nothing_to_do(bucket: Bucket, tmp_path: Path) -> None:
    place = Place(tmp_path / "follow", bucket, "follow", seconds=5, limits=("5%", "1%"))
    status, said, changed, left, read = run_while_it_changes(place, changes=12, gone=2)
    assert status == 0, said
    whole(bucket, place, [key for key in bucket.keys if key not in left])
    assert read == dict.fromkeys(set(bucket.keys) - set(left), 1), "each version was read once"
    assert len(changed) == 12
    since = len(bucket.log())
    status, said = place.run()
    assert status == 0, said
    assert "nothing was copied" in said
    assert not bucket.fetched(since)
    assert len(place.releases()) == 1
