"""gate, path, status, releases and show judge a dataset alike, whatever lies there."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.audit.test_gate import configured, no_seal, short_manifest, torn_seal
from tests.support.published import data_of, flip

from penstock.cli.main import main
from penstock.dataset import release_records
from penstock.keep import audit_step

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context


def release_of(layout: DatasetLayout) -> Path:
    release = layout.current.resolve()
    release.chmod(0o755)
    return release


def points(target: str) -> Callable[[DatasetLayout], None]:
    def change(layout: DatasetLayout) -> None:
        layout.current.unlink()
        layout.current.symlink_to(target)

    return change


def no_link(layout: DatasetLayout) -> None:
    layout.current.unlink()
    layout.current.mkdir()


def torn_verdict(layout: DatasetLayout) -> None:
    path = layout.verdict(layout.current.resolve().name)
    path.parent.mkdir(exist_ok=True)
    path.write_text("[")


def foreign(layout: DatasetLayout) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    os.chown(layout.current.resolve(), 4711, -1)


def in_place_of(name: str, kind: str) -> Callable[[DatasetLayout], None]:
    def change(layout: DatasetLayout) -> None:
        path = layout.folder / name
        if path.exists():
            path.rename(path.with_name(f"{name}.aside"))
        if kind == "file":
            path.touch()
        elif kind == "FIFO":
            os.mkfifo(path)
        elif kind == "link":
            path.symlink_to(f"{name}.aside")
        else:
            here = os.getcwd()
            os.chdir(path.parent)  # a socket's path is short
            try:
                with socket.socket(socket.AF_UNIX) as made:
                    made.bind(name)
            finally:
                os.chdir(here)

    return change


KINDS = [(name, kind) for name in ("releases", "pins") for kind in ("file", "FIFO", "socket", "link")]
DAMAGES = [
    pytest.param(lambda layout: no_seal(release_of(layout)), "release.json", id="no seal"),
    pytest.param(lambda layout: torn_seal(release_of(layout)), "is damaged", id="torn seal"),
    pytest.param(lambda layout: short_manifest(release_of(layout)), "has 100 bytes", id="manifest"),
    pytest.param(points("releases/never"), "`current` names never, which is not there", id="nowhere"),
    pytest.param(points("/etc"), "it names /etc", id="elsewhere"),
    pytest.param(no_link, "`current` is not a symbolic link", id="no link"),
    pytest.param(torn_verdict, "what the last audit said is damaged", id="audit"),
    pytest.param(foreign, "it belongs to uid 4711", id="foreign"),
    *(pytest.param(in_place_of(*one), f"data/{one[0]} is a {one[1]}", id="-".join(one)) for one in KINDS),
]
OTHERS = (
    "audit", "history", "du", "diff", "gc --dry-run", "rollback", "repair", "cancel", "report", "describe",
    "run --dry-run",
)  # fmt: skip


@pytest.mark.parametrize(("change", "said"), DAMAGES)
def test_one_judgement(
    staged: Context,
    change: Callable[[DatasetLayout], None],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each command ends with 4 and names what is damaged; none leaves a traceback, none hides the others."""
    root = staged.config.target.root
    shutil.copytree(root / "data", root / "whole", symlinks=True)
    config = json.loads(Path(configured(staged, root.parent)).read_text())
    config["datasets"]["never"] = config["datasets"]["data"]
    path = root.parent / "both.json"
    path.write_text(json.dumps(config))
    change(staged.layout("data"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    for words in (["gate"], ["path"], ["releases"], ["show"], ["status"]):
        code = main([*words, "data", "--config", str(path)])
        told = capsys.readouterr()
        text = " ".join((told.out + told.err).split())
        assert code == 4, (words, text)
        assert said in text, (words, text)
    assert main(["status", "--config", str(path), "--progress", "json"]) == 4
    rows = {one["dataset"]: one for one in map(json.loads, capsys.readouterr().out.splitlines())}
    assert rows["never"]["state"] == "nothing published"
    assert rows["data"]["state"] == ("foreign" if "belongs" in said else "damaged")
    assert "path" not in rows["data"]
    for command in OTHERS:
        words = command.split()
        assert main([words[0], "data", *words[1:], "--config", str(path)]) in (0, 1, 3, 4), words
        assert "bug" not in capsys.readouterr().err, words
    assert os.listdir(tmp_path / "tmp") == []


def test_findings_close_path_and_show_in_every_command(
    staged: Context, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configured(staged, staged.config.target.root.parent)
    layout, data = staged.layout("data"), data_of(staged)
    flip(data / "d0/f00")
    assert audit_step.run(staged, "data")["status"] == "FINDINGS"
    for command in ("gate", "path", "status", "releases", "show"):
        assert main([command, "data", "--config", config]) == 4, command
        assert "1 changed" in "".join(capsys.readouterr()), command
    release = data.parent.name
    told = release_records.read_verdict(layout, release)
    assert told is not None
    release_records.write_verdict(layout, release_records.overruled(told, "known", "me"))
    for command in ("gate", "path", "status", "releases", "show"):
        assert main([command, "data", "--config", config]) == 0, command


def test_a_damaged_state_is_its_owners_alone(staged: Context, capsys: pytest.CaptureFixture[str]) -> None:
    """Readers get what they got; status ends with 4, and names it."""
    config, layout = configured(staged, staged.config.target.root.parent), staged.layout("data")
    shutil.rmtree(layout.claims)
    os.mkfifo(layout.claims)
    assert main(["gate", "--config", config]) == 0
    assert main(["status", "data", "--config", config]) == 4
    said = capsys.readouterr().out
    assert "state         published\n" in said
    assert "last run      damaged: data/.penstock/claims is a FIFO" in said
