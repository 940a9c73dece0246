"""What a purge, or a person, does to folders: `gate --mend` and `repair` make them again, or refuse what they
did not write."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.forked import forked
from tests.support.published import data_of, flip, published, writable
from tests.support.staging_runs import tree

from penstock.core.errors import FindingsError, PreflightError
from penstock.core.findings import AuditSelection
from penstock.dataset import gate
from penstock.keep import audit_plan, audit_step, gate_repair, repair_step
from penstock.keep.repair_array import mender_of
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = {"a/one": b"one", "a/b/two": b"2" * 5000, "c/three": b"three", "top": b"top"}
WHOLE = gate_repair.Wish(choice=AuditSelection())
NOTHING = AuditSelection("sample", 1e-9, "seed")
"""A sample so small that no file is in it."""
ACCOUNT = 2004


def shown(data: Path) -> dict[str, tuple[int, bytes]]:
    """Mode of everything below `data`, and the bytes of files."""
    return {
        str(one.relative_to(data)): (one.lstat().st_mode, b"" if one.is_dir() else one.read_bytes())
        for one in (data, *sorted(data.rglob("*")))
    }


@pytest.mark.parametrize("by", ["mend", "repair"])
def test_a_purge_that_took_all_files_and_then_the_empty_folders_is_made_good(tmp_path: Path, by: str) -> None:
    source = tree(tmp_path / "source", FILES)
    (source / "hollow/inner").mkdir(parents=True)
    with published(tmp_path, source, empty_folders="keep") as context:
        data = data_of(context)
        before, mode = shown(data), data.parent.stat().st_mode
        with writable(data.parent):
            tree_removal.remove_tree(data)
        if by == "mend":
            result = gate_repair.run(context, "data")
            assert (result["status"], result["fetched_bytes"]) == ("REPAIRED", sum(map(len, FILES.values())))
        else:
            counts = audit_step.run(context, "data")["counts"]
            assert counts == {"missing": 1 + len(FILES), "folder": 1}
            assert repair_step.run(context, "data")["status"] == "REPAIRED"
        assert shown(data) == before
        assert data.parent.stat().st_mode == mode
        gate.passed(context.layout("data"))
        assert audit_step.run(context, "data")["status"] == "PASSED"


def test_a_link_in_the_place_of_the_data_folder_is_refused_and_never_followed(tmp_path: Path) -> None:
    with published(tmp_path, tree(tmp_path / "source", FILES)) as context:
        data, elsewhere = data_of(context), tmp_path / "elsewhere"
        flip(data / "top")
        assert audit_step.run(context, "data")["counts"] == {"changed": 1}
        with writable(data.parent), writable(data):
            data.rename(elsewhere)
            data.symlink_to(elsewhere)
        before = shown(elsewhere)
        for repaired in (
            lambda: repair_step.run(context, "data"),
            lambda: gate_repair.run(context, "data", WHOLE),
        ):
            with pytest.raises(FindingsError, match="something else stands in the place"):
                repaired()
            assert shown(elsewhere) == before
        with writable(data.parent), writable(data):
            data.unlink()
            elsewhere.rename(data)
        assert gate_repair.run(context, "data", WHOLE)["status"] == "REPAIRED"
        assert (data / "top").read_bytes() == b"top"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of an account that may not read what its mode forbids."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another account")
    folder = Path(tempfile.mkdtemp(prefix="penstock-mending-"))
    os.chown(folder, ACCOUNT, ACCOUNT)
    yield folder
    tree_removal.remove_tree(folder)


def test_a_mode_is_set_right_by_the_account_that_root_gave_the_dataset_to(place: Path) -> None:
    """docs/site.md: what is its own is as published, though the seal names the owner of before."""

    def work() -> None:
        with published(place, tree(place / "source", FILES)) as context:
            layout, data = context.layout("data"), data_of(context)
            before, release = shown(data), data.parent.name
            seal, _ = audit_plan.read_seal(layout, release)
            given = seal._replace(permissions=seal.permissions._replace(uid=0, user="root"))
            (data / "a").chmod(0o700)
            (data / "top").chmod(0o400)
            with mender_of(context, layout, given, release) as mender:
                mender.set_mode("a")
                mender.set_mode("top")
            assert shown(data) == before

    forked(work, uid=ACCOUNT)


def test_a_folder_that_could_not_be_read_is_opened_and_what_lies_below_it_is_read(place: Path) -> None:
    """The audit could compare nothing below it: one file there is gone, one has other bytes."""

    def work() -> None:
        with published(place, tree(place / "source", FILES)) as context:
            data = data_of(context)
            before = shown(data)
            flip(data / "a/one")
            with writable(data / "a/b"):
                (data / "a/b/two").unlink()
            (data / "a").chmod(0)
            request = audit_step.AuditRequest(choice=NOTHING)
            assert audit_step.run(context, "data", request)["counts"] == {"unread": 1, "mode": 1}
            result = repair_step.run(context, "data")
            assert (result["status"], result["fetched_bytes"]) == ("REPAIRED", 3 + 5000)
            assert shown(data) == before
            (data / "a").chmod(0)
            assert gate_repair.run(context, "data", gate_repair.Wish(choice=NOTHING))["status"] == "REPAIRED"
            assert shown(data) == before

    forked(work, uid=ACCOUNT)


def test_a_purge_that_took_the_state_does_not_keep_a_release_from_being_repaired(tmp_path: Path) -> None:
    with published(tmp_path, tree(tmp_path / "source", FILES)) as context:
        layout, data = context.layout("data"), data_of(context)
        shutil.rmtree(layout.state)
        with writable(data):
            (data / "top").unlink()
        assert gate_repair.run(context, "data", WHOLE)["status"] == "REPAIRED"
        assert (data / "top").read_bytes() == b"top"
        assert stat.S_IMODE(layout.state.stat().st_mode) == 0o700


def test_a_state_root_that_is_not_mounted_ends_the_command_and_nothing_is_made_there(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    with published(tmp_path, tree(tmp_path / "source", FILES)) as context:
        layout = context.layout("data")
        # As if it had been configured from the beginning.
        target = replace(context.config.target, state_root=state)
        context.config = replace(context.config, target=target)
        away = tmp_path / "away"
        (away / "data").mkdir(parents=True)
        layout.state.rename(away / "data" / layout.state.name)
        state.mkdir()
        for work in (audit_step.run, gate_repair.run):
            with pytest.raises(PreflightError, match="the dataset's state is missing"):
                work(context, "data")
        assert not list(state.iterdir())
        state.rmdir()
        away.rename(state)
        assert audit_step.run(context, "data")["status"] == "PASSED"
