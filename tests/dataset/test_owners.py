"""`gate` and `path` take releases of trusted accounts alone; a root that others may write is refused."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.support.forked import NOBODY, forked
from tests.support.published import published
from tests.support.staging_runs import context_for, tree
from tests.support.whole_way import FILES

from penstock.config import site
from penstock.core.errors import FindingsError, PreflightError
from penstock.core.layout import DatasetLayout
from penstock.dataset import gate
from penstock.doctor import preflight_target
from penstock.target import access, dataset_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.dataset.context import Context

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other accounts: only as root")
SERVICE, OTHER = 4321, 4322


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A root with a published dataset, of which each test takes a copy."""
    folder = tmp_path_factory.mktemp("staged")
    with published(folder, tree(folder / "source", FILES)) as context:
        yield context.config.target.root


@pytest.fixture
def layout(staged: Path, tmp_path: Path) -> DatasetLayout:
    """Staged by a service account, in a root that is root's."""
    subprocess.run(["cp", "-a", staged, tmp_path / "target"], check=True)
    found = DatasetLayout(tmp_path / "target", "data")
    for folder, folders, files in os.walk(found.folder):
        for name in (*folders, *files, "."):
            os.chown(os.path.join(folder, name), SERVICE, SERVICE, follow_symlinks=False)
    for above in found.root.parents:
        if above.stat().st_mode & 0o011 != 0o011:
            above.chmod(above.stat().st_mode | 0o011)
    return found


def refused(layout: DatasetLayout, owners: tuple[str, ...] = ()) -> str:
    with pytest.raises(FindingsError) as caught:
        gate.passed(layout, owners=owners)
    assert caught.value.exit_code == 4
    return str(caught.value)


def test_a_service_accounts_release_needs_its_name(layout: DatasetLayout) -> None:
    text = refused(layout)
    assert f"it belongs to uid {SERVICE}; no target.owners are set, so the root's owner and this " in text
    assert f"write `target: {{owners: [{SERVICE}]}}` into the configurations of those who read it" in text
    assert str(site.FILE) in text
    assert gate.passed(layout, owners=(str(SERVICE),)).release
    assert gate.passed(layout, owners=(str(OTHER), str(SERVICE))).release


def test_a_name_counts_as_its_number(layout: DatasetLayout) -> None:
    os.chown(layout.folder, NOBODY, NOBODY)
    name = pwd.getpwuid(NOBODY).pw_name
    assert gate.passed(layout, owners=(str(SERVICE), name)).release
    assert "no such account" in refused(layout, (str(SERVICE), "no such account"))


def test_the_roots_owner_is_trusted_without_a_list(layout: DatasetLayout) -> None:
    os.chown(layout.root, SERVICE, SERVICE)
    assert gate.passed(layout).release


@pytest.mark.parametrize("who", [SERVICE, OTHER])
def test_the_caller_trusts_itself(layout: DatasetLayout, who: int) -> None:
    answer = forked(lambda: _asked(layout), uid=who)
    assert answer == ("open" if who == SERVICE else "closed")


def _asked(layout: DatasetLayout) -> str:
    try:
        gate.passed(layout)
    except FindingsError:
        return "closed"
    except PreflightError:
        # Its data are for the group alone.
        return "closed"
    return "open"


@pytest.mark.parametrize("what", ["folder", "releases", "current", "release", "data", "seal"])
def test_each_of_them_must_be_of_a_trusted_account(layout: DatasetLayout, what: str) -> None:
    release = layout.release(dataset_folders.current(layout) or "")
    place = {
        "folder": layout.folder, "releases": layout.releases, "current": layout.current,
        "release": release, "data": release / "data", "seal": release / "release.json",
    }[what]  # fmt: skip
    os.chown(place, OTHER, OTHER, follow_symlinks=False)
    text = refused(layout, (str(SERVICE),))
    assert f"[{place}]: it belongs to uid {OTHER}" in text


def test_what_a_stranger_forged_by_its_own_hands_opens_no_gate(layout: DatasetLayout) -> None:
    """A whole release of the stranger's in a root where everybody may make names: under a free name, and
    below the service account's folder where that let others write."""
    os.chown(layout.root, 0, 0)
    layout.root.chmod(0o1777)
    service = (str(SERVICE),)
    whole = gate.passed(layout, owners=service).release
    other = DatasetLayout(layout.root, "fresh")

    def forges() -> None:
        shutil.copytree(layout.folder, other.folder, symlinks=True, ignore=lambda *_: [".penstock", "pins"])

    for path in (layout.folder, *layout.folder.rglob("*")):
        if not path.is_symlink() and ".penstock" not in path.parts:
            path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
    forked(forges, uid=OTHER)
    assert (other.current / "data").is_dir()
    assert f"[{other.folder}]: it belongs to uid {OTHER}" in refused(other, service)
    layout.folder.chmod(0o777)

    def swaps(name: str) -> Callable[[], None]:
        def work() -> None:
            os.rename(layout.folder / name, layout.folder / f"{name}.was")
            if name == "current":
                (layout.folder / name).symlink_to(other.release(whole))
            else:
                shutil.copytree(other.releases, layout.folder / name, symlinks=True)

        return work

    for name in ("current", "releases"):
        forked(swaps(name), uid=OTHER)
        refused(layout, service)
        if (layout.folder / name).is_symlink():
            (layout.folder / name).unlink()
        else:
            shutil.rmtree(layout.folder / name)
        os.rename(layout.folder / f"{name}.was", layout.folder / name)
        assert gate.passed(layout, owners=service).release == whole
    layout.release(whole).chmod(0o777)

    def seals() -> None:
        seal = layout.release(whole) / "release.json"
        text = seal.read_bytes()
        os.unlink(seal)
        seal.write_bytes(text)

    forked(seals, uid=OTHER)
    assert f"release.json]: it belongs to uid {OTHER}" in refused(layout, service)


@pytest.mark.parametrize(
    ("owners", "root_owner", "words"),
    [
        ((), SERVICE, ""),
        ((str(SERVICE),), 0, ""),
        ((str(OTHER),), SERVICE, f"uid {SERVICE} is not among target.owners (uid {OTHER})"),
        ((), 0, "target.owners are not set, and root (uid 0) owns the root: `gate` and `path` give what "),
    ],
)
def test_preflight_warns_whom_no_gate_will_trust(
    owners: tuple[str, ...], root_owner: int, words: str
) -> None:
    results = preflight_target.trusted(SERVICE, owners, root_owner)
    assert bool(results) is bool(words)
    for result in results:
        assert result.verdict == "warning"
        assert words in result.found
        assert owners or f"owners: [{SERVICE}]" in result.mend


def test_who_is_listed() -> None:
    assert access.is_listed(0, ["root"])
    assert access.is_listed(4711, ["root", "4711"])
    assert not access.is_listed(4711, ["root", "471"])
    assert not access.is_listed(4711, [])
    assert access.in_words(["0", "4711", "svc"]) == "root (uid 0), uid 4711, svc"


# The root ----------------------------------------------------------------------------------


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """Its dataset has its folders, and no release."""
    made = context_for(tmp_path, tmp_path / "source")
    dataset_folders.prepare(made.layout("data"))
    return made


@pytest.mark.parametrize(
    ("mode", "stops"),
    [(0o755, False), (0o777, True), (0o1777, False), (0o775, True), (0o1775, False), (0o3775, False)],
)
def test_a_root_that_others_may_write_stops_without_the_sticky_bit(
    context: Context, mode: int, stops: bool
) -> None:
    layout = context.layout("data")
    os.chown(layout.root, 0, 4711)
    layout.root.chmod(mode)
    if not stops:
        dataset_folders.check_owner(layout)
        return
    with pytest.raises(PreflightError, match="the target's root is open to others"):
        dataset_folders.check_owner(layout)


@pytest.mark.parametrize(("members", "stops"), [([], False), (["root"], False), (["root", "eve"], True)])
def test_the_owners_own_group_is_no_other_while_it_has_no_other_member(
    context: Context, monkeypatch: pytest.MonkeyPatch, members: list[str], stops: bool
) -> None:
    layout = context.layout("data")
    own = grp.struct_group(("root", "x", 0, members))
    monkeypatch.setattr(dataset_folders.grp, "getgrgid", lambda _: own)
    layout.root.chmod(0o775)
    if not stops:
        dataset_folders.check_owner(layout)
        return
    with pytest.raises(PreflightError, match="its group may rename"):
        dataset_folders.check_owner(layout)
