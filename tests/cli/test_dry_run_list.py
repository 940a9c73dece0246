"""`penstock run --dry-run`: names files with --list, and ends as a run would that cannot begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.commands import penstock

if TYPE_CHECKING:
    from pathlib import Path


def configured(tmp_path: Path, source: str) -> None:
    (tmp_path / "target").mkdir(exist_ok=True)
    (tmp_path / "penstock.yaml").write_text(
        f"target: {{root: {tmp_path}/target}}\ndatasets: {{d: {{source: '{source}'}}}}\n"
    )


def test_each_file_that_would_be_copied_is_named(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("1")
    (source / "b\n").write_text("12")
    configured(tmp_path, str(source))
    first = penstock("run", "--dry-run", "--list", cwd=tmp_path)
    assert first.stdout.splitlines()[-2:] == ["+ a  (1 B)", "+ b\\n  (2 B)"]
    assert penstock("run", cwd=tmp_path).returncode == 0
    (source / "a").write_text("123")
    (source / "c").write_text("")
    then = penstock("run", "--dry-run", "--list", cwd=tmp_path)
    assert then.stdout.splitlines()[-2:] == ["* a  (1 B -> 3 B)", "+ c  (0 B)"]
    assert then.returncode == 0
    without = penstock("run", "--dry-run", cwd=tmp_path)
    assert without.stdout + "* a  (1 B -> 3 B)\n+ c  (0 B)\n" == then.stdout


def test_a_source_that_cannot_be_reached_ends_with_3(tmp_path: Path) -> None:
    configured(tmp_path, "http://127.0.0.1:9/x/")
    done = penstock("run", "--dry-run", "--list", cwd=tmp_path)
    assert done.returncode == 3
    assert "Problem       the source cannot be reached [http://127.0.0.1:9/x/]" in done.stdout
