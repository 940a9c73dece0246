"""S16: linked files whose data is in an archive are not read back, and lower what a release proves."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.whole_way import content, go, records, texts
from tests.vendors.tiers import RELEASED, Tiers

from penstock.config.settings import AuditConfig, VerifyConfig
from penstock.core.errors import FailedError, FindingsError

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.dataset.context import Context

FILES = {"bad.bin": b"b" * 3000, "good.bin": b"g" * 70_000, "x/3.bin": b"3" * 9000}
AWAY = "good.bin"


def on(context: Context, filesystem: str, *, recall: int = 0, minimum: str = "auto") -> None:
    config = context.config
    context.config = replace(
        config,
        target=replace(config.target, filesystem=filesystem),
        audit=AuditConfig(recall),
        verify=VerifyConfig(minimum_grade=minimum, linked=None),
    )


def test_s16_a_linked_file_that_is_offline_is_not_read_back(
    context: Context, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lfs = Tiers(tmp_path / "bin", "lfs", monkeypatch)
    on(context, "lustre")
    first = go(context)["release"]
    before = records(context)
    lfs.write({AWAY: RELEASED})
    (source / "new").write_bytes(b"new")
    with pytest.raises(FindingsError, match="written"):
        go(context)
    assert os.readlink(context.layout("data").current) == f"releases/{first}"
    on(context, "lustre", minimum="written", recall=1 << 40)
    go(context)
    assert content(context.layout("data").current / "data") == content(source)
    found = records(context)
    assert (found[AWAY].method, found[AWAY].storage_grade) == ("unread", "written")
    assert found[AWAY].digest == before[AWAY].digest
    assert found["new"].method != "unread"
    assert found["bad.bin"].method != "unread", "what is linked and here is read"


def test_s16_a_tiered_one_is_read_within_recall(
    context: Context, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weka = Tiers(tmp_path / "bin", "weka", monkeypatch)
    on(context, "wekafs")
    go(context)
    weka.write({AWAY: [0, 0, 70_000]})
    (source / "new").write_bytes(b"new")
    on(context, "wekafs", recall=1 << 40)
    go(context)
    assert records(context)[AWAY].method != "unread"


def test_s16_digests_that_reading_alone_gives_are_not_left_out(
    context: Context, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lfs = Tiers(tmp_path / "bin", "lfs", monkeypatch)
    on(context, "lustre")
    config = context.config
    context.config = replace(config, verify=replace(config.verify, digests=("xxh3_128", "sha256")))
    go(context)
    lfs.write({AWAY: RELEASED})
    (source / "new").write_bytes(b"new")
    with pytest.raises(FailedError, match="did not finish") as caught:
        go(context)
    assert "must be read for its digests, and is offline: released to the archive" in str(caught.value)
    assert "plan.reuse: none" in str(caught.value)
    assert not [text for text in texts(context) if "traceback" in text]
