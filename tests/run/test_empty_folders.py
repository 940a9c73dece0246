"""Empty folders of a source, where a dataset keeps them: staged, sealed, audited, part of a release."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.published import writable
from tests.support.staging_runs import tree
from tests.support.whole_way import go, staging

from penstock.core.errors import FailedError, NewerFormatError, PreflightError
from penstock.core.layout import DATA, EMPTY_FOLDERS, MANIFEST
from penstock.dataset import release_records
from penstock.keep import audit_step, repair_step
from penstock.listing import collection
from penstock.run import list_step
from penstock.tables import json_files

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.dataset.context import Context

EMPTY = ["alone", "b/c/d", "full/empty", os.fsdecode(b"raw\xff"), "z z"]


def source(tmp_path: Path) -> Path:
    root = tree(tmp_path / "source", {"full/file": b"1" * 10, "b.txt": b"2", "z": b"3"})
    for name in EMPTY:
        (root / name).mkdir(parents=True)
    return root


def folders(root: Path) -> set[str]:
    return {
        os.path.relpath(os.path.join(top, name), root) for top, names, _ in os.walk(root) for name in names
    }


def released(context: Context, receipt: dict[str, Any]) -> Path:
    return context.layout("data").release(receipt["release"])


def test_they_are_published_and_audited(tmp_path: Path) -> None:
    root = source(tmp_path)
    with staging(tmp_path, root, empty_folders="keep") as context:
        receipt = go(context)
        release = released(context, receipt)
        assert folders(release / DATA) == folders(root)
        assert json_files.read_empty_folders(release / EMPTY_FOLDERS) == tuple(sorted(EMPTY, key=os.fsencode))
        modes = {os.stat(os.path.join(release / DATA, name)).st_mode & 0o7777 for name in folders(root)}
        assert modes == {0o2550}
        assert go(context)["release"] == receipt["release"], "an unchanged source has nothing to do"
        assert audit_step.run(context, "data")["counts"] == {}
        os.chmod(release / DATA, 0o750)
        os.rmdir(release / DATA / "alone")
        os.chmod(release / DATA, 0o2550)
        found = audit_step.run(context, "data")
        assert found["counts"] == {"folder": 1}


def test_a_repair_makes_them_again(tmp_path: Path) -> None:
    root = source(tmp_path)
    with staging(tmp_path, root, empty_folders="keep") as context:
        release = released(context, go(context))
        data = release / DATA
        with writable(data):
            for name in ("b", "b/c"):
                (data / name).chmod(0o750)
            for name in ("alone", "b/c/d", "b/c", "b", "z z"):
                os.rmdir(data / name)
            (data / "z z").write_bytes(b"somebody's")
        assert audit_step.run(context, "data")["counts"] == {"extra": 1, "folder": 3}
        done = repair_step.run(context, "data")
        assert done["status"] == "PARTLY"
        assert done["repaired"] == [["alone", "made again"], ["b/c/d", "made again"]]
        assert [path for path, _ in done["unrepairable"]] == done["left"] == ["z z"]
        assert (data / "z z").read_bytes() == b"somebody's"
        verdict = release_records.read_verdict(context.layout("data"), release.name)
        assert release_records.standing_findings(verdict) == {"extra": 1, "folder": 1}
        with writable(data):
            (data / "z z").unlink()
        assert repair_step.run(context, "data")["status"] == "REPAIRED"
        assert folders(data) == folders(root)
        assert {os.stat(data / name).st_mode & 0o7777 for name in (".", *folders(root))} == {0o2550}
        assert audit_step.run(context, "data")["counts"] == {}


def test_another_empty_folder_is_another_release(tmp_path: Path) -> None:
    root = source(tmp_path)
    with staging(tmp_path, root, empty_folders="keep") as context:
        first = list_step.run(context, "data")["run"]
        (root / "new").mkdir()
        assert list_step.run(context, "data")["run"] != first
        (root / "new").rmdir()
        assert list_step.run(context, "data")["run"] == first


def test_left_out_they_change_nothing(tmp_path: Path) -> None:
    root = source(tmp_path)
    with staging(tmp_path, root) as context:
        receipt = go(context)
        assert folders(released(context, receipt) / DATA) == {"full"}
        assert not (released(context, receipt) / EMPTY_FOLDERS).exists()
        assert receipt["release"] == go(context)["release"]
        (root / "new").mkdir()
        assert list_step.run(context, "data")["run"] == receipt["run"]


def test_one_that_is_gone_before_publication_is_named(tmp_path: Path) -> None:
    with staging(tmp_path, source(tmp_path), empty_folders="keep") as context:
        go(context, upto="verify")
        run = list_step.run(context, "data")
        data = context.layout("data").staging(run["release"]) / DATA
        os.chmod(data, 0o2750)
        os.rmdir(data / "alone")
        os.chmod(data, 0o2550)
        with pytest.raises(FailedError, match="alone"):
            go(context, after="verify")


def test_a_name_that_is_no_path_is_refused(tmp_path: Path) -> None:
    root = source(tmp_path)
    (root / ".p.0123456789abcdef").mkdir()
    with (
        staging(tmp_path, root, empty_folders="keep") as context,
        pytest.raises(PreflightError, match="0123456"),
    ):
        list_step.run(context, "data")


def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / EMPTY_FOLDERS
    path.write_text(json.dumps({"format": 2, "folders": []}))
    with pytest.raises(NewerFormatError, match="newer format"):
        json_files.read_empty_folders(path)
    assert json_files.read_empty_folders(tmp_path / "none") == ()
    assert MANIFEST != EMPTY_FOLDERS
    assert collection.Gathered.__dataclass_fields__["empty_folders"]
