"""`penstock submit`: what it prints and leaves, with stand-ins for sbatch and squeue."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from penstock.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

SBATCH = """\
#!/bin/sh
case " $* " in
*" --exclusive "*) echo "sbatch: error: a controller takes no whole node" >&2; exit 1 ;;
*" --cpus-per-task=1 "*) cat > /dev/null; echo "77;penstock" ;;
*) echo "sbatch: error: no CPUs" >&2; exit 1 ;;
esac
"""
SCONTROL = """\
#!/bin/sh
printf 'ClusterName             = penstock\\nMaxArraySize            = 1001\\n'
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my.yaml").write_text(
        json.dumps({"target": {"root": "target"}, "datasets": {"d": {"source": "/source"}}})
    )
    commands = tmp_path / "commands"
    commands.mkdir()
    for name, text in (("sbatch", SBATCH), ("squeue", "#!/bin/sh\n"), ("scontrol", SCONTROL)):
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    return tmp_path


WORDS = ("--config", "my.yaml", "--backend", "slurm", "submit", "d")


def test_the_receipt_and_the_job_id_alone(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--parsable", "--receipt", "receipt.json"]) == 0
    assert capsys.readouterr().out == "77\n"
    told = json.loads((place / "receipt.json").read_text())
    log = "results/logs/submit-77_0.log"
    assert told == {"job": "77", "met": False, "log": log, "datasets": ["d"]}


def test_json(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--progress", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"] == "77"


def test_prose_names_what_to_do_next(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS]) == 0
    said = capsys.readouterr().out
    assert "sbatch --dependency=afterok:77" in said
    assert "penstock --config my.yaml --backend slurm cancel d" in said


def test_cancel_ends_a_controller_that_has_not_begun(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = place / "commands"
    waiting = "77|0|PENDING|0:0|0|N/A|N/A|N/A||Priority|"
    (commands / "squeue").write_text(
        '#!/bin/sh\ncase " $* " in\n*" --name=penstock-submit-"*) echo 77 ;;\n'
        f'*" -j 77 "*) echo "{waiting}" ;;\nesac\n'
    )
    (commands / "scancel").write_text(f'#!/bin/sh\necho "$*" >> {place}/ended\n')
    (commands / "scancel").chmod(0o755)
    assert main([*WORDS[:4], "cancel", "d"]) == 0
    assert "scancel 77 ends it" in capsys.readouterr().out
    assert not (place / "ended").exists()
    assert main([*WORDS[:4], "cancel"]) == 0
    assert (place / "ended").read_text() == "77\n"


def test_a_look_is_submitted_as_a_job_of_its_own(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its command is `gate --mend` of one dataset."""
    sbatch = place / "commands/sbatch"
    sbatch.write_text(sbatch.read_text().replace("cat > /dev/null", f"cat > {place}/script"))
    assert main([*WORDS[:-1], "--mend", "d"]) == 0
    out = capsys.readouterr().out
    assert "the look is submitted: job 77" in out
    assert "afterok:77" in out
    script = (place / "script").read_text()
    assert "gate d --mend" in script


def test_what_a_run_may_be_told_is_handed_to_it(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = place / "commands"
    sbatch = commands / "sbatch"
    sbatch.write_text(sbatch.read_text().replace("cat > /dev/null", f"cat > {place}/script"))
    assert main([*WORDS, "--new-release", "--copy-unchanged"]) == 0
    assert "run d --new-release --copy-unchanged" in (place / "script").read_text()
    # A job that is there does not hear of them.
    (commands / "squeue").write_text(
        '#!/bin/sh\ncase " $* " in *" --name=penstock-submit-"*) echo 77 ;; esac\n'
    )
    assert main([*WORDS]) == 0
    assert main([*WORDS, "--copy-unchanged"]) == 7
    assert "does not hear of --copy-unchanged [job 77]" in capsys.readouterr().err
    assert main([*WORDS, "--mend", "--copy-unchanged"]) == 2
    assert "--copy-unchanged is of a run" in capsys.readouterr().err
