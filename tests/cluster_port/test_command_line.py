"""What SLURM's commands are called with: each is a script here that keeps its words."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.cluster.processes import wait_for
from tests.support.paper_slurm import PaperSlurm

from penstock.cluster.port import State
from penstock.cluster.slurm import client
from penstock.cluster.slurm.answers import NO_ELEMENT
from penstock.cluster.slurm.cluster import SlurmCluster
from penstock.cluster.slurm.commands import SlurmCommands
from penstock.cluster.slurm.facts import Facts, JobTrial
from penstock.cluster.slurm.submission import single_arguments
from penstock.config.settings import ClusterConfig, JobOptions
from penstock.core.errors import ConfigError, FailedError, TransientError

if TYPE_CHECKING:
    from pathlib import Path


class Commands:
    """`answers[program]`: what it prints and its exit status."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def answers(self, program: str, text: str = "", code: int = 0) -> None:
        stream = "" if code == 0 else " >&2"
        path = self.folder / program
        path.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$*" >> {self.folder}/{program}.words\n'
            f"cat >/dev/null\ncat{stream} <<'EOT'\n{text}EOT\nexit {code}\n"
        )
        path.chmod(0o755)

    def words(self, program: str) -> list[str]:
        return (self.folder / f"{program}.words").read_text().splitlines()


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(tmp_path, monkeypatch)


def test_s26_several_arrays_are_one_squeue_of_this_accounts_jobs(commands: Commands) -> None:
    commands.answers(
        "squeue",
        "18|0|RUNNING|0|0|2|1795263274|1795263334|n2|None|\n"
        "19|3|PENDING|0|0|2|N/A|N/A||Priority|\n"
        "20|0|RUNNING|0|0|2|1795263274|1795263334|n2|None|\n",
    )
    found = SlurmCommands().elements_of(["18", "19", "21"])
    assert {array: [one.element for one in some] for array, some in found.items()} == {
        "18": [0], "19": [3], "21": [],
    }  # fmt: skip
    (words,) = commands.words("squeue")
    assert f"--user={os.geteuid()} -j 18,19,21" in words
    assert SlurmCommands().elements_of(["18"])["18"][0].status.state is State.RUNNING
    assert "--user" not in commands.words("squeue")[1], "slurmctld then sends the one array alone"


CONFIGURATION = """\
Configuration data as of 2026-11-23T12:00:00
MinJobAge               = {age} sec
MessageTimeout          = 60 sec
MaxArraySize            = 1001
SchedulerParameters     = bf_interval=3,max_array_tasks=20,batch_sched_delay=1
SLURM_VERSION           = 24.11.5
"""


def test_what_the_configuration_says(commands: Commands) -> None:
    commands.answers("scontrol", CONFIGURATION.format(age=30))
    facts = SlurmCommands().facts()
    assert (facts.min_job_age, facts.message_timeout) == (30.0, 60.0)
    assert (facts.max_array, facts.max_tasks) == (1001, 20)
    commands.answers("scontrol", CONFIGURATION.format(age=0).replace("max_array_tasks=20,", ""))
    facts = SlurmCommands().facts()
    assert facts.min_job_age == math.inf, "0: slurmctld purges no job"
    assert facts.max_tasks is None


def test_what_people_write_of_a_node_is_none_of_its_fields(commands: Commands) -> None:
    commands.answers(
        "scontrol",
        "NodeName=gpu_01 CPUTot=8 CoresPerSocket=4 Sockets=2 RealMemory=8000 State=DOWN* TmpDisk=0 "
        "Partitions=data Extra=Partitions=cpu Reason=was State=IDLE CPUSpecList=7 [root@now] "
        "Comment=RealMemory=1\n",
    )
    (node,) = SlurmCommands().nodes()
    assert (node.name, node.state, node.partitions) == ("gpu_01", "DOWN*", {"data"})
    assert (node.memory, node.cpu_spec, node.reason) == (8000 << 20, "", "was State=IDLE CPUSpecList=7")


def test_a_job_that_slurm_does_not_know_has_no_state(commands: Commands) -> None:
    commands.answers("squeue", "slurm_load_jobs error: Invalid job id specified\n", 1)
    assert SlurmCommands().job("18").state == ""
    commands.answers("squeue", "slurm_load_jobs error: Access/permission denied\n", 1)
    with pytest.raises(TransientError, match=r"squeue failed: .*Access/permission denied"):
        SlurmCommands().job("18")


def test_a_job_that_is_no_array_has_the_id_of_an_array_that_slurm_lost(commands: Commands) -> None:
    commands.answers(
        "squeue",
        "18|N/A|RUNNING|0|0|2|1795263274|1795263334|n2|None|training | x|\n"
        "19|3|RUNNING|0|0|2|1795263274|1795263334|n2|None|penstock-d-r-copy-1|\n",
    )
    found = SlurmCommands().elements_of(["18", "19"])
    assert [(one.element, one.name) for one in found["18"]] == [(NO_ELEMENT, "training | x")]
    assert [(one.element, one.name) for one in found["19"]] == [(3, "penstock-d-r-copy-1")]
    commands.answers("scancel")
    cluster = SlurmCluster(ClusterConfig(backend="slurm"))
    cluster._facts = Facts("24.11", 1001, True, accounting=False)
    cluster.recall("18", "penstock-d-r-copy-0")
    assert cluster.states("18", [0])[0].state is State.LOST
    cluster.cancel("18")
    assert not (commands.folder / "scancel.words").exists()


def test_what_lies_in_hidden_partitions_is_asked_for_too(commands: Commands) -> None:
    """slurmctld leaves it out of every answer but that about one job."""
    for program in ("squeue", "sinfo", "scontrol"):
        commands.answers(program)
    slurm = SlurmCommands()
    slurm.elements_of(["18"])
    slurm.elements_of(["18", "19"])
    slurm.find("a-name")
    slurm.job_states("18")
    slurm.job("18")
    slurm.nodes()
    slurm.node_states(["n1"])
    slurm.partitions()
    asked = [
        words.split() for program in ("squeue", "sinfo", "scontrol") for words in commands.words(program)
    ]
    assert len(asked) == 8
    assert [words for words in asked if "--all" not in words] == []


def test_an_array_that_slurm_has_forgotten_has_no_elements(commands: Commands) -> None:
    commands.answers("squeue", "slurm_load_jobs error: Invalid job id specified\n", 1)
    assert SlurmCommands().elements_of(["18"]) == {"18": []}


def test_nodes_that_failed_are_excluded_by_name(commands: Commands) -> None:
    commands.answers("scontrol")
    commands.answers("sbatch")
    slurm = SlurmCommands()
    slurm.keep_off("18", ["n3", "n4", "gpu_01"])
    assert commands.words("scontrol") == ["update JobId=18 ExcNodeList=gpu_01,n[3-4]"]
    assert "--nodelist=gpu_01" in single_arguments("penstock-probe", JobOptions(core_spec=None), "gpu_01")
    assert slurm.trial(JobOptions(core_spec=None), exclude=["n3", "n4"]) == JobTrial()
    assert "--exclude=n[3-4]" in commands.words("sbatch")[0].split()
    with pytest.raises(ConfigError):
        slurm.keep_off("18", ["n3 JobId=1"])


@pytest.mark.parametrize(
    "words", ["Invalid job id specified", "Job is no longer pending execution", "Job has already finished"]
)
def test_keeping_an_array_off_that_has_started_is_no_error(commands: Commands, words: str) -> None:
    commands.answers("scontrol", f"slurm_update error: {words}\n", 1)
    SlurmCommands().keep_off("18", ["n3"])
    commands.answers("scontrol", "slurm_update error: Access/permission denied\n", 1)
    with pytest.raises(FailedError):
        SlurmCommands().keep_off("18", ["n3"])
    commands.answers("scontrol", "slurm_update error: Unable to contact slurm controller\n", 1)
    with pytest.raises(TransientError):
        SlurmCommands().keep_off("18", ["n3"])


def test_a_command_that_never_ends_is_named_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(client, "_say", [said.append])
    for name, seconds in (("SAID", 0.1), ("AGAIN", 0.2), ("ANSWER_WITHIN", 0.6)):
        monkeypatch.setattr(client, name, seconds)
    with pytest.raises(TransientError, match="sleep gave no answer within"):
        client.call("sleep", "100")
    assert len(said) >= 2
    assert all(text.startswith("SLURM's sleep has not answered for ") for text in said)


def test_a_slow_command_gets_its_input_once_and_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "SAID", 0.05)
    assert client.call("sh", "-c", "sleep 0.3; cat", stdin="#!/bin/sh\n") == (0, "#!/bin/sh\n", "")


def test_jobs_of_everybody_are_read_with_their_nodes(commands: Commands) -> None:
    commands.answers(
        "squeue",
        "70|70|R|me|ml|normal|n[1-2]|None|penstock-submit-1\n"
        "91|90|PD|you|bio|long||QOSMaxJobsPerUserLimit|a|b\n"
        "92|92|CG|you|bio|long|(null)|None|x\n",
    )
    first, second, third = SlurmCommands().jobs()
    assert (first.running, first.nodes, first.has_controller("1")) == (True, {"n1", "n2"}, True)
    assert (second.job, second.array, second.running, second.name) == ("91", "90", False, "a|b")
    assert (second.reason, second.has_controller("91"), second.has_controller("1")) == (
        "QOSMaxJobsPerUserLimit",
        True,
        False,
    )
    assert (third.running, third.nodes) == (True, frozenset())
    assert (first.account, second.account, second.qos) == ("ml", "bio", "long")


def test_when_a_job_that_is_not_submitted_would_start(commands: Commands) -> None:
    """Slurm 22.05.8, with SLURM_TIME_FORMAT=%s; 24.11.5 has the same words."""
    commands.answers("sbatch", "sbatch: Job 6 to start at 1795669828 using 1 processors on nodes n3\n")
    assert SlurmCommands().trial(JobOptions(core_spec=None)) == JobTrial(start=1795669828.0)
    commands.answers("sbatch", "allocation failure: Invalid node name specified\n", 1)
    assert SlurmCommands().trial(JobOptions(core_spec=None)) == JobTrial(
        "allocation failure: Invalid node name specified"
    )


QUERIES = {
    "squeue": lambda slurm: [slurm.elements_of(["18"]), slurm.find("name"), slurm.job("18"), slurm.jobs()],
    "scontrol": lambda slurm: [slurm.facts(), slurm.settings(), slurm.nodes(), slurm.partitions()],
    "sacct": lambda slurm: [slurm.ended_elements("18"), slurm.accounting("18"), slurm.ended_states("18")],
    "sinfo": lambda slurm: [slurm.node_states(["n1"])],
    "sacctmgr": lambda slurm: [slurm.qos("normal"), slurm.accounts("lab", "me")],
}


@pytest.mark.parametrize("program", QUERIES)
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("kill -9 $$", "it was killed by SIGKILL"),
        ("exit 137", "it was killed by SIGKILL"),
        ("exit 1", "exit status 1"),
        ("echo 'slurm error: Unspecified error' >&2; exit 1", "Unspecified error"),
        ("echo 'slurm error: Invalid user id' >&2; exit 1", "Invalid user id"),
    ],
)
def test_a_query_that_fails_is_one_without_an_answer(
    commands: Commands, program: str, body: str, words: str
) -> None:
    """Whatever its words: nothing was refused."""
    path = commands.folder / program
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    with pytest.raises(TransientError) as raised:
        QUERIES[program](SlurmCommands())
    assert words in str(raised.value)
    assert program in str(raised.value)


@pytest.mark.parametrize("body", ["kill -9 $$", "echo 'slurm error: Unspecified error' >&2; exit 1"])
def test_a_query_that_fails_once_has_its_answer(commands: Commands, body: str) -> None:
    """Preflight, `status` or `run --submit` ended by it."""
    commands.answers("sinfo", "n1|idle\n")
    path = commands.folder / "sinfo"
    once = f"[ -e {commands.folder}/failed ] || {{ touch {commands.folder}/failed; {body}; }}\n"
    path.write_text(path.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n{once}"))
    assert SlurmCommands().node_states(["n1"]) == {"n1": "idle"}
    assert (commands.folder / "failed").exists()


@pytest.mark.parametrize("text", ["18|0|RUNN\n", "18_3|", "77|\n", "garbage | no numbers\n18|x|y|z\n"])
def test_an_answer_that_is_cut_off_is_none(commands: Commands, text: str) -> None:
    commands.answers("squeue", text)
    with pytest.raises(TransientError, match="squeue's answer cannot be read"):
        SlurmCommands().elements_of(["18"])


def test_a_configuration_that_is_cut_off_is_none(commands: Commands) -> None:
    """Else another cluster's name, and other limits, would be believed."""
    commands.answers("scontrol", CONFIGURATION.format(age=30).partition("SLURM_VERSION")[0])
    with pytest.raises(TransientError, match="scontrol's answer cannot be read"):
        SlurmCommands().facts()
    commands.answers("scontrol", CONFIGURATION.format(age=30).replace("= 1001", "= 10x1"))
    with pytest.raises(TransientError, match="scontrol's answer cannot be read"):
        SlurmCommands().facts()


@pytest.mark.parametrize("body", ["kill -9 $$", "exit 137", "exit 1"])
def test_nothing_is_known_of_a_submission_that_ended_without_words(commands: Commands, body: str) -> None:
    path = commands.folder / "sbatch"
    path.write_text(f"#!/bin/sh\ncat >/dev/null\n{body}\n")
    path.chmod(0o755)
    with pytest.raises(TransientError, match="sbatch did not reach SLURM"):
        SlurmCommands().submit_job("a-name", JobOptions(core_spec=None), "#!/bin/sh\n")
    commands.answers("sbatch", "sbatch: error: Batch job submission failed: Unspecified error\n", 1)
    with pytest.raises(FailedError, match="sbatch failed"):
        SlurmCommands().submit_job("a-name", JobOptions(core_spec=None), "#!/bin/sh\n")


@pytest.mark.parametrize(
    ("number", "whole_group"), [(signal.SIGINT, True), (signal.SIGINT, False), (signal.SIGTERM, False)]
)
def test_a_stop_ends_the_wait_for_an_answer(
    tmp_path: Path, number: signal.Signals, whole_group: bool
) -> None:
    """Ctrl-C reaches squeue, too: its end was the last word."""
    slurm = PaperSlurm(tmp_path / "slurm")
    begun = tmp_path / "begun"
    (slurm.folder / "squeue").write_text(f"#!/bin/sh\ntouch {begun}\nexec sleep 100\n")
    (tmp_path / "my.yaml").write_text(
        f"target: {{root: {tmp_path / 'target'}}}\ndatasets: {{a: {{source: {tmp_path / 'source'}}}}}\n"
        "cluster: {backend: slurm, slurm_api: commands}\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "--as-root", "--config", "my.yaml", "run", "--submit"],
        cwd=tmp_path, env={**os.environ, "PATH": f"{slurm.folder}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    with process:
        wait_for(lambda: begun.exists() or process.poll() is not None, "squeue", seconds=60)
        asked = time.monotonic()
        (os.killpg if whole_group else os.kill)(process.pid, number)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number, said
    assert f"stopped by {number.name}" in said
    assert "squeue" not in said
    assert time.monotonic() - asked < 30, "it would sleep for 100 s"
