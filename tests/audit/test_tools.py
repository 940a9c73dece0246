"""The manifests, checked by the tools that everybody has."""

from __future__ import annotations

import hashlib
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
import xxhash
from tests.support.published import content, data_of, flip, published
from tests.support.staging_runs import tree
from tests.target.conftest import need

from penstock.config.settings import PlanConfig, VerifyConfig
from penstock.tables.manifest import read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.dataset.context import Context

NAMES = [
    b"plain",
    b"two  blanks ",
    b" leading",
    b"-dash",
    b"--check",
    b"back\\slash",
    b"back\\nslash",
    b"\\leading",
    b"*star",
    b"carriage\rreturn",
    b"tab\there",
    b"not \xff\xfe utf-8",
    "日本語/é".encode(),
    b"# comment",
    b"empty",
]
NEWLINE = b"line\nfeed"
GIANT = (30 << 20) + 7


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Context, Path]]:
    folder = tmp_path_factory.mktemp("tools")
    files = {os.fsdecode(name): content(i, 3000 + i) for i, name in enumerate([*NAMES, NEWLINE])}
    files["empty"] = b""
    files["giant"] = content(77, GIANT)
    verify = VerifyConfig(digests=("xxh3_128", "sha256"))
    plan = PlanConfig(giant_bytes=4 << 20, part_bytes=3 << 20)
    with published(folder, tree(folder / "source", files), verify=verify, plan=plan) as context:
        yield context, data_of(context).parent


def check(tool: str, *words: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([need(tool), *words], cwd=folder, capture_output=True, check=False)


def test_sha256sum_takes_every_name(release: tuple[Context, Path]) -> None:
    done = check("sha256sum", "--strict", "-c", "manifest.sha256", folder=release[1])
    assert done.returncode == 0, done
    assert done.stdout.count(b": OK\n") == len(NAMES) + 2


def test_xxhsum_takes_every_name_that_it_can_carry(release: tuple[Context, Path], tmp_path: Path) -> None:
    folder = release[1]
    lines = (folder / "manifest.xxh128").read_bytes().split(b"\n")[:-1]
    assert len(lines) == len(NAMES) + 2
    escaped = [line for line in lines if line.startswith(b"\\")]
    assert len(escaped) == 1
    assert NEWLINE.replace(b"\n", b"\\n") in escaped[0]
    # As it is, it is accepted, with a warning of that one line.
    done = check("xxhsum", "-c", "manifest.xxh128", folder=folder)
    assert done.returncode == 0, done
    assert b"1 line is improperly formatted" in done.stdout + done.stderr
    carried = tmp_path / "carried"
    carried.write_bytes(b"".join(line + b"\n" for line in lines if line not in escaped))
    done = check("xxhsum", "--strict", "-c", str(carried), folder=folder)
    assert done.returncode == 0, done
    assert done.stdout.count(b": OK") == len(NAMES) + 1


def test_both_notice_one_flipped_bit(release: tuple[Context, Path]) -> None:
    path = release[1] / "data/plain"
    flip(path)
    try:
        for tool, manifest in (("sha256sum", "manifest.sha256"), ("xxhsum", "manifest.xxh128")):
            done = check(tool, "-c", manifest, folder=release[1])
            assert done.returncode == 1
            assert b"data/plain: FAILED" in done.stdout
    finally:
        flip(path)


def test_a_giant_has_the_digest_of_its_parts_and_its_own(release: tuple[Context, Path]) -> None:
    records = {r.path: r for batch in read_manifest(release[1] / "manifest.parquet") for r in batch}
    giant = records["giant"]
    assert giant.digest.startswith("xxh3_128/3145728:")
    assert len(giant.parts) == 11 * 16
    whole = content(77, GIANT)
    assert giant.digests == (
        f"xxh3_128:{xxhash.xxh3_128_hexdigest(whole)} sha256:{hashlib.sha256(whole).hexdigest()}"
    )
    assert records["plain"].digests.startswith("sha256:")
