"""`penstock handover`: commands that give a dataset away, and touch nothing of anybody else."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from tests.support.commands import penstock
from tests.support.forked import forked
from tests.support.published import data_of, published
from tests.support.staging_runs import context_for, tree
from tests.support.whole_way import FILES, go, staging

from penstock.audit import audit_tree
from penstock.config.settings import PermissionsConfig
from penstock.core.layout import DatasetLayout
from penstock.errors import ConfigError, FailedError, FindingsError, PreflightError
from penstock.ownership.dataset_hold import holding
from penstock.policy.handover import commands
from penstock.state import gate, seals
from penstock.steps import handover
from penstock.storage import shared_files, tree_removal

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="runs the commands: only as root")
NEW, READER = 4321, 4322
OPEN = PermissionsConfig(file_mode=0o444, dir_mode=0o555)
SHOWS = "chown() { printf '%s\\0' \"$@\"; }\n"


def shell(lines: list[str]) -> None:
    subprocess.run(["bash", "-euc", "\n".join(lines)], check=True, timeout=60)


@as_root
def test_the_commands_give_all_that_is_the_owners_and_nothing_of_others(tmp_path: Path) -> None:
    with published(tmp_path, tree(tmp_path / "source", FILES)) as context:
        layout = context.layout("data")
        shared_files.make_folder_of_all(layout.pins)
        pin = layout.pins / "of a reader"
        pin.touch()
        os.chown(pin, READER, READER)
        outside = tmp_path / "outside"
        outside.touch()
        (layout.folder / "link").symlink_to(outside)
        groups = {path: path.lstat().st_gid for path in layout.folder.rglob("*")}
        modes = {path: path.lstat().st_mode for path in layout.folder.rglob("*")}
        result = handover.run(context, "data", str(NEW))
        assert result["alive"] == []
        shell(list(result["commands"]))
        owners = {path: path.lstat().st_uid for path in layout.folder.rglob("*") if path != pin}
        assert set(owners.values()) == {NEW}
        assert layout.folder.stat().st_uid == NEW
        assert (pin.stat().st_uid, outside.stat().st_uid) == (READER, 0)
        assert {path: path.lstat().st_gid for path in groups} == groups
        assert {path: path.lstat().st_mode for path in modes} == modes
        assert gate.passed(layout, owners=[str(NEW)]).data == data_of(context)
        assert any("target.owners" in one for one in result["then"])
        shell(list(result["commands"]))
        with pytest.raises(FailedError, match="owns the dataset already"):
            handover.run(context, "data", str(NEW))


@as_root
def test_the_new_owner_stages_and_gates_on() -> None:
    """By three real accounts: the old owner, root with the printed lines, the new owner."""
    place = Path(tempfile.mkdtemp(prefix="penstock-handover-"))
    try:
        place.chmod(0o755)
        (place / "target").mkdir()
        (place / "target").chmod(0o1777)
        source = tree(place / "source", FILES)

        def stages() -> str:
            with published(place, source, permissions=OPEN) as context:
                return data_of(context).parent.name

        def gates() -> str:
            return gate.passed(DatasetLayout(place / "target", "data")).release

        def audits() -> list[str]:
            layout = DatasetLayout(place / "target", "data")
            release = layout.current.resolve().name
            seal = seals.load(layout, release).seal
            return [one.path for one in audit_tree.look(layout, release, seal, lambda: None)]

        first = forked(stages, uid=READER)
        with pytest.raises(PreflightError, match=f"it belongs to uid {READER}, and this is uid {NEW}"):
            forked(stages, uid=NEW)
        with pytest.raises(FindingsError, match=f"it belongs to uid {READER}"):
            forked(gates, uid=NEW)
        result = handover.run(context_for(place, source), "data", str(NEW))
        assert result["alive"] == []
        shell(list(result["commands"]))
        assert forked(gates, uid=NEW) == first
        # What the account of before published is the new owner's, and no finding; what is a third one's is.
        assert audits() == []
        os.chown(place / "target/data/current/data" / next(iter(FILES)), READER, -1)
        assert audits() == []
        os.chown(place / "target/data/current/data" / next(iter(FILES)), READER + 1, -1)
        assert audits() == [next(iter(FILES))]
        os.chown(place / "target/data/current/data" / next(iter(FILES)), NEW, -1)
        (source / "more").write_bytes(b"later")
        second = forked(stages, uid=NEW)
        assert second != first
        assert forked(gates, uid=NEW) == second
        dataset = place / "target/data"
        assert (dataset / "current/data/more").read_bytes() == b"later"
        for name in FILES:
            assert (dataset / "current/data" / name).stat().st_uid == NEW
        with pytest.raises(PreflightError, match=f"it belongs to uid {NEW}, and this is uid {READER}"):
            forked(stages, uid=READER)
    finally:
        tree_removal.remove_tree(place)


@as_root
def test_a_run_that_is_alive_is_said_and_its_promise_is_given(tmp_path: Path) -> None:
    with staging(tmp_path, tree(tmp_path / "source", FILES)) as context:
        go(context, upto="plan")
        layout = context.layout("data")
        with holding(context, "data", "", "list"):
            result = handover.run(context, "data", str(NEW))
        assert any("lock is held" in one for one in result["alive"])
        assert any(f"--from=0 {NEW} -- {layout.promises}/" in one for one in result["commands"])


@pytest.mark.parametrize("name", ["plain", "two words", "it's", "$(touch x)", "a\nb", "*", "-R", "é"])
def test_each_path_is_one_word_of_the_shell(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    (root / "data").mkdir(parents=True)
    state = tmp_path / "state" / name
    (state / "data").mkdir(parents=True)
    lines = commands(DatasetLayout(root, "data", state), 7, 8, [root / ".promises" / name])
    assert all("\n" not in line for line in lines)
    seen = []
    for line in lines:
        ended = subprocess.run(
            ["bash", "-euc", SHOWS + line],
            capture_output=True,
            check=True,
            cwd=tmp_path,
        )
        seen.append([os.fsdecode(word) for word in ended.stdout.split(b"\0")[:-1]])
    flags = ["-hR", "--from=7", "8", "--"]
    assert seen == [
        [*flags, str(root / "data")],
        [*flags, str(state / "data")],
        ["-h", *flags[1:], str(root / ".promises" / name)],
    ]
    assert not (tmp_path / "x").exists()


def test_what_cannot_be_given_is_refused_in_words(tmp_path: Path) -> None:
    with staging(tmp_path, tree(tmp_path / "source", FILES)) as context:
        with pytest.raises(ConfigError, match="knows no account 'nobody of that name'"):
            handover.run(context, "data", "nobody of that name")
        with pytest.raises(FailedError, match="there is no dataset to give"):
            handover.run(context, "data", str(NEW))


def test_the_command_prints_lines_for_a_shell_and_changes_nothing(tmp_path: Path) -> None:
    with published(tmp_path, tree(tmp_path / "source", FILES)) as context:
        config = tmp_path / "my.yaml"
        told = {
            "target": {"root": str(tmp_path / "target")},
            "datasets": {"data": {"source": str(tmp_path / "source")}},
        }
        config.write_text(json.dumps(told))
        before = {path: path.lstat().st_ctime_ns for path in context.layout("data").folder.rglob("*")}
        done = penstock("--config", str(config), "handover", "data", str(NEW), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert [line for line in lines if not line.startswith("#")] == [
            f"chown -hR --from={os.geteuid()} {NEW} -- {context.layout('data').folder}"
        ]
        assert "# no run of it is alive, as far as this account sees" in lines
        assert {path: path.lstat().st_ctime_ns for path in before} == before
