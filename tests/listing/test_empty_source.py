"""Preflight refuses a source without any object, as the listing would, and says what to correct."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.commands import penstock
from tests.support.s3server import S3Server

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = "put the files there, or correct the path"
PREFIX = "correct the bucket, container or host, or the prefix, which needs its slash at the end"


def preflight(tmp_path: Path, source: str, options: str = "{}") -> tuple[int, str]:
    (tmp_path / "target").mkdir()
    (tmp_path / "penstock.yaml").write_text(
        f"target: {{root: {tmp_path}/target}}\n"
        f"datasets: {{d: {{source: '{source}', storage_options: {options}}}}}\n"
    )
    done = penstock("preflight", cwd=tmp_path)
    return done.returncode, done.stderr


def test_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    status, said = preflight(tmp_path, f"{tmp_path}/source")
    assert status == 3
    assert f"penstock: the source has 0 objects [file://{tmp_path}/source]\n  {FOLDER}\n" in said


@pytest.mark.parametrize(("key", "status"), [("train/a", 0), ("other/a", 3)])
def test_a_prefix(tmp_path: Path, key: str, status: int) -> None:
    file = tmp_path / "served" / key
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x")
    with S3Server(tmp_path / "served") as server:
        options = f'{{endpoint_url: "{server.endpoint}", anon: true}}'
        ended, said = preflight(tmp_path, f"s3://{server.bucket}/train/", options)
    assert ended == status
    assert ("the source has 0 objects" in said) == (PREFIX in said) == (status == 3)
