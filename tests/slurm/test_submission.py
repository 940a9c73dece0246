"""What is handed to sbatch, and how its answers are read. No cluster is needed."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster.port import ArraySpec, Cause, State
from penstock.cluster.slurm.answers import read_sacct, read_squeue, read_time
from penstock.cluster.slurm.client import CommandOutput, call, problem
from penstock.cluster.slurm.environment import STOP_AT
from penstock.cluster.slurm.facts import read_nodes
from penstock.cluster.slurm.submission import (
    Account,
    array_arguments,
    compressed,
    expanded,
    job_arguments,
    script,
    validated,
)
from penstock.config.settings import JobOptions
from penstock.core.errors import ConfigError, FailedError, PreflightError, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.cluster.slurm.answers import SlurmElement


def given_as(key: str, value: str) -> dict[str, Any]:
    return {key: value}


ACCOUNT = Account("alice", "/home/alice")
SETTLED = JobOptions(core_spec=2)
"""Options in which nothing is `auto`."""


def an_array(logs: Path) -> ArraySpec:
    return ArraySpec("n", "copy", [0], ["/x"], logs)


class TestArguments:
    def test_every_option_is_one_argument(self) -> None:
        options = JobOptions(
            partition="data,cpu", account="ml", qos="bulk", reservation="night", constraint="ib&[r1|r2]",
            licenses=("wan:1", "lustre@site:2"), time=61, memory=(1 << 20) + 1, core_spec=2, cpus=4,
        )  # fmt: skip
        assert job_arguments(options) == [
            "--nodes=1", "--ntasks=1", "--partition=data,cpu", "--account=ml", "--qos=bulk",
            "--reservation=night", "--constraint=ib&[r1|r2]", "--licenses=wan:1,lustre@site:2", "--time=2",
            "--mem=2M", "--core-spec=2", "--cpus-per-task=4",
        ]  # fmt: skip

    def test_nothing_is_asked_for_that_was_not_configured(self) -> None:
        assert job_arguments(JobOptions(core_spec=None)) == ["--nodes=1", "--ntasks=1", "--exclusive"]

    @pytest.mark.parametrize(
        ("core_spec", "cpus", "whole"),
        [(2, None, False), (2, 4, False), (None, 4, False), (None, None, True)],
    )
    def test_whole_nodes(self, core_spec: int | None, cpus: int | None, whole: bool) -> None:
        words = job_arguments(JobOptions(core_spec=core_spec, cpus=cpus))
        assert ("--exclusive" in words) == whole

    @pytest.mark.parametrize("bad", ["x; touch PWNED", "$(id)", "a b", "--wrap=id", "-x", "", "a\nb", "a'b"])
    @pytest.mark.parametrize("key", ["partition", "account", "qos", "reservation", "constraint"])
    def test_free_text_is_refused(self, key: str, bad: str) -> None:
        with pytest.raises(ConfigError, match=key):
            job_arguments(replace(SETTLED, **given_as(key, bad)))

    @pytest.mark.parametrize("bad", ["x; touch PWNED", "wan:one", "wan:1,other:2", "", ":1"])
    def test_so_are_odd_licences(self, bad: str) -> None:
        with pytest.raises(ConfigError):
            job_arguments(replace(SETTLED, licenses=(bad,)))

    def test_an_array_bears_its_cap_and_its_logs(self) -> None:
        labels = {"dataset": "a", "release": "20261122-ab", "step": "copy"}
        spec = ArraySpec("n", "copy", [0, 1, 2, 9], ["/x"], Path("/t/100%/logs"), labels)
        words = array_arguments(spec, 3, SETTLED)
        assert "--comment=penstock dataset=a release=20261122-ab step=copy" in words
        assert "--array=0-2,9%3" in words
        assert "--output=/t/100%%/logs/copy-%A_%a.log" in words
        assert {"--requeue", "--signal=B:USR1@120", "--open-mode=append"} <= set(words)

    def test_what_chooses_nodes_and_what_accounting_sees(self) -> None:
        chosen = JobOptions(core_spec=2, exclude="n[1-4]", wckey="ingest")
        spec = replace(an_array(Path("/t")), labels={"dataset": "a", "step": "copy"})
        words = array_arguments(spec, 1, chosen)
        assert {
            "--exclude=n[1-4]", "--wckey=ingest", "--comment=penstock dataset=a step=copy",
        } <= set(words)  # fmt: skip
        assert not [word for word in words if word.startswith("--mail")]

    @pytest.mark.parametrize("over", [{"exclude": "/etc/hosts"}, {"exclude": "n1 n2"}, {"wckey": "a b"}])
    def test_what_is_no_such_option_is_refused(self, over: dict[str, Any]) -> None:
        with pytest.raises(ConfigError):
            array_arguments(an_array(Path("/t")), 1, JobOptions(core_spec=2, **over))

    def test_who_is_told_by_mail(self) -> None:
        spec = replace(an_array(Path("/t")), mail="alice@example.org")
        words = array_arguments(spec, 1, JobOptions(core_spec=2))
        assert {"--mail-user=alice@example.org", "--mail-type=END,FAIL"} <= set(words)
        with pytest.raises(ConfigError):
            array_arguments(replace(spec, mail="a b"), 1, JobOptions(core_spec=2))

    def test_the_logs_of_further_arrays_of_a_step_say_where_these_begin(self) -> None:
        """MaxArraySize: indices from 1001 on are the numbers from 0 on of an array of their own."""
        spec = ArraySpec("n", "copy", range(999), ["/x"], Path("/t"), base=1001)
        words = array_arguments(spec, 3, JobOptions(core_spec=2))
        assert "--array=0-998%3" in words
        assert "--output=/t/copy-from1001-%A_%a.log" in words

    def test_a_short_time_leaves_a_shorter_lead(self) -> None:
        words = array_arguments(an_array(Path("/t")), 1, replace(SETTLED, time=120))
        assert "--signal=B:USR1@30" in words

    @pytest.mark.parametrize("folder", ["/a\\b", "/a\nb", "relative"])
    def test_folders_that_slurm_would_misread_are_refused(self, folder: str) -> None:
        with pytest.raises(ConfigError):
            array_arguments(an_array(Path(folder)), 1, SETTLED)

    def test_a_name_is_no_free_text_either(self) -> None:
        with pytest.raises(ConfigError):
            validated("name", "x;y")


class TestScript:
    def test_the_command_gets_its_words_unchanged_and_the_index_last(self, tmp_path: Path) -> None:
        odd = ["it's", "$(touch PWNED)", "a b", "", "`id`", "\\n", "*"]
        program = "import sys, json; print(json.dumps(sys.argv[1:]))"
        text = script([sys.executable, "-c", program, *odd], JobOptions(), ACCOUNT)
        done = subprocess.run(
            ["/bin/sh"], input=text, env={"SLURM_ARRAY_TASK_ID": "7"}, cwd=tmp_path, capture_output=True,
            text=True, check=True,
        )  # fmt: skip
        assert json.loads(done.stdout) == [*odd, "7"]
        assert not list(tmp_path.iterdir())

    def test_an_index_is_the_number_in_the_array_and_the_base(self) -> None:
        text = script([sys.executable, "-c", "import sys; print(sys.argv[1])"], JobOptions(), ACCOUNT, 1001)
        done = subprocess.run(
            ["/bin/sh"], input=text, env={"SLURM_ARRAY_TASK_ID": "7"}, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        assert done.stdout == "1008\n"

    def test_a_missing_interpreter_is_named_with_its_node(self) -> None:
        done = subprocess.run(
            ["/bin/sh"], input=script(["/no/such python", "-m", "x"], JobOptions(), ACCOUNT),
            env={"SLURMD_NODENAME": "n3"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 127
        assert done.stderr == "penstock: no interpreter /no/such python on node n3\n"

    def test_home_and_user_are_the_accounts_unless_the_node_has_them(self) -> None:
        text = script(["/usr/bin/env"], JobOptions(), Account("o'neil", "/home/o'neil $x"))
        bare = {"SLURM_ARRAY_TASK_ID": "A=1", "PATH": "/usr/bin:/bin"}
        for extra, home in (({}, "/home/o'neil $x"), ({"HOME": "/node"}, "/node")):
            done = subprocess.run(
                ["/bin/sh"], input=text.replace('"$SLURM', '-u A "$SLURM'), env=bare | extra,
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            told = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
            assert (told["HOME"], told["USER"], told["LOGNAME"]) == (home, "o'neil", "o'neil")

    @pytest.mark.parametrize(("limit", "until"), [(60, 45), (61, 90), (4 * 3600, 4 * 3600 - 120)])
    def test_an_element_knows_when_to_stop(self, limit: int, until: int) -> None:
        text = script(["/usr/bin/env"], JobOptions(time=limit), ACCOUNT).replace('"$SLURM', '-u A "$SLURM')
        done = subprocess.run(
            ["/bin/sh"], input=text, env={"SLURM_ARRAY_TASK_ID": "A=1", "PATH": "/usr/bin:/bin"},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        told = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
        assert abs(int(told[STOP_AT]) - time.time() - until) <= 2

    def test_it_becomes_the_command(self) -> None:
        assert (
            script(["/bin/x", "a b"], JobOptions(), ACCOUNT).splitlines()[-1]
            == f'exec {shlex.join(["/bin/x", "a b"])} "$SLURM_ARRAY_TASK_ID"'
        )


class TestIndices:
    @settings(deadline=None, max_examples=50)
    @given(st.sets(st.integers(0, 5000), min_size=1))
    def test_compressing_loses_nothing(self, indices: set[int]) -> None:
        assert expanded(compressed(indices)) == sorted(indices)

    @pytest.mark.parametrize(
        ("text", "indices"),
        [("[3-6%2]", [3, 4, 5, 6]), ("5", [5]), ("[0-10:5,12%4]", [0, 5, 10, 12]), ("3-5%1", [3, 4, 5])],
    )
    def test_slurms_own_forms_are_read(self, text: str, indices: list[int]) -> None:
        assert expanded(text) == indices

    def test_an_array_of_nothing_is_an_error(self) -> None:
        with pytest.raises(ValueError):
            compressed([])


def ends(seen: Iterable[SlurmElement]) -> dict[int, tuple[int | None, int | None]]:
    """Exit status and signal of the elements that have one."""
    found = {one.element: (one.status.exit_code, one.status.signal) for one in seen}
    return {element: end for element, end in found.items() if end != (None, None)}


class TestAnswers:
    def test_squeue(self) -> None:
        text = (
            "18|1|COMPLETING|0|0|2|1795263274|1795263278|n1|None|\n"
            "18|0|RUNNING|0|1|2|1795263274|1795263334|n2|None|\n"
            "18|[3-4%2]|PENDING|0|0|2|N/A|N/A||JobArrayTaskLimit|\n"
            "18|5|FAILED|1792|0|2|1795263274|1795263275|n1|NonZeroExitCode|\n"
            "18|6|FAILED|9|0|2|1795263274|1795263275|n1|JobLaunchFailure|\n"
            "18|7|OUT_OF_MEMORY|125|0|2|1795263274|1795263275|n1|OutOfMemory|\n"
            "18|8|PENDING|0|0|2|N/A|N/A||launch failed requeued held|\n"
            "18|9|CANCELLED|15|0|2|1795263274|1795263275|n1|None|\n"
            "18|10|PENDING|0|1|2|1795263280|1795263340||job requeued in held state|\n"
            "18|11|PENDING|0|0|2|N/A|N/A||JobHeldAdmin|\n"
            "18|12|SPECIAL_EXIT|0|1|2|N/A|N/A||JobHeldUser|\n"
            "18|13|PENDING|0|0|2|1795263999|1795264999||Priority|\n"
        )
        seen = {one.element: one for _, one in read_squeue(text)}
        told = {index: (one.status.state, one.status.reason) for index, one in seen.items()}
        assert told == {
            0: (State.RUNNING, ""),
            1: (State.RUNNING, ""),
            3: (State.PENDING, "JobArrayTaskLimit"),
            4: (State.PENDING, "JobArrayTaskLimit"),
            5: (State.FAILED, "exit 7"),
            6: (State.FAILED, "signal 9"),
            7: (State.FAILED, "OUT_OF_MEMORY: OutOfMemory"),
            8: (State.FAILED, "PENDING: launch failed requeued held"),
            9: (State.CANCELLED, "CANCELLED"),
            10: (State.PENDING, "job requeued in held state"),
            11: (State.PENDING, "JobHeldAdmin"),
            12: (State.PENDING, "JobHeldUser"),
            13: (State.PENDING, "Priority"),
        }
        assert ends(seen.values()) == {5: (7, None), 6: (None, 9)}
        assert seen[8].launch_failed
        assert [index for index, one in seen.items() if one.status.out_of_memory] == [7]
        assert [i for i, one in seen.items() if one.status.held] == [10, 11, 12]
        assert {i: one.status.expected for i, one in seen.items() if one.status.expected} == {13: 1795263999}
        assert seen[0].status.restarts == 1
        assert (seen[5].status.started, seen[5].status.ended, seen[5].status.node) == (
            1795263274,
            1795263275,
            "n1",
        )
        assert {one.core_spec for one in seen.values()} == {"2"}

    def test_squeue_of_later_releases(self) -> None:
        """From 24.11 at the latest: an exit status as `status:signal`, NONE for an end without a time yet."""
        text = (
            "7|0|RUNNING|0:0|1|2|1795263274|NONE|n2|None|\n"
            "7|1|FAILED|3:0|0|2|1795263274|1795263275|n1|NonZeroExitCode|\n"
            "7|2|FAILED|0:9|0|2|1795263274|1795263275|n1|RaisedSignal:9(Killed)|\n"
            "7|3|COMPLETED|0:0|0|2|1795263274|1795263275|n4|None|\n"
        )
        told = {one.element: (one.status.state, one.status.reason) for _, one in read_squeue(text)}
        assert told == {
            0: (State.RUNNING, ""),
            1: (State.FAILED, "exit 3"),
            2: (State.FAILED, "signal 9"),
            3: (State.DONE, ""),
        }
        assert ends(one for _, one in read_squeue(text)) == {1: (3, None), 2: (None, 9), 3: (0, None)}

    def test_what_slurm_itself_ended_an_element_for(self) -> None:
        lines = ["FAILED|10", "FAILED|9", "FAILED|256", "TIMEOUT|15", "NODE_FAIL|0", "OUT_OF_MEMORY|125"]
        text = "".join(f"18|{n}|{one}|0|2|1|2|n1|None|\n" for n, one in enumerate(lines))
        causes = [one.status.cause for _, one in read_squeue(text)]
        assert causes == [Cause.TIME, Cause.NONE, Cause.NONE, Cause.TIME, Cause.NODE, Cause.NONE]

    def test_sacct(self) -> None:
        text = (
            "3_0|CANCELLED by 1000|0:15|1795263640|1795263641|n1\n"
            "3_1|COMPLETED|0:0|1795263640|1795263641|n2\n"
            "3_2|FAILED|7:0|1795263640|1795263641|n2\n"
            "3_[3-4%2]|PENDING|0:0|Unknown|Unknown|None assigned\n"
            "2_0|COMPLETED|0:0|1795263640|1795263641|n1\n"
            "3|COMPLETED|0:0|1795263640|1795263641|n1\n"
        )
        told = {one.element: (one.status.state, one.status.reason) for one in read_sacct(text, "3")}
        assert told == {
            0: (State.CANCELLED, "CANCELLED"),
            1: (State.DONE, ""),
            2: (State.FAILED, "exit 7"),
            3: (State.PENDING, ""),
            4: (State.PENDING, ""),
        }
        assert ends(read_sacct(text, "3")) == {1: (0, None), 2: (7, None)}

    def test_a_line_of_another_form_is_an_error(self) -> None:
        with pytest.raises(ValueError):
            list(read_squeue("18|0|something else\n"))

    @pytest.mark.parametrize(
        ("words", "kind"),
        [
            ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", TransientError),
            (
                "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
                TransientError,
            ),
            ("sacct: error: Sending PersistInit msg: Connection refused", TransientError),
            ("sbatch: error: Batch job submission failed: Invalid partition name specified", FailedError),
            ("sbatch: error: Batch job submission failed: Requested time limit is invalid", FailedError),
        ],
    )
    def test_what_may_pass_and_what_may_not(self, words: str, kind: type[Exception]) -> None:
        error = problem("sbatch", CommandOutput(1, "", words))
        assert type(error) is kind
        assert words in str(error)

    def test_a_program_that_is_not_installed_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        with pytest.raises(PreflightError, match="sbatch"):
            call("sbatch", "--version")

    def test_no_option_of_the_shell_reaches_a_command(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SBATCH_PARTITION", "elsewhere")
        assert "SBATCH" not in call("env").out

    @pytest.mark.parametrize(
        ("word", "seconds"),
        [("1-02:03:04", 93784), ("30:00", 1800), ("01:00:00", 3600), ("infinite", 0), ("5", 5)],
    )
    def test_times(self, word: str, seconds: float) -> None:
        assert read_time(word) == seconds

    def test_nodes(self) -> None:
        line = (
            "NodeName=n1 CPUTot=16 AvailableFeatures=fast,ib RealMemory=8000 Sockets=2 CoresPerSocket=4 "
            "CoreSpecCount=1 OS=Linux 6 #1 SMP Partitions=data,urgent \n"
        )
        (node,) = read_nodes(line)
        assert (node.name, node.cpus, node.cores, node.reserved) == ("n1", 16, 8, 1)
        assert node.memory == 8000 << 20
        assert node.partitions == {"data", "urgent"}
        assert node.features == {"fast", "ib"}
