"""`penstock run --submit` and `gate --mend --submit`: what they print and leave; sbatch and squeue are
stand-ins."""

from __future__ import annotations

import fcntl
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
*" --cpus-per-task=1 "*) ;;
*) echo "sbatch: error: no CPUs" >&2; exit 1 ;;
esac
job=$((77 + $(ls {folder} | grep -c ^script-)))
cat > {folder}/script-$job
for word; do case $word in --job-name=*) name=${{word#--job-name=}} ;; esac; done
echo "$job $name PENDING" >> {folder}/jobs
echo "$*" > {folder}/asked-$job
echo "$job;penstock"
"""
SQUEUE = """\
#!/bin/sh
for word; do case $word in --name=*) name=${{word#--name=}} ;; esac; done
while read -r job of state; do
  if [ -z "$name" ]; then echo "$job|0|$state|0:0|0|N/A|N/A|N/A||Priority|$of"
  elif [ "$of" = "$name" ]; then echo "$job|$name"; fi
done < {folder}/jobs
"""
SCONTROL = """\
#!/bin/sh
case "$2" in
node) cat {folder}/nodes ;;
*) printf 'ClusterName = penstock\\nMaxArraySize = 1001\\nSLURM_VERSION = 24.11.5\\n' ;;
esac
"""
NODE = "NodeName={name} CPUTot=8 CoresPerSocket=8 Sockets=1 RealMemory=8000 Partitions=data State=IDLE\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my.yaml").write_text(
        json.dumps({"target": {"root": "target"}, "datasets": {"d": {"source": "/source"}}})
    )
    commands = tmp_path / "commands"
    commands.mkdir()
    (tmp_path / "jobs").touch()
    (tmp_path / "nodes").write_text(NODE.format(name="n1") + NODE.format(name="n2"))
    scancel = f'#!/bin/sh\necho "$*" >> {tmp_path}/ended\n'
    bodies = {
        "sbatch": SBATCH,
        "squeue": SQUEUE,
        "scontrol": SCONTROL,
        "scancel": scancel,
        "sinfo": "#!/bin/sh\necho data*\n",
    }
    for name, text in bodies.items():
        (commands / name).write_text(
            text.replace("{folder}", str(tmp_path)).replace("{{", "{").replace("}}", "}")
        )
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    return tmp_path


SLURM = ("--config", "my.yaml", "--backend", "slurm")
WORDS = (*SLURM, "run", "--submit", "d")
LOOK = (*SLURM, "gate", "d", "--mend", "--submit")


def test_the_receipt_and_the_job_id_alone(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--parsable", "--receipt", "receipt.json"]) == 0
    assert capsys.readouterr().out == "77\n"
    told = json.loads((place / "receipt.json").read_text())
    log = "results/logs/submit-77_0.log"
    assert told == {"job": "77", "met": False, "log": log, "datasets": ["d"]}


def test_sl6_the_jobs_comment_names_its_datasets(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert submitted(capsys, "d") == ("77", False)
    assert "--comment=penstock dataset=d step=run " in asked(place, 77)
    many = [f"d{number:02d}" for number in range(12)]
    configured(place, *many)
    assert submitted(capsys) == ("78", False)
    assert f"--comment=penstock dataset={','.join(many[:10])},2-more step=run " in asked(place, 78)


def test_json(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--progress", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"] == "77"


def test_prose_names_what_to_do_next(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS]) == 0
    said = capsys.readouterr().out
    assert "its memory:         1.00 GiB" in said
    assert "sbatch --dependency=afterok:77" in said
    assert "penstock --config my.yaml --backend slurm cancel d" in said


def configured(place: Path, *datasets: str, root: str = "target", file: str = "my.yaml") -> None:
    sources = {name: {"source": "/source"} for name in datasets}
    (place / file).write_text(json.dumps({"target": {"root": root}, "datasets": sources}))


def submitted(capsys: pytest.CaptureFixture[str], *more: str, file: str = "my.yaml") -> tuple[str, bool]:
    """The job that is the answer, and whether it was there already."""
    words = more if more[:1] == ("gate",) else ("run", *more)
    assert main(["--config", file, *SLURM[2:], "--progress", "json", *words, "--submit"]) == 0
    told = json.loads(capsys.readouterr().out)
    return told["job"], told["met"]


def asked(place: Path, job: int) -> str:
    return (place / f"asked-{job}").read_text()


def state(place: Path, job: int, word: str) -> None:
    rows = (line.split() for line in (place / "jobs").read_text().splitlines())
    lines = [f"{number} {name} {word if int(number) == job else was}\n" for number, name, was in rows]
    (place / "jobs").write_text("".join(line for line in lines if not line.endswith("COMPLETED\n")))


def test_a_job_is_the_answer_only_where_it_does_all_that_is_asked_for(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`run --submit a`, then `run --submit b`: `afterok` of the answer runs nothing without its data."""
    configured(place, "a", "b", "c")
    assert submitted(capsys, "a", "b") == ("77", False)
    assert "--dependency" not in asked(place, 77)
    assert submitted(capsys, "b") == ("77", True)
    assert submitted(capsys, "b", "a") == ("77", True)
    assert submitted(capsys, "c") == ("78", False)
    assert "--dependency=afterany:77 " in asked(place, 78)
    assert submitted(capsys) == ("79", False)
    assert "--dependency=afterany:77:78 " in asked(place, 79)
    assert submitted(capsys, "c", "a") == ("79", True), "all datasets are these, too"
    for more in (["--new-release"], ["--copy-unchanged"], ["--new-release", "--cores", "2"]):
        job, met = submitted(capsys, "a", *more)
        assert not met
        assert submitted(capsys, "a", *more) == (job, True)
    configured(place, "a", "b", "c", file="more.yaml")
    assert submitted(capsys, "a", file="more.yaml") == ("83", False)
    assert submitted(capsys, "a") == ("77", True)
    configured(place, "a", "b", "c", "d")
    assert submitted(capsys) == ("84", False), "the configuration has one more dataset now"
    assert submitted(capsys, "a") == ("84", True), "the others read the configuration as it was"


def test_a_job_whose_processes_are_ended_is_no_answer(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert submitted(capsys, "d") == ("77", False)
    state(place, 77, "RUNNING")
    assert submitted(capsys, "d") == ("77", True)
    state(place, 77, "COMPLETING")
    assert submitted(capsys, "d") == ("78", False)
    assert "--dependency=afterany:77 " in asked(place, 78)
    state(place, 77, "COMPLETED")
    state(place, 78, "COMPLETED")
    assert submitted(capsys, "d") == ("79", False)
    assert "--dependency" not in asked(place, 79)


def test_a_job_that_was_cancelled_since_is_no_answer(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert submitted(capsys, "d") == ("77", False)
    state(place, 77, "RUNNING")
    (place / "target/d/.penstock").mkdir(parents=True)
    assert main([*SLURM, "cancel", "d"]) == 0
    capsys.readouterr()
    assert submitted(capsys, "d") == ("78", False)
    assert submitted(capsys, "d") == ("78", True)


def test_a_job_without_a_note_is_no_answer(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert submitted(capsys, "d") == ("77", False)
    for content in ("{", '{"format": 2, "jobs": {}}', '{"format": 1, "jobs": {"penstock:77": {"at": 1}}}'):
        (place / "results/.workflow/submitted.json").write_text(content)
        assert not submitted(capsys, "d")[1]


def test_a_job_that_the_site_renames_is_the_answer(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By a job_submit plugin: a second controller was submitted beside it. A job of the same number that is
    no array, which slurmctld that lost its state may have, is another one."""
    sbatch = place / "commands/sbatch"
    sbatch.write_text(sbatch.read_text().replace('echo "$job $name', 'echo "$job lab-$name'))
    assert submitted(capsys) == ("77", False)
    assert submitted(capsys) == ("77", True)
    assert main([*SLURM, "status"]) == 0
    assert "the submitted controller, job 77 (" in capsys.readouterr().out
    squeue = place / "commands/squeue"
    squeue.write_text(squeue.read_text().replace("$job|0|", "$job|N/A|"))
    assert submitted(capsys) == ("78", False)


def test_notes_of_jobs_that_have_ended_are_forgotten(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        job, met = submitted(capsys)
        assert not met
        state(place, int(job), "COMPLETED")
    notes = json.loads((place / "results/.workflow/submitted.json").read_text())
    assert list(notes["jobs"]) == ["penstock:79"]


def test_a_run_that_works_in_the_folder_is_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = place / "results/.workflow"
    folder.mkdir(parents=True)
    with (folder / "controller").open("w") as held:
        held.write("login7 1.2")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        assert main([*WORDS]) == 7
    assert "at work in this working directory already: process 1 on login7" in capsys.readouterr().err
    assert not (place / "jobs").read_text()
    with (folder / "submitted.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert main([*WORDS]) == 7
    assert "another submission is at work" in capsys.readouterr().err


def test_cancel_ends_a_controller_that_has_not_begun(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configured(place, "d", "e")
    assert submitted(capsys, "d", "e") == ("77", False)
    assert main([*SLURM, "cancel", "d"]) == 0
    assert "job 77, had not begun: scancel 77 ends it, for d, e" in capsys.readouterr().out
    assert not (place / "ended").exists()
    assert main([*SLURM, "cancel"]) == 0
    assert "job 77, had not begun: ended" in capsys.readouterr().out
    assert (place / "ended").read_text() == "77\n"


def test_a_look_is_submitted_as_a_job_of_its_own(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its command is `gate --mend` of one dataset."""
    assert submitted(capsys, "d") == ("77", False)
    assert main([*LOOK]) == 0
    out = capsys.readouterr().out
    assert "the look is submitted: job 78" in out
    assert "afterok:78" in out
    assert "gate d --mend" in (place / "script-78").read_text()
    assert "--dependency" not in asked(place, 78)
    assert submitted(capsys, "gate", "d", "--mend") == ("78", True)
    assert submitted(capsys, "gate", "d", "--mend", "--sample", "5%") == ("79", False)
    assert "gate d --mend --sample 0.05" in (place / "script-79").read_text()
    assert submitted(capsys, "d") == ("77", True)


def test_what_a_run_may_be_told_is_handed_to_it(place: Path) -> None:
    assert main([*WORDS, "--new-release", "--copy-unchanged", "--cores", "2"]) == 0
    assert "run d --new-release --copy-unchanged --cores 2" in (place / "script-77").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([*WORDS, "--dry-run"], "--dry-run says what would be done, and needs no job"),
        ([*WORDS, "--backend", "local"], "only SLURM takes a command as a job"),
        ([*SLURM, "run", "--parsable"], "--parsable prints the id of a submitted job"),
        ([*SLURM, "gate", "--parsable"], "--parsable prints the id of a submitted job"),
        ([*SLURM, "gate", "--submit"], "the gate alone needs no job"),
    ],
)
def test_options_that_make_no_sense_with_a_job_are_refused(
    place: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    assert main(words) == 2
    assert says in capsys.readouterr().err
    assert not (place / "jobs").read_text()


@pytest.mark.parametrize(
    ("datasets", "cluster", "words", "memory"),
    [
        (1, {}, (), 1024),
        (1, {"memory": "64GiB"}, (), 1024),
        (1, {"steps": {"submit": {"memory": "3GiB"}}}, (), 3072),
        (9, {}, (), 3589),
        (9, {}, ("--cores", "2"), 1042),
    ],
)
def test_the_job_asks_for_memory_by_its_datasets(
    place: Path, datasets: int, cluster: dict[str, object], words: tuple[str, ...], memory: int
) -> None:
    """As many as have a step at once, none of which was listed; `cluster.steps.submit.memory` goes before."""
    configured(place, *(f"d{number}" for number in range(datasets)))
    config = json.loads((place / "my.yaml").read_text())
    (place / "my.yaml").write_text(json.dumps({**config, "cluster": cluster}))
    assert main([*SLURM, "run", "--submit", *words]) == 0
    assert f"--mem={memory}M " in asked(place, 77)


def test_status_names_the_job_that_waits(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS]) == 0
    capsys.readouterr()
    status = [*SLURM, "status", "d"]
    assert main(status) == 0
    told = "state         waiting: for SLURM: the submitted controller, job 77 (Priority), has not begun"
    assert told in capsys.readouterr().out
    (place / "target/d/releases").touch()
    assert main(status) == 4
    said = capsys.readouterr().out
    assert "state         damaged: d/releases is a file" in said
    assert "last run      waiting: for SLURM" in said


@pytest.mark.parametrize(
    ("nodes", "cluster", "stops"),
    [
        (["n1"], {}, True),
        (["n1", "n2"], {}, False),
        (["n1", "n2"], {"exclude": "n2"}, True),
        (["n1", "n2"], {"steps": {"verify": {"exclude": "n2"}, "submit": {"exclude": "n2"}}}, True),
        (["n1", "n2"], {"steps": {"verify": {"exclude": "n2"}}}, False),
        (["n1"], {"core_spec": "none", "cpus": 4, "memory": "1GiB"}, False),
        (["n1"], {"core_spec": "none", "cpus": 8, "memory": "1GiB"}, True),
        (["n1"], {"core_spec": "none", "cpus": 4, "memory": "7500MiB"}, True),
    ],
)
def test_a_controller_that_would_keep_its_elements_out_is_not_submitted(
    place: Path,
    capsys: pytest.CaptureFixture[str],
    nodes: list[str],
    cluster: dict[str, object],
    stops: bool,
) -> None:
    """On the only node that elements of whole nodes may use."""
    (place / "nodes").write_text("".join(NODE.format(name=name) for name in nodes))
    config = json.loads((place / "my.yaml").read_text())
    (place / "my.yaml").write_text(json.dumps({**config, "cluster": cluster}))
    assert main([*WORDS]) == (3 if stops else 0)
    assert ("n1 is the only node that elements may use" in capsys.readouterr().err) is stops
    assert bool((place / "jobs").read_text()) is not stops
