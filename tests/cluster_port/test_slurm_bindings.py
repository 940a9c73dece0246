"""SLURM by pyslurm: what goes through the helper, what through the commands, and what becomes of a helper
that fails. pyslurm is the stand-in of tests/support, SLURM one on paper: no cluster is needed."""

from __future__ import annotations

import ast
import dataclasses
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.cluster.processes import born, wait_for
from tests.support.paper_slurm import PaperSlurm
from tests.support.pyslurm_python import of_kind, that_loses_answers

from penstock.cluster.port import ArraySpec
from penstock.cluster.slurm import client, open_slurm
from penstock.cluster.slurm.commands import (
    HELPER,
    SlurmBindings,
    SlurmCommands,
    attributes,
    release,
)
from penstock.cluster.slurm.submission import array_arguments, job_arguments, single_arguments
from penstock.config.settings import ClusterConfig, JobOptions
from penstock.core.errors import FailedError, PreflightError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable

OPTIONS = JobOptions(
    partition="data,cpu", account="ml", qos="bulk", reservation="maint", constraint="fast&ib",
    licenses=("wan:1", "lan:2"), time=600, memory=1 << 30, core_spec=2, cpus=4, max_elements=3,
    exclude="n1,n[3-4]", wckey="ingest",
)  # fmt: skip
SPEC = ArraySpec(
    "penstock-x", "copy", (0, 1, 2, 7), ("/bin/true",), Path("/logs"), {"dataset": "d"},
)  # fmt: skip
SCRIPT = "#!/bin/sh\nexit 0\n"


@pytest.fixture
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PaperSlurm:
    paper = PaperSlurm(tmp_path / "paper")
    monkeypatch.setenv("PATH", f"{paper.folder}:{os.environ['PATH']}")
    return paper


@pytest.fixture(autouse=True)
def _log_reaches_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("penstock"), "propagate", True)


@pytest.fixture
def way(paper: PaperSlurm, tmp_path: Path) -> Callable[..., SlurmBindings]:
    """SLURM by the stand-in, with these faults."""

    def made(*, wanted: bool = True, **faults: object) -> SlurmBindings:
        faults.setdefault("log", str(tmp_path / "called"))
        return SlurmBindings(of_kind("stand-in", tmp_path, **faults), wanted=wanted)

    return made


def called(folder: Path) -> list[str]:
    """The calls that reached the stand-in; the first is the self-check's."""
    path = folder / "called"
    return path.read_text().split()[1:] if path.exists() else []


# What goes which way --------------------------------------------------------------------------


def test_what_pyslurm_says_of_a_cluster_is_what_the_commands_say(
    way: Callable[..., SlurmBindings], tmp_path: Path
) -> None:
    by = way()
    commands = SlurmCommands()
    assert by.nodes() == commands.nodes()
    assert [(node.away, node.reason) for node in by.nodes()] == [(True, "new disk"), (True, "")]
    assert by.partitions() == commands.partitions()
    assert [one.max_time for one in by.partitions()] == [None, 95400.0]
    assert called(tmp_path) == ["nodes", "nodes", "partitions", "partitions"]
    assert by.way == "pyslurm 24.11.9"


def test_which_cores_a_node_reserves_is_the_commands_to_say(
    way: Callable[..., SlurmBindings], paper: PaperSlurm, tmp_path: Path
) -> None:
    """S23: pyslurm has their number alone, not CpuSpecList."""
    text = (paper.folder / "nodes").read_text()
    (paper.folder / "nodes").write_text(
        text.replace("RealMemory", "CoreSpecCount=1 CPUSpecList=7 RealMemory", 1)
    )
    by = way()
    assert by.nodes() == SlurmCommands().nodes()
    assert by.nodes()[0].reserved == 1
    assert [line for line in paper.lines("scontrol.calls") if "show node" in line][-1].endswith(
        "--oneliner --all"
    )
    assert called(tmp_path) == ["nodes", "nodes"]


def test_a_job_is_the_same_by_both_ways(
    way: Callable[..., SlurmBindings], paper: PaperSlurm, tmp_path: Path
) -> None:
    """Z1: also core-spec and licences. Each option that sbatch gets stands in what pyslurm is given."""
    arguments = array_arguments(SPEC, 2, OPTIONS)
    by = way()
    assert by.submit_array(SPEC, 2, OPTIONS, SCRIPT) == "1"
    assert called(tmp_path) == ["submit"]
    (told,) = paper.lines("jobs")
    wanted = {word.replace("B:USR1@", f"B:{int(signal.SIGUSR1)}@") for word in arguments[1:]}
    assert wanted <= set(_words(told))
    assert (paper.folder / "script").read_text() == SCRIPT


def _words(line: str) -> list[str]:
    """The arguments of one sbatch: a comment has blanks."""
    return [word.strip() for word in line.replace(" --", "\n--").split("\n")]


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("--time=10", {"time_limit": 10}),
        ("--core-spec=2", {"cores_reserved_for_system": 2}),
        ("--signal=B:USR1@120", {"signal": {"signal": 10, "time": 120, "batch_only": True}}),
        ("--partition=data,cpu", {"partitions": ["data", "cpu"]}),
        ("--no-requeue", {"is_requeueable": False}),
        ("--exclusive", {"resource_sharing": "exclusive"}),
        ("--array=0-3%2", {"array": "0-3%2"}),
        ("--exclude=n1,n[3-4]", {"excluded_nodes": ["n1", "n[3-4]"]}),
        ("--wckey=ingest", {"wckey": "ingest"}),
        # Never sent, or not carried: sbatch's.
        ("--mail-user=alice", None),
        ("--core-spec=0", None),
        ("--signal=USR1@120", None),
        ("--export=NONE", None),
        ("--unheard-of=1", None),
    ],
)
def test_an_option_becomes_an_attribute_or_the_job_is_sbatchs(
    word: str, found: dict[str, Any] | None
) -> None:
    given = attributes(["sbatch", word], SCRIPT)
    if found is None:
        assert given is None
    else:
        assert given is not None
        assert given.items() >= found.items()
        assert isinstance(given["environment"], dict)


def test_no_option_of_today_keeps_a_job_from_pyslurm() -> None:
    assert attributes(["sbatch", *job_arguments(OPTIONS)], SCRIPT) is not None
    assert attributes(single_arguments("a", OPTIONS, "n1"), SCRIPT) is not None


def test_a_job_gets_the_umask_and_limits_that_sbatch_would_hand_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    before = os.umask(0o027)
    try:
        given = attributes(["sbatch"], SCRIPT)
    finally:
        os.umask(before)
    assert given is not None
    environment = given["environment"]
    assert isinstance(environment, dict)
    assert environment["SLURM_UMASK"] == "0027"
    assert int(environment["SLURM_RLIMIT_NOFILE"]) > 0
    assert not any(name.startswith("AWS_") for name in environment)


def test_a_core_spec_of_0_goes_through_sbatch(
    way: Callable[..., SlurmBindings], paper: PaperSlurm, tmp_path: Path
) -> None:
    by = way()
    by.submit_array(SPEC, 2, dataclasses.replace(OPTIONS, core_spec=0), SCRIPT)
    assert called(tmp_path) == []
    assert "--core-spec=0" in paper.lines("jobs")[0]


def test_what_pyslurm_does_and_what_the_commands(
    way: Callable[..., SlurmBindings], paper: PaperSlurm, tmp_path: Path
) -> None:
    by = way()
    by.cancel("7")
    by.cancel("7", [2, 3])
    paper.noted(3)
    by.throttle("7", 3)
    by.find("a")
    by.job("7")
    by.elements_of(["7"])
    by.ended_elements("7")
    assert by.trial(OPTIONS).refusal == ""
    assert called(tmp_path) == ["cancel", "throttle"]
    assert paper.lines("scancel.calls") == ["7", "7_[2-3]"]
    assert [line for line in paper.lines("scontrol.calls") if "update" in line] == [
        "update JobId=7 ArrayTaskThrottle=3"
    ]


def test_a_throttle_that_slurm_did_not_note_is_set_by_the_commands(
    way: Callable[..., SlurmBindings], paper: PaperSlurm
) -> None:
    paper.noted(9)
    way().throttle("7", 3)
    assert [line for line in paper.lines("scontrol.calls") if "update" in line] == 2 * [
        "update JobId=7 ArrayTaskThrottle=3"
    ]


def test_a_cancel_that_looks_like_a_failure_is_judged_by_the_commands(
    way: Callable[..., SlurmBindings], paper: PaperSlurm
) -> None:
    way(old_errno=True).cancel("7")
    assert paper.lines("scancel.calls") == ["7", "7"]


# What becomes of a call -----------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["dies", "raises"])
def test_a_helper_that_fails_is_replaced_by_the_commands(
    fault: str, way: Callable[..., SlurmBindings], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    by = way(**{fault: ["nodes"]})
    assert by.nodes() == SlurmCommands().nodes()
    assert by.nodes() == SlurmCommands().nodes()
    by.cancel("7")
    assert called(tmp_path) == ["nodes"]
    assert by.way == "pyslurm 24.11.9, then commands"
    (record,) = caplog.records
    assert ("it ended with signal 11" if fault == "dies" else "has no attribute 'that'") in record.message


def test_a_helper_that_hangs_is_ended_and_the_commands_take_over(
    way: Callable[..., SlurmBindings], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    by = way(hangs=["partitions"])
    by.nodes()
    monkeypatch.setattr(client, "ANSWER_WITHIN", 3.0)
    assert by.partitions() == SlurmCommands().partitions()
    assert "pyslurm gave no answer within 3 s" in caplog.text
    assert by.way.endswith("then commands")


@pytest.mark.parametrize("fault", ["dies", "raises"])
def test_a_submission_of_unknown_outcome_is_looked_for_by_its_name(
    fault: str, way: Callable[..., SlurmBindings], paper: PaperSlurm, caplog: pytest.LogCaptureFixture
) -> None:
    by = way(**{fault: ["submit"]})
    with pytest.raises(TransientError, match="nothing is known"):
        by.submit_array(SPEC, 2, OPTIONS, SCRIPT)
    assert paper.lines("jobs") == []
    array = str((by.find(SPEC.name) or [by.submit_array(SPEC, 2, OPTIONS, SCRIPT)])[0])
    assert array == "1"
    assert len(paper.lines("jobs")) == 1
    assert len(caplog.records) == 1


def test_an_answer_that_was_lost_leaves_an_array_of_that_name(paper: PaperSlurm, tmp_path: Path) -> None:
    by = SlurmBindings(that_loses_answers("stand-in", tmp_path, "true"), wanted=True)
    with pytest.raises(TransientError, match="nothing is known"):
        by.submit_array(SPEC, 2, OPTIONS, SCRIPT)
    assert len(paper.lines("jobs")) == 1
    assert by.find(SPEC.name) == [1]
    assert by.way == "pyslurm 24.11.9, then commands"


def test_slurm_that_is_away_is_no_fault_of_pyslurm(
    way: Callable[..., SlurmBindings], paper: PaperSlurm, caplog: pytest.LogCaptureFixture
) -> None:
    by = way(version="24.11.9")
    by.nodes()
    words = "slurm_load_node error: Unable to contact slurm controller (connect failure)"
    for command in ("scontrol", "sbatch", "scancel"):
        paper.refuse(command, words)
    for call in (by.nodes, by.partitions, lambda: by.cancel("7"), lambda: by.throttle("7", 3)):
        with pytest.raises(TransientError, match="did not reach SLURM"):
            call()
    with pytest.raises(TransientError, match="did not reach SLURM"):
        by.submit_array(SPEC, 2, OPTIONS, SCRIPT)
    assert not caplog.records
    assert by.way == "pyslurm 24.11.9"


def test_pyslurm_is_tried_once_slurm_is_back(
    way: Callable[..., SlurmBindings], paper: PaperSlurm, caplog: pytest.LogCaptureFixture
) -> None:
    whole = (paper.folder / "scontrol").read_text()
    by = way(version="24.11.9")
    paper.refuse("scontrol", "Unable to contact slurm controller (connect failure)")
    with pytest.raises(TransientError):
        by.nodes()
    assert by.way == "commands"
    (paper.folder / "scontrol").write_text(whole)
    assert by.nodes() == SlurmCommands().nodes()
    assert by.way == "pyslurm 24.11.9"
    assert not caplog.records


def test_a_refusal_has_slurms_own_words(way: Callable[..., SlurmBindings], paper: PaperSlurm) -> None:
    paper.refuse("sbatch", "sbatch: error: invalid partition specified: x")
    with pytest.raises(FailedError) as caught:
        way().submit_array(SPEC, 2, OPTIONS, SCRIPT)
    assert caught.value.why == "Invalid partition name specified"


def test_what_libslurm_prints_is_no_answer(way: Callable[..., SlurmBindings]) -> None:
    by = way(prints=["nodes"])
    assert by.nodes() == SlurmCommands().nodes()
    assert by.way == "pyslurm 24.11.9"


# Whether pyslurm is taken ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("faults", "why"),
    [
        ({"version": "25.11.2"}, "pyslurm 25.11.2 is not of this cluster's release, 24.11.5"),
        ({"cluster": "other"}, "pyslurm 24.11.9 speaks to the cluster other, the commands to lab"),
        ({"without_conf": True}, "it ended with status 1: .*Could not establish a configuration source"),
        ({"dies": ["cluster"]}, "it ended with signal 11"),
        ({"raises": ["cluster"]}, "AttributeError"),
    ],
)
def test_a_pyslurm_that_does_not_fit_is_not_taken(
    faults: dict[str, object],
    why: str,
    way: Callable[..., SlurmBindings],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S26: `auto` takes the commands and says nothing, `pyslurm` stops preflight."""
    by = way(wanted=False, **faults)
    by.require()
    assert (by.way, by.nodes()) == ("commands", SlurmCommands().nodes())
    assert not caplog.records
    by = way(**faults)
    with pytest.raises(PreflightError, match=why) as caught:
        by.require()
    assert "cluster.pyslurm_python" in caught.value.hint
    assert by.nodes() == SlurmCommands().nodes()
    assert len(caplog.records) == 1


def test_an_interpreter_that_is_not_there_or_lacks_pyslurm_is_said(tmp_path: Path, paper: PaperSlurm) -> None:
    for python, why in ((str(tmp_path / "none"), "cannot be run"), (sys.executable, "No module named")):
        with pytest.raises(PreflightError, match=why):
            SlurmBindings(python, wanted=True).require()


@pytest.mark.parametrize(
    ("api", "way"), [("commands", "commands"), ("auto", "pyslurm 24.11.9"), ("pyslurm", "pyslurm 24.11.9")]
)
def test_the_configuration_chooses_the_way(api: str, way: str, paper: PaperSlurm, tmp_path: Path) -> None:
    """S26: the commands are the default."""
    assert ClusterConfig().slurm_api == "commands"
    config = ClusterConfig(backend="slurm", slurm_api=api, pyslurm_python=of_kind("stand-in", tmp_path))
    assert open_slurm(config).way == way


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("25.11.2", (25, 11)), ("26.05.5", (26, 5)), ("26.5.0", (26, 5)), ("24.11.0-1", (24, 11)), ("x", ())],
)
def test_releases_are_compared_by_their_first_two_numbers(version: str, numbers: tuple[int, ...]) -> None:
    assert release(version) == numbers


# The helper ------------------------------------------------------------------------------------


def test_the_helper_is_of_python_3_6_and_imports_nothing_of_penstock() -> None:
    text = HELPER.read_text()
    tree = ast.parse(text, feature_version=(3, 6))
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
    }
    standard = {"json", "os", "signal", "sys", "typing"}
    assert imported == {*standard, "pyslurm"}


SUBMITS = """\
import json, sys
from pathlib import Path
from penstock.cluster.port import ArraySpec
from penstock.cluster.slurm.commands import SlurmBindings
from penstock.cluster.slurm.commands import SlurmCommands
from penstock.config.settings import JobOptions

way, python = sys.argv[1:]
slurm = SlurmCommands() if way == "commands" else SlurmBindings(python, wanted=True)
print(slurm.way, flush=True)
spec = ArraySpec("penstock-x", "copy", (0,), ("/bin/true",), Path("/logs"))
slurm.submit_array(spec, 1, JobOptions(core_spec=None, time=600), "#!/bin/sh\\n")
"""
SLOW = "cat >/dev/null\necho $$ > {0}/pid\nexec 3<{0}/go\nread line <&3\necho x >> {0}/jobs\necho 1\n"


@pytest.mark.parametrize("way", ["commands", "pyslurm"])
def test_a_submission_ends_with_the_controller_that_waits_for_it(
    way: str, paper: PaperSlurm, tmp_path: Path
) -> None:
    """Also by kill -9: what outlives it would be an array that the next controller does not find."""
    os.mkfifo(paper.folder / "go")
    paper._write("sbatch", SLOW.format(paper.folder))
    python = of_kind("stand-in", tmp_path, hangs=["submit"], pids=str(paper.folder / "pid"))
    parent = subprocess.Popen(
        [sys.executable, "-c", SUBMITS, way, python],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    assert parent.stdout.readline().startswith(way)
    file = paper.folder / "pid"
    wait_for(lambda: file.exists() and bool(file.read_text().strip()), "the submission")
    pid = int(file.read_text())
    assert born(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_for(lambda: not born(pid), "the end of the submission")
    assert paper.lines("jobs") == []


def test_a_helper_that_hangs_ends_itself(paper: PaperSlurm, tmp_path: Path) -> None:
    """Where its interpreter is a script that does not hand the controller's end on."""
    words = [of_kind("stand-in", tmp_path, hangs=["nodes"]), str(HELPER), "1", "nodes"]
    done = subprocess.run(words, input=b"{}", capture_output=True, check=False)
    assert done.returncode == -signal.SIGALRM
