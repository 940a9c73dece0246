"""`gate` and `path`, as a job asks them: nothing but a whole release is named."""

from __future__ import annotations

import json
import os
import pwd
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import ROOT, penstock
from tests.support.published import data_of, writable

from penstock.cli.main import main
from penstock.config import loader
from penstock.config.settings import TargetConfig
from penstock.core.errors import FindingsError
from penstock.core.model import Record
from penstock.dataset import gate
from penstock.fs import small_files
from penstock.keep import audit_step
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.dataset.context import Context


def configured(context: Context, folder: Path) -> str:
    """The configuration of a context's dataset as a file; its path."""
    path = folder / "penstock.yaml"
    root, source = context.config.target.root, context.config.datasets["data"].sources[0].url
    told = {"target": {"root": str(root)}, "datasets": {"data": {"source": source}}}
    path.write_text(json.dumps(told))
    return str(path)


def torn_seal(release: Path) -> None:
    with writable(release / "release.json"):
        (release / "release.json").write_bytes(b"{")


def nested_seal(release: Path) -> None:
    (release / "release.json").chmod(0o600)
    (release / "release.json").write_text("[" * 100_000)


def fifo_for_a_seal(release: Path) -> None:
    (release / "release.json").unlink()
    os.mkfifo(release / "release.json")


def endless_seal(release: Path) -> None:
    (release / "release.json").chmod(0o600)
    with (release / "release.json").open("wb") as file:
        file.truncate(1 << 40)


def no_seal(release: Path) -> None:
    (release / "release.json").unlink()


def no_seal_no_manifest(release: Path) -> None:
    no_seal(release)
    (release / "manifest.parquet").unlink()


def no_files(release: Path) -> None:
    """Folders stay, as after `find -type f -delete`."""
    for folder, _, files in os.walk(release / "data"):
        with writable(release.__class__(folder)):
            for name in files:
                os.unlink(os.path.join(folder, name))


def no_manifest(release: Path) -> None:
    (release / "manifest.parquet").unlink()


def short_manifest(release: Path) -> None:
    with writable(release / "manifest.parquet"):
        os.truncate(release / "manifest.parquet", 100)


def another_manifest(release: Path) -> None:
    path = release / "manifest.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    with writable(path):
        path.write_bytes(content)


def no_data(release: Path) -> None:
    tree_removal.remove_tree(release / "data")


def seal_of_another(key: str) -> Callable[[Path], None]:
    def change(release: Path) -> None:
        seal = small_files.read_json(release / "release.json")
        small_files.write_json(release / "release.json", {**seal, key: "other"})

    return change


def forged_seal(release: Path) -> None:
    seal = small_files.read_json(release / "release.json")
    small_files.write_json(release / "release.json", {**seal, "files": 1})


def no_folder(release: Path) -> None:
    tree_removal.remove_tree(release)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (torn_seal, "its seal (release.json) is damaged"),
        (no_seal, "its seal (release.json) is missing"),
        (no_seal_no_manifest, "its seal (release.json) is missing"),
        (no_files, "is missing"),
        (no_manifest, "manifest.parquet is missing"),
        (short_manifest, "manifest.parquet has 100 bytes"),
        (another_manifest, "manifest.parquet is not the one that was sealed"),
        (no_data, "its data folder is missing"),
        (seal_of_another("dataset"), "that of another dataset, other"),
        (seal_of_another("release"), "that of another release, other"),
        (forged_seal, "is not the one that was published"),
        (no_folder, "which is not there"),
        (nested_seal, "its seal (release.json) is damaged: it is no JSON"),
        (fifo_for_a_seal, "its seal (release.json) is damaged: it is no plain file"),
        (endless_seal, "its seal (release.json) is damaged: it has 1099511627776 bytes"),
    ],
)
def test_what_is_not_whole_is_not_named(
    staged: Context, change: Callable[[Path], None], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from penstock.cli.main import main

    config = configured(staged, staged.config.target.root.parent)
    assert main(["gate", "--config", config]) == 0
    assert main(["path", "--config", config]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(data_of(staged))
    release = data_of(staged).parent
    release.chmod(0o700)
    change(release)
    for command in ("gate", "path"):
        assert main([command, "--config", config]) == 4
        told = capsys.readouterr()
        assert told.out == ""
        assert "penstock: the release is not whole" in told.err
        assert said in told.err


def test_a_missing_folder_is_found_by_the_sample(staged: Context) -> None:
    data = data_of(staged)
    with writable(data), writable(data / "d1"):
        for path in (data / "d1").iterdir():
            path.unlink()
    with pytest.raises(FindingsError):
        gate.passed(staged.layout("data"))


def test_a_job_waits_little_for_the_gate(staged: Context) -> None:
    """The built commands, as a batch script has them."""
    config = configured(staged, staged.config.target.root.parent)
    done = penstock("gate", "--config", config)
    assert (done.returncode, done.stderr) == (0, "")
    torn_seal(data_of(staged).parent)
    done = penstock("gate", "--config", config)
    assert done.returncode == 4
    assert "Traceback" not in done.stderr


def test_readers_need_the_root_alone(
    staged: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No configuration is there: neither in the working directory nor by the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_CONFIG", raising=False)
    data, root = data_of(staged), str(staged.config.target.root)
    for words in (["data"], [], ["data", "--job"]):
        assert main(["path", *words, "--root", root]) == 0
        assert capsys.readouterr().out == f"{data}\n"
    assert main(["gate", "data", "--root", root]) == 0
    for words, code, said in (
        (["gate", "dada", "--root", root], 2, 'no dataset is named "dada"; did you mean data?'),
        (["path", "../data", "--root", root], 2, 'no dataset is named "../data"'),
        (["path", "data", "--root", f"{root}/none"], 3, "there is no such target"),
        (["gate", "data", "--root", root, "--mend"], 2, "the source stands in the configuration"),
        (["path", "data"], 2, "there is no configuration"),
    ):
        capsys.readouterr()
        assert main(words) == code
        assert said in capsys.readouterr().err
    owner, away = pwd.getpwuid(os.geteuid()).pw_name, "no-such-account"
    for owners, code in (((owner,), 0), ((away,), 4)):
        monkeypatch.setattr(
            loader, "target_at", lambda root, owners=owners: TargetConfig(root, owners=owners)
        )
        assert main(["gate", "data", "--root", root]) == code
    torn_seal(data.parent)
    monkeypatch.undo()
    assert main(["path", "data", "--root", root]) == 4


def test_every_field_is_documented(staged: Context) -> None:
    """docs/formats.md, by what is really written."""
    text = (ROOT / "docs/formats.md").read_text()
    release = data_of(staged).parent
    seal = small_files.read_json(release / "release.json")
    assert seal["permissions"]["octal"] == {"files": "0440", "folders": "2550"}
    audit_step.run(staged, "data")
    verdict = small_files.read_json(staged.layout("data").verdict(release.name))
    names = {*seal, *verdict, *verdict["last"], *Record._fields}
    for inner in ("permissions", "records", "manifests"):
        names |= set(seal[inner])
    assert [name for name in sorted(names) if f"`{name}`" not in text and f"/{name}`" not in text] == []
