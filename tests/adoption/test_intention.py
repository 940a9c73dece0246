"""Before the rename nothing is decided: an intention that a kill left is compared anew, and trees that a
rename would harm are refused while they still stand."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.adoption.test_sealing import as_source, compare, inodes, seal
from tests.support.forked import forked
from tests.support.staging_runs import context_for

from penstock.core.errors import FailedError, FindingsError, PreflightError
from penstock.dataset import run_store
from penstock.run import adopt_seal, adopt_step, adopted_tree, copy_step, plan_step
from penstock.run.adopt_step import Request
from penstock.target import adopted_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.adoption.conftest import Place

    from penstock.dataset.documents import Run


def intend(place: Place) -> Run:
    compared = compare(place)
    return adopt_seal.mark(place.context, "data", compared)


def move(place: Place) -> Run:
    intend(place)
    plan_step.run(place.context, "data")
    run = run_store.open_run(place.context.layout("data"))
    adopted_tree.settle(place.context, run)
    return run


def test_another_tree_is_adopted_where_the_first_has_not_moved(
    place: Place, copied: Callable[..., Path]
) -> None:
    intend(place)
    plan_step.run(place.context, "data")
    first, place.copy = place.copy, copied(place.source, "second")
    before, top = inodes(first), place.copy.stat().st_ino
    result = seal(place)
    assert Path(result["path"]).stat().st_ino == top
    assert inodes(first) == before
    as_source(place, result)


def test_another_tree_is_refused_where_the_first_has_moved(place: Place, copied: Callable[..., Path]) -> None:
    move(place)
    first, place.copy = place.copy, copied(place.source, "second")
    before = inodes(place.copy)
    with pytest.raises(PreflightError, match="another tree became the staging") as caught:
        intend(place)
    assert f"adopt data {first} --seal" in caught.value.hint
    assert inodes(place.copy) == before
    as_source(place, adopt_seal.go_on(place.context, "data"))


def test_what_came_after_an_intention_is_compared_before_the_tree_moves(place: Place) -> None:
    intend(place)
    plan_step.run(place.context, "data")
    (place.copy / "late").write_bytes(b"late")
    assert adopt_seal.under_way(place.context, "data", place.copy) is None
    with pytest.raises(FindingsError, match="holds what the release will not"):
        seal(place)
    assert (place.copy / "late").exists()
    as_source(place, seal(place, leave_extra=True))


def test_a_tree_that_was_made_anew_after_an_intention_is_the_one_that_is_adopted(
    place: Place, copied: Callable[..., Path]
) -> None:
    run = intend(place)
    plan_step.run(place.context, "data")
    place.copy.rename(place.copy.parent / "old")
    copied(place.source)
    with pytest.raises(FailedError, match="neither where it was nor in the staging") as caught:
        copy_step.run(place.context, "data")
    assert str(run.folder.folder) in caught.value.hint
    top = place.copy.stat().st_ino
    result = seal(place)
    assert Path(result["path"]).stat().st_ino == top
    as_source(place, result)


def test_a_tree_that_has_moved_is_gone_on_with(place: Place) -> None:
    move(place)
    assert adopt_seal.under_way(place.context, "data", place.copy) is not None


def test_a_tree_whose_source_changed_before_it_was_taken_over_goes_back(place: Place) -> None:
    before = inodes(place.copy)
    run = intend(place)
    plan_step.run(place.context, "data")
    adopted_files.move_tree(place.copy, run.data, place.copy.stat().st_ino)
    (place.source / "late").write_bytes(b"late")
    begun = adopt_seal.under_way(place.context, "data", place.copy)
    assert begun is not None
    with pytest.raises(FailedError, match="the source changed since") as caught:
        adopt_seal.go_on(place.context, "data", begun)
    assert f"back at {place.copy}" in caught.value.why
    assert inodes(place.copy) == before
    result = seal(place)
    assert result["fetched"] == 1
    assert before.items() <= inodes(Path(result["path"])).items()
    as_source(place, result)


@pytest.mark.parametrize("part", ["", "releases", "current/data"])
def test_what_penstock_staged_is_never_taken_for_a_tree(place: Place, tmp_path: Path, part: str) -> None:
    result = seal(place)
    other = context_for(tmp_path / "second", place.source)
    (tmp_path / "second/target").mkdir(parents=True)
    staged = place.context.layout("data").folder
    with pytest.raises(PreflightError, match="of a dataset that penstock staged"):
        adopt_step.run(other, "data", Request(staged / part, seal=True))
    as_source(place, result)


def test_a_tree_with_a_dataset_in_it_is_refused(place: Place, tmp_path: Path) -> None:
    seal(place)
    other = context_for(tmp_path / "second", place.source)
    (tmp_path / "second/target").mkdir(parents=True)
    root = place.context.layout("data").root
    compared = adopt_step.run(other, "data", Request(root, seal=True))
    with pytest.raises(PreflightError, match="a dataset that penstock staged lies in the tree"):
        adopt_seal.refuse(compared, leave_extra=True)


def test_a_place_where_nothing_can_be_moved_aside_is_refused_before_the_tree_is_read(place: Place) -> None:
    aside = Path(adopt_seal.aside_of(str(place.copy)))
    aside.write_bytes(b"mine")
    with pytest.raises(PreflightError, match="cannot be moved aside") as caught:
        compare(place)
    assert "no folder stands there" in caught.value.why
    aside.unlink()
    aside.symlink_to(place.source)
    with pytest.raises(PreflightError, match="cannot be moved aside"):
        compare(place)
    aside.unlink()
    place.copy = place.copy.rename(place.copy.parent / ("n" * 250))
    with pytest.raises(PreflightError, match="cannot be moved aside") as caught:
        compare(place)
    assert "too long" in caught.value.why


def test_a_folder_that_cannot_be_read_keeps_a_tree_from_becoming_a_release(place: Place) -> None:
    dark = place.copy / "dark"
    dark.mkdir(mode=0)
    for path in (place.copy.parent, *place.copy.parent.parents):
        if path.stat().st_uid == os.geteuid() and str(path).startswith("/tmp"):
            path.chmod(path.stat().st_mode | 0o055)

    def work() -> str:
        os.environ["XDG_STATE_HOME"] = f"/tmp/penstock-adopt-{os.getpid()}"
        result = adopt_step.run(place.context, "data", Request(place.copy, read_source=True))
        try:
            adopt_seal.refuse(result, leave_extra=True)
        except PreflightError as error:
            return f"{error.what}: {error.why}"
        finally:
            shutil.rmtree(os.environ["XDG_STATE_HOME"])
        return ""

    told = forked(work, uid=2005)
    dark.chmod(0o700)
    assert told == '1 folder of the tree cannot be read: "dark/"'


def test_folders_of_a_group_that_this_account_is_not_in_are_refused_before_the_tree_moves(
    place: Place,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give folders away")
    (place.copy.parent / "target").mkdir()
    for path in (place.copy.parent, *place.copy.parent.parents):
        if path.stat().st_uid == 0 and str(path).startswith("/tmp"):
            path.chmod(path.stat().st_mode | 0o055)
    for path in (place.copy.parent, place.copy.parent / "target", place.copy, *place.copy.rglob("*")):
        os.chown(path, 2005, 2005)
    os.chown(place.copy / "d1", 2005, 2999)

    def work() -> str:
        os.environ["XDG_STATE_HOME"] = str(place.copy.parent / "state")
        try:
            intend(place)
        except PreflightError as error:
            return f"{error.what}: {error.why}"
        return ""

    told = forked(work, uid=2005)
    assert told.startswith('1 folder of the tree with a group that this account is not in: "d1"')


MOUNTED = """
mount --bind "$1" "$2" && shift 2 && exec "$@"
"""


def adopting(place: Place, source: Path, tree: Path, *options: str, bind: tuple[Path, Path]) -> str:
    """What the command says in a mount namespace of its own, where the one folder stands at the other too."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    config = place.copy.parent / "config.yaml"
    target = place.copy.parent / "target"
    config.write_text(f"target: {{root: {target}, keep_free: 0}}\ndatasets: {{data: {{source: {source}}}}}\n")
    words = [sys.executable, "-m", "penstock", "--config", str(config), "adopt", "data", str(tree), *options]
    mounted = ["unshare", "--mount", "sh", "-c", MOUNTED, "sh", *map(str, bind), *words]
    done = subprocess.run(mounted, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 3, done.stderr
    return done.stderr


def test_a_tree_with_a_mount_in_it_is_refused(place: Place) -> None:
    elsewhere = place.copy.parent / "elsewhere"
    shutil.move(place.copy / "d1", elsewhere)
    (place.copy / "d1").mkdir()
    said = adopting(place, place.source, place.copy, "--seal", bind=(elsewhere, place.copy / "d1"))
    assert f"{place.copy / 'd1'} is a mount" in said
    assert place.copy.is_dir()


def test_the_source_by_another_path_is_no_tree(place: Place) -> None:
    mirror = place.copy.parent / "mirror"
    mirror.mkdir()
    place.source.rename(place.copy.parent / "above")
    place.source.mkdir()
    (place.copy.parent / "above").rename(place.source / "data")
    said = adopting(place, place.source / "data", mirror / "data", bind=(place.source, mirror))
    assert "one folder, by two paths" in said
    assert (place.source / "data").is_dir()


def everything(tree: Path) -> dict[str, tuple[int, ...]]:
    seen = {}
    for above, _, files in os.walk(tree):
        for path in (Path(above), *(Path(above) / name for name in files)):
            one = path.lstat()
            seen[str(path.relative_to(tree))] = (one.st_ino, one.st_mode, one.st_gid, one.st_mtime_ns)
    return seen


def test_by_the_undo_list_a_tree_becomes_what_it_was(place: Place) -> None:
    copy, aside = place.copy, Path(adopt_seal.aside_of(str(place.copy)))
    aside.mkdir()
    (aside / "more").write_bytes(b"of another adoption")
    (copy / "more").write_bytes(b"more")
    (copy / "d0/f00").write_bytes(b"short")
    (copy / "d0/f00").chmod(0o600)
    (copy / "d1/f01").unlink()
    (copy / "without/any").mkdir(parents=True)
    (copy / "without/any/one").write_bytes(b"1")
    (copy / os.fsdecode(b"odd\xff\n")).write_bytes(b"odd")
    (copy / "without").chmod(0o750)
    copy.chmod(0o711)
    os.utime(copy, (7, 7))
    before = everything(copy)
    result = seal(place, leave_extra=True)

    undo = Path(result["undo"])
    top = json.loads((undo / "tree.json").read_bytes())
    assert Path(top["moved"]) == copy
    # As docs/adopt.md says it.
    for above, _, _ in os.walk(Path(result["path"]).parent):
        os.chmod(above, 0o700)
    Path(result["path"]).rename(copy)
    fetched = everything(copy).keys() - before.keys()
    for name in fetched:
        (copy / name).unlink()
    for line in (undo / "aside.jsonl").read_text().splitlines():
        one = json.loads(line)
        os.replace(one["to"], copy / one["path"].rstrip("/"))
    folders = [json.loads(line) for line in (undo.parent / "folders.jsonl").read_text().splitlines()]
    files = [json.loads(line) for path in undo.glob("0*.jsonl") for line in path.read_text().splitlines()]
    for one in [*files, *reversed(folders), {**top, "path": ""}]:
        path = copy / one["path"]
        os.chown(path, -1, one["gid"])
        path.chmod(one["mode"] & 0o7777)
        os.utime(path, ns=(one["mtime_ns"], one["mtime_ns"]))
    assert everything(copy) == before
    assert fetched == {"d1/f01"}
    assert (aside / "more").read_bytes() == b"of another adoption"
