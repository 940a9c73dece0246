"""A bucket in which objects change during the copy, on a real S3 server, by the command that people type."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.go_servers import UnavailableError
from tests.support.living import Bucket, Place, kill_group, run_while_it_changes, whole
from tests.support.versity import Versity

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
        yield Bucket(server, f"b{uuid.uuid4().hex}", objects=160, size=32_000)
    finally:
        server.stop()
        shutil.rmtree(folder)


def test_a_living_bucket_is_published_and_its_rerun_has_nothing_to_do(bucket: Bucket, tmp_path: Path) -> None:
    place = Place(tmp_path / "follow", bucket, "follow", seconds=5, limits=(0.05, 0.01))
    status, said, changed, left, read = run_while_it_changes(place, changes=6, gone=1)
    assert status == 0, said
    whole(bucket, place, [key for key in bucket.keys if key not in left])
    assert read == dict.fromkeys(set(bucket.keys) - set(left), 1), "each version was read once"
    assert len(changed) == 6
    since = len(bucket.log())
    status, said = place.run()
    assert status == 0, said
    assert "nothing was copied" in said
    assert not bucket.fetched(since)
    assert len(place.releases()) == 1


def test_a_rerun_after_a_refusal_reads_what_changed_and_what_was_missing(
    bucket: Bucket, tmp_path: Path
) -> None:
    place = Place(tmp_path / "refuse", bucket, "refuse", seconds=4)
    status, said, changed, _, read = run_while_it_changes(place, changes=6, gone=0)
    assert status == 5, said
    assert "changed: follow" in said
    missing = set(bucket.keys) - set(read)
    assert missing == set(changed)
    since = len(bucket.log())
    status, said = place.run()
    assert status == 0, said
    whole(bucket, place, bucket.keys)
    assert bucket.fetched(since) == dict.fromkeys(missing, 1)


@pytest.mark.thorough
def test_kill_9_in_a_living_bucket(bucket: Bucket, tmp_path: Path) -> None:
    """The same command goes on. What the killed run had copied is not read again."""
    place = Place(tmp_path / "follow", bucket, "follow", seconds=6, limits=(0.1, 0.02))
    with place.running() as process:
        bucket.wait_for(lambda seen: len(seen) >= bucket.objects // 4, 0, process)
        changed, left = bucket.keys[-14:-2], bucket.keys[-2:]
        for key in changed:
            bucket.put(key)
        for key in left:
            bucket.remove(key)
        bucket.wait_for(lambda seen: len(seen) >= bucket.objects // 2, 0, process)
        kill_group(process)
    before = bucket.fetched()
    status, said = place.run()
    assert status == 0, said
    whole(bucket, place, [key for key in bucket.keys if key not in left])
    twice = [key for key, count in bucket.fetched().items() if count > 1]
    # What was on its way, or not yet durable in the journal, when it was killed.
    assert len(twice) < len(before) // 2, twice
