"""Root is refused what a dataset's owner does, unless it was told to go on."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from penstock.cli.main import main
from penstock.core.run_steps import typed
from penstock.dataset import rights

if TYPE_CHECKING:
    from pathlib import Path

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="root is refused: only as root")


@pytest.mark.parametrize(
    ("command", "given", "right"),
    [
        ("run", {}, rights.STAGES),
        ("run", {"dry_run": True}, rights.READS),
        ("audit", {"overrule": None}, rights.READS),
        ("audit", {"overrule": "why"}, rights.DECIDES),
        ("gate", {}, rights.READS),
        ("adopt", {"seal": False}, rights.READS),
        ("adopt", {"seal": True}, rights.STAGES),
        ("a command of tomorrow", {}, rights.STAGES),
    ],
)
def test_what_a_command_needs(command: str, given: dict[str, object], right: str) -> None:
    assert rights.needed(command, given) == right


@pytest.mark.parametrize("command", sorted(rights.NEEDS))
def test_what_the_site_tightens_stops_what_stages_and_never_what_reads_or_ends(command: str) -> None:
    never = {
        "status", "path", "gate", "releases", "show", "history", "diff", "du", "describe", "report",
        "list-failure", "completion", "cancel", "limit", "selftest", "rollback", "gc", "remove", "sign",
        "explain", "metrics", "after",
    }  # fmt: skip
    assert rights.stages(command, {}) is (command not in never)
    assert rights.stages("gate", {"mend": True})
    assert rights.stages("run", {"dry_run": True})
    assert not rights.stages("limit", {"nodes": 3})


@as_root
@pytest.mark.parametrize("command", sorted(rights.NEEDS))
def test_root_is_refused_what_is_the_owners(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(rights.AS_ROOT)
    if rights.needed(command, {}) not in rights.OF_OWNER:
        rights.refuse_root(command, {})
        return
    with pytest.raises(rights.PreflightError) as caught:
        rights.refuse_root(command, {}, "penstock --config my.yaml")
    assert caught.value.exit_code == 3
    assert f"`penstock --config my.yaml --as-root {typed(command)} ...`" in str(caught.value)
    rights.grant()
    rights.refuse_root(command, {})


@as_root
def test_the_command_line_refuses_root_before_it_reads_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(rights.AS_ROOT)
    monkeypatch.chdir(tmp_path)
    assert main(["run"]) == 3
    assert "root (uid 0) is refused: `run`" in capfd.readouterr().err
    monkeypatch.setenv(rights.AS_ROOT, "0")
    assert main(["run"]) == 3
    assert main(["status"]) == 2  # there is no configuration
    monkeypatch.setenv(rights.AS_ROOT, "1")
    assert main(["run"]) == 2


@as_root
def test_the_option_holds_for_all_that_the_workflow_starts(tmp_path: Path) -> None:
    """A run by the option alone stages to its end; `snakemake` by the variable alone."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source/file").write_bytes(b"bytes")
    config = tmp_path / "my.yaml"
    config.write_text(
        f"target: {{root: {tmp_path / 'target'}, keep_free: 0}}\n"
        f"datasets: {{data: {{source: {tmp_path / 'source'}}}}}\n"
    )
    bare = {name: value for name, value in os.environ.items() if name != rights.AS_ROOT}
    words = [sys.executable, "-m", "penstock", "--config", str(config)]
    checkout = os.getcwd()
    for name in ("Snakefile", "workflow", "profiles"):
        (tmp_path / name).symlink_to(os.path.join(checkout, name))

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*words, *options, "run"], cwd=tmp_path, env=bare, capture_output=True, text=True,
            check=False, timeout=240,
        )  # fmt: skip

    refused = run()
    assert refused.returncode == 3
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "target").exists()
    done = run("--as-root")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "target/data/current/data/file").read_bytes() == b"bytes"
