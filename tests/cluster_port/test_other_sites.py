"""SLURM as other sites have it: wrappers that print or read, tokens, what is not shown. By stand-ins."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest

from penstock.cluster.port import ArraySpec, State
from penstock.cluster.slurm import client, environment
from penstock.cluster.slurm.client import CommandOutput, problem
from penstock.cluster.slurm.commands import SlurmCommands
from penstock.cluster.slurm.submission import exporting, handed_on, together_arguments, without_file
from penstock.config.settings import JobOptions
from penstock.core.errors import FailedError, TransientError
from penstock.host import kernel_facts

OPTIONS = JobOptions(core_spec=None, cpus=1)
BANNER = """\
-----------------------------------------------------------------
           Welcome to the Lonestar6 Supercomputer | 2026 |
No reservation for this job
--> Verifying valid submit host (login2)...OK
"""
AFTER = "--> 3 of 4 allocations are left\n"
TOKEN = "eyJhbGciOiJIUzI1NiJ9.token.signature"
OUTER = {
    "SBATCH_PARTITION": "gpu", "SBATCH_EXCLUSIVE": "1", "SBATCH_ARRAY_INX": "0-9", "SQUEUE_FORMAT": "%i",
    "SLURM_JOB_ID": "9", "SLURM_MEM_PER_NODE": "1", "SLURM_TIME_FORMAT": "relative",
    "SCANCEL_STATE": "PENDING", "SLURM_EXPORT_ENV": "NONE", "SINFO_FORMAT": "%N", "SALLOC_ACCOUNT": "x",
    "SACCT_FORMAT": "JobID",
    "_SLURM_SPANK_OPTION_x11_x11": "all", "SBATCH_CLUSTERS": "elsewhere",
}  # fmt: skip


class Site:
    """Programs in a folder that is the first on PATH."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def program(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}")
        path.chmod(0o755)

    def prints(self, name: str, text: str, code: int = 0, words: str = "") -> None:
        """The answer on standard output, and words on standard error, each with a banner round it."""
        told = f"cat >&2 <<'EOT'\n{BANNER}{words}EOT\n" if words else ""
        self.program(
            name,
            f'echo "$*" >> {self.folder}/{name}.words\n{told}'
            f"cat <<'EOT'\n{BANNER}{text}{AFTER}EOT\nexit {code}\n",
        )

    def words(self, name: str) -> list[str]:
        path = self.folder / f"{name}.words"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def submitted() -> str:
    spec = ArraySpec("a-name", "copy", [0, 1], ["/bin/true"], Path("/t"))
    return SlurmCommands().submit_array(spec, 2, OPTIONS, "#!/bin/sh\n")


class TestWrappersThatPrint:
    """l1."""

    @pytest.mark.parametrize(("answer", "job"), [("77\n", "77"), ("77;hpc-2\n", "77"), ("5\n  77  \n", "77")])
    def test_the_last_line_of_the_form_of_an_id_is_the_jobs(self, site: Site, answer: str, job: str) -> None:
        site.prints("sbatch", answer)
        assert submitted() == job
        assert not site.words("squeue")

    def test_an_id_that_did_not_come_is_looked_for_at_once_by_name(self, site: Site) -> None:
        site.prints("sbatch", "")
        site.prints("squeue", "76|a-name\n77|a-name\n77|a-name\n")
        assert submitted() == "77"
        (words,) = site.words("squeue")
        assert "--name=a-name" in words

    def test_a_job_that_squeue_does_not_have_either_may_yet_appear(self, site: Site) -> None:
        site.prints("sbatch", "")
        site.prints("squeue", "")
        with pytest.raises(TransientError, match="no job of that name"):
            submitted()

    def test_lines_around_answers_do_no_harm(self, site: Site) -> None:
        line = "18|0|RUNNING|0|0|2|1795263274|1795263334|n2|None|a-name|\n"
        slurm = SlurmCommands()
        site.prints("squeue", line)
        assert [one.status.state for one in slurm.elements_of(["18"])["18"]] == [State.RUNNING]
        site.prints("squeue", "18|RUNNING|0|n2|None|\n")
        assert (slurm.job("18").state, slurm.job("18").node) == ("RUNNING", "n2")
        assert slurm.job_states("18") == ["RUNNING"]
        site.prints("squeue", "18|18|R|alice|ml|normal|n2|None|a | name\n")
        assert [job.name for job in slurm.jobs()] == ["a | name"]
        site.prints("sacct", "18_0|COMPLETED|0:0|1|2|n2|a-name\n")
        assert [one.word for one in slurm.ended_elements("18")] == ["COMPLETED"]
        site.prints("sacct", "18_0|CANCELLED by 5\n18_[1-3]|PENDING\n")
        assert slurm.ended_states("18") == ["CANCELLED", "PENDING"]
        site.prints("sacct", "18_0|1|2|3|1|1|00:01|\n")
        assert [one.starts for one in slurm.accounting("18")] == [1]
        site.prints("sinfo", "n1|idle\nn2|down*\n")
        assert slurm.node_states(["n1", "n2"]) == {"n1": "idle", "n2": "down*"}
        site.prints("scontrol", "ClusterName = lab\nMaxArraySize            = 500\nSLURM_VERSION = 24.11.5\n")
        assert (slurm.facts().cluster, slurm.facts().max_array) == ("lab", 500)

    def test_an_answer_that_is_cut_off_is_still_an_error(self, site: Site) -> None:
        site.prints("squeue", "18|0|RUNN\n")
        with pytest.raises(TransientError, match="squeue's answer cannot be read"):
            SlurmCommands().elements_of(["18"])

    def test_a_refusal_is_slurms_own_words_without_the_banner(self, site: Site) -> None:
        words = "sbatch: error: Batch job submission failed: Invalid partition name specified\n"
        site.prints("sbatch", "", 1, f"please try again later\n{words}")
        with pytest.raises(FailedError) as raised:
            submitted()
        assert raised.value.why == words.strip()
        assert SlurmCommands().trial(OPTIONS).refusal == words.strip()
        site.prints("sbatch", "", 0, "sbatch: Job 9 to start at 1795263274 using 1 processors on nodes n1\n")
        assert SlurmCommands().trial(OPTIONS).start == 1795263274.0

    def test_a_wrapper_that_refuses_by_its_own_words_is_quoted(self) -> None:
        error = problem("sbatch", CommandOutput(1, "", "No such allocation: TG-1\nsee the portal\n"))
        assert error.why == "No such allocation: TG-1; see the portal"


def job_gets(site: Site) -> dict[str, str]:
    """The environment that sbatch was to hand to the job, by its `--export-file`."""
    raw = (site.folder / "exported").read_bytes()
    return dict(part.split("=", 1) for part in raw.decode().split("\0") if part)


class TestTheUsersEnvironment:
    """l2."""

    @pytest.fixture(autouse=True)
    def _user(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in {
            **OUTER,
            "SLURM_JWT": TOKEN,
            "SLURM_CONF_SERVER": "head",
            "PROJECT": "TG-1",
        }.items():
            monkeypatch.setenv(name, value)
        site.program(
            "sbatch",
            f'env > {site.folder}/env\nprintf "%s\\n" "$@" > {site.folder}/arguments\n'
            "for word; do case $word in --export-file=*) "
            f'cat "${{word#--export-file=}}" > {site.folder}/exported;; esac; done\necho 77\n',
        )

    def reads(self, site: Site) -> dict[str, str]:
        lines = (site.folder / "env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def test_a_sites_own_sbatch_reads_what_its_user_has_set(self, site: Site) -> None:
        assert submitted() == "77"
        given = self.reads(site)
        assert given["PROJECT"] == "TG-1"
        assert (given["SLURM_JWT"], given["SLURM_CONF_SERVER"]) == (TOKEN, "head")

    def test_no_option_of_an_outer_job_reaches_a_command(self, site: Site) -> None:
        submitted()
        assert not self.reads(site).keys() & OUTER.keys()
        site.program("squeue", f"env > {site.folder}/env\n")
        SlurmCommands().find("a-name")
        assert not self.reads(site).keys() & OUTER.keys()

    def test_a_job_gets_what_is_named_and_no_token(self, site: Site) -> None:
        submitted()
        assert job_gets(site) == {**handed_on(), "SLURM_JOB_NAME": "a-name"}
        assert job_gets(site)["PATH"] == os.environ["PATH"]
        assert not job_gets(site).keys() & {"SLURM_JWT", "PROJECT", *OUTER}
        arguments = (site.folder / "arguments").read_text()
        assert TOKEN not in arguments
        assert "--export=" not in arguments
        SlurmCommands().submit_job("b-name", OPTIONS, "#!/bin/sh\n")
        assert job_gets(site) == {**handed_on(), "SLURM_JOB_NAME": "b-name"}

    def test_an_sbatch_that_runs_elsewhere_opens_no_file_and_gets_what_the_job_gets(self, site: Site) -> None:
        """As a wrapper that runs it by ssh: SLURM's own words name the file."""
        words = "sbatch: error: Could not open user environment file ${word#--export-file=}"
        site.program(
            "sbatch",
            f'for word; do case $word in --export-file=*) echo "{words}" >&2; exit 1;; esac; done\n'
            f'env > {site.folder}/env\nprintf "%s\\n" "$@" > {site.folder}/arguments\ncat >&2\necho 77\n',
        )
        assert submitted() == "77"
        assert "--export=ALL" in (site.folder / "arguments").read_text().splitlines()
        given = self.reads(site)
        assert (given["PATH"], given["SLURM_CONF_SERVER"]) == (os.environ["PATH"], "head")
        assert not given.keys() & {"SLURM_JWT", "PROJECT", *OUTER}
        assert SlurmCommands().trial(OPTIONS).refusal == ""

    def test_a_program_gets_what_the_job_gets_and_of_a_token_two(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (site.folder / "sbatch").unlink()
        shutil.copy("/usr/bin/env", site.folder / "sbatch")
        with exporting("a-name") as export:
            pass
        assert export.option == "--export=ALL"
        assert export.env is not None
        assert list(export.env.items())[-2:] == [("SLURM_JWT", TOKEN), (b"SLURM_JWT", "")]
        assert not export.env.keys() & {"PROJECT", *OUTER}
        monkeypatch.delenv("SLURM_JWT")
        with exporting("a-name") as export:
            assert (export.env, Path(export.file).is_file()) == (None, True)
        monkeypatch.setattr(tempfile, "tempdir", str(site.folder / "nowhere"))
        with exporting("a-name") as export:
            assert export == without_file()

    def test_the_file_is_gone_afterwards(self, site: Site) -> None:
        submitted()
        (word,) = re.findall("--export-file=(.*)", (site.folder / "arguments").read_text())
        assert not Path(word).exists()

    def test_a_trial_keeps_its_own_environment_and_reads_no_time_in_words(self, site: Site) -> None:
        """A start is read in seconds since the epoch alone: a date is not the 2026th second."""
        said = "sbatch: Job 9 to start at {} using 1 processors on nodes n1"
        site.program("sbatch", f'env > {site.folder}/env\necho "{said.format(1795263274)}" >&2\n')
        assert SlurmCommands().trial(OPTIONS).start == 1795263274.0
        assert self.reads(site)["SLURM_TIME_FORMAT"] == "%s"
        site.program("sbatch", f'echo "{said.format("2026-11-27T01:00:00")}" >&2\n')
        assert SlurmCommands().trial(OPTIONS).start == 0.0

    def test_srun_hands_on_what_is_named(self) -> None:
        assert "--export=PATH,SLURM_CONF,TZ" in together_arguments("n", OPTIONS, 2)

    def test_the_empty_token_of_a_job_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SLURM_JWT", "")
        assert "SLURM_JWT" not in client.environment()


class TestWhatIsNotShown:
    """l3."""

    def test_hidden_nodes_and_partitions_are_none_that_are_known(self, site: Site) -> None:
        denied = "slurm_load_node error: Access/permission denied\n"
        for program in ("scontrol", "sinfo", "squeue", "sacctmgr"):
            site.prints(program, "", 1, denied)
        slurm = SlurmCommands()
        assert (slurm.nodes(), slurm.partitions(), slurm.jobs()) == ([], [], [])
        assert slurm.node_states(["n1"]) == {}
        assert slurm.qos("normal") is None
        with pytest.raises(TransientError, match="denied"):
            slurm.facts()
        site.prints("scontrol", "", 1, "scontrol: error: something else\n")
        with pytest.raises(TransientError, match="something else"):
            slurm.nodes()


SLUID = "s7HGR1M1P1EH00"


class TestControlGroupsOfOtherNames:
    """l4."""

    @pytest.mark.parametrize(
        ("path", "named"),
        [
            (f"/system.slice/slurmstepd.scope/{SLUID}/step_batch/user/task_0", SLUID),
            (f"/system.slice/n1_slurmstepd.scope/{SLUID}/step_0", SLUID),
            ("/system.slice/slurmstepd.scope/job_8/step_batch/user/task_0", "job_8"),
            ("/user.slice", ""),
        ],
    )
    def test_the_jobs_own_is_what_the_kernel_names(self, tmp_path: Path, path: str, named: str) -> None:
        proc = under_slurmstepd(tmp_path, path)
        seen = environment.read({"SLURM_JOB_ID": "8"}, proc)
        assert (seen.proven, seen.cgroup) == (True, named)

    def test_its_peak_is_read_there(self, tmp_path: Path) -> None:
        proc = under_slurmstepd(tmp_path, f"/system.slice/slurmstepd.scope/{SLUID}/step_batch/user/task_0")
        top = tmp_path / "cgroup"
        job = top / "system.slice/slurmstepd.scope" / SLUID
        job.mkdir(parents=True)
        (job / "memory.peak").write_text("4096\n")
        (proc / "self" / "mountinfo").write_text(f"30 20 0:26 / {top} rw - cgroup2 cgroup2 rw\n")
        seen = environment.read({"SLURM_JOB_ID": "8"}, proc)
        assert kernel_facts.memory_peak(seen.cgroup, proc) == (4096, "memory.peak")

    def test_another_jobs_group_proves_nothing(self, tmp_path: Path) -> None:
        proc = under_slurmstepd(tmp_path, f"/slurm/{SLUID}/step_batch", job=9)
        seen = environment.read({"SLURM_JOB_ID": "8"}, proc)
        assert (seen.proven, seen.cgroup) == (False, "")


def under_slurmstepd(folder: Path, cgroup: str, job: int = 8) -> Path:
    """/proc of a process in this control group, below slurmstepd of a job."""
    proc = folder / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "41").mkdir()
    (proc / "self" / "cgroup").write_text(f"0::{cgroup}\n")
    rest = " 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0 0\n"
    (proc / "self" / "stat").write_text(f"42 (python3) S 41{rest}")
    (proc / "41" / "stat").write_text(f"41 (slurmstepd) S 1{rest}")
    (proc / "41" / "cmdline").write_bytes(f"slurmstepd: [{job}.batch]\0".encode())
    return proc
