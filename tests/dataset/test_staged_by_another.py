"""What an account that may not read a dataset's state is told while another one stages it: what is under way,
whose, since when, and the job to depend on (SL4)."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import stat
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.forked import forked
from tests.support.published import publish
from tests.support.staging_runs import context_for, tree

from penstock.cli.main import main
from penstock.cluster.port import LiveJob
from penstock.config.settings import PermissionsConfig
from penstock.core.errors import PenstockError
from penstock.core.layout import DatasetLayout
from penstock.dataset import staging_notice
from penstock.host import kernel_facts
from penstock.host.kernel_facts import JobEnvironment
from penstock.jobs import array_orders
from penstock.run import list_step, plan_step
from penstock.target import dataset_folders, tree_removal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.dataset.context import Context

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other accounts")
OWNER, READER = 2001, 2002
WEST: Any = SimpleNamespace(name=lambda: "west", live_job=lambda _: LiveJob(OWNER))
GONE: Any = SimpleNamespace(name=lambda: "west", live_job=lambda _: None)
JOB = JobEnvironment(job="4711", proven=True, cluster="west")
WAIT = "wait for job 4711: w=$(penstock after data --root"
NAME = "data"
RUN = f"run {NAME}`"


@pytest.fixture
def place() -> Iterator[Path]:
    """A root of OWNER's, a configuration, and a home of READER's."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-another-"))
    folder.chmod(0o755)
    for name, uid in (("own", OWNER), ("home", READER)):
        (folder / name).mkdir()
        os.chown(folder / name, uid, uid)
    source = tree(folder / "source", {f"d/{number}": b"x" * 3000 for number in range(4)})
    target = {"root": str(folder / "own/target"), "keep_free": 0, "owners": [OWNER]}
    (folder / "my.yaml").write_text(
        json.dumps({"target": target, "datasets": {NAME: {"source": str(source)}}})
    )
    yield folder
    tree_removal.remove_tree(folder)


def owner_does(place: Path, work: Callable[[Context], object], job: JobEnvironment = JOB) -> None:
    """`work` as OWNER, in this job."""

    def does() -> None:
        kernel_facts.enter_job(job)
        permissions = PermissionsConfig(file_mode=0o444, dir_mode=0o555)
        context = context_for(place / "own", place / "source", permissions=permissions)
        work(context)
        context.cluster.close()  # type: ignore[attr-defined]

    forked(does, uid=OWNER)


def lists(context: Context) -> None:
    list_step.run(context, NAME)


def is_published(context: Context) -> None:
    publish(context, NAME)


def reader_gets(place: Path, *words: str, uid: int = READER) -> tuple[int, str]:
    """Exit status and all that the command says."""
    code, out, err = streams(place, *words, uid=uid)
    return code, f"{out} {err}".strip()


def streams(place: Path, *words: str, uid: int = READER) -> tuple[int, str, str]:
    """Exit status, standard output and standard error, with single blanks."""

    def work() -> tuple[int, str, str]:
        for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "TMPDIR"):
            os.environ[name] = str(place / "home")
        os.environ["PATH"] = f"{place / 'bin'}:{os.environ['PATH']}"
        os.chdir(place / "home" if uid == READER else "/")
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in "oe")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["--config", str(place / "my.yaml"), *words])
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()

    answer: Any = forked(work, uid=uid)
    assert "Traceback" not in answer[2]
    return answer[0], " ".join(answer[1].split()), " ".join(answer[2].split())


def notice(place: Path) -> Path:
    return DatasetLayout(place / "own/target", NAME).under_way


@pytest.mark.parametrize("command", ["gate", "path"])
def test_a_reader_at_the_gate_is_told_which_job_to_wait_for(place: Path, command: str) -> None:
    owner_does(place, lists)
    code, text = reader_gets(place, command, NAME)
    assert code == 4
    assert f"uid {OWNER}" in text
    assert "SLURM job 4711 of cluster west" in text
    assert "since 20" in text
    assert WAIT in text
    assert RUN not in text


def test_status_says_what_is_under_way_and_what_to_wait_for(place: Path) -> None:
    owner_does(place, lists)
    code, text = reader_gets(place, "status", NAME)
    assert code == 0
    assert f"uid {OWNER}" in text
    assert "list" in text
    assert "SLURM job 4711 of cluster west" in text
    assert WAIT in text
    assert RUN not in text


def test_status_says_it_of_a_new_release_beside_a_published_one(place: Path) -> None:
    owner_does(place, is_published)
    (place / "source/more").write_bytes(b"later")
    owner_does(place, lists)
    code, text = reader_gets(place, "status", NAME)
    assert code == 0
    assert "state listing" in text
    assert "current" in text
    assert "SLURM job 4711" in text
    assert reader_gets(place, "gate", NAME)[0] == 0


def test_outside_a_job_there_is_none_to_depend_on(place: Path) -> None:
    owner_does(place, lists, JobEnvironment())
    code, text = reader_gets(place, "gate", NAME)
    assert code == 4
    assert "is being staged" in text
    assert WAIT not in text
    assert "give the same command again" in text
    assert RUN not in text


def test_show_says_why_there_is_no_release(place: Path) -> None:
    owner_does(place, lists)
    assert "SLURM job 4711" in reader_gets(place, "show", NAME)[1]


def test_the_owner_is_not_told_to_run_what_runs(place: Path) -> None:
    owner_does(place, lists)
    _, text = reader_gets(place, "gate", NAME, uid=OWNER)
    assert WAIT in text
    assert RUN not in text


def test_since_when_stays_from_step_to_step_of_a_job(place: Path) -> None:
    owner_does(place, lists)
    told = json.loads(notice(place).read_text())
    told["since"] = "2026-01-02T03:04:05Z"
    notice(place).write_text(json.dumps(told))
    owner_does(place, lambda context: plan_step.run(context, NAME))
    _, text = reader_gets(place, "gate", NAME)
    assert "since 2026-01-02T03:04:05Z" in text
    assert "plan" in text
    owner_does(place, lists, JOB._replace(job="4712"))
    assert "since 2026-01-02" not in reader_gets(place, "gate", NAME)[1]


def test_a_step_that_ends_leaves_the_notice_of_another_run(place: Path) -> None:
    def overtaken(context: Context) -> None:
        layout = context.layout(NAME)
        own = staging_notice.Notice(layout, layout.under_way, "copy")
        own.begin()
        kernel_facts.enter_job(JOB._replace(job="4712"))
        other = staging_notice.Notice(layout, layout.under_way, "copy")
        other.begin()
        own.end()
        standing = staging_notice.find(layout)
        assert standing is not None
        assert standing.notice.job == "4712"
        other.end()
        assert staging_notice.find(layout) is None

    owner_does(place, lists)
    owner_does(place, overtaken)


def test_the_file_is_for_readers_and_goes_with_the_release(place: Path) -> None:
    owner_does(place, lists)
    assert stat.S_IMODE(notice(place).stat().st_mode) == 0o644
    owner_does(place, is_published)
    assert not notice(place).exists()
    owner_does(place, lists)  # what is published already is not being staged
    assert not notice(place).exists()
    assert "under way" not in reader_gets(place, "status", NAME)[1]


def test_a_step_that_fails_or_is_cancelled_takes_it_back(place: Path) -> None:
    owner_does(place, lists)
    (place / "source").rename(place / "gone")
    with pytest.raises(PenstockError):
        owner_does(place, lists)
    (place / "gone").rename(place / "source")
    owner_does(place, lists)
    owner_does(place, lambda context: array_orders.cancel(context, NAME))
    assert not notice(place).exists()
    code, text = reader_gets(place, "gate", NAME)
    assert code == 4
    assert f"ask its owner, uid {OWNER}" in text
    assert RUN not in text


def test_what_shows_no_sign_of_life_is_said_so_and_not_waited_for(place: Path) -> None:
    owner_does(place, lists)
    at = time.time() - 3600
    os.utime(notice(place), (at, at))
    code, text = reader_gets(place, "gate", NAME)
    assert code == 4
    assert time.strftime("last sign of life at %Y-%m-%dT%H:%M:%SZ", time.gmtime(at)) in text
    assert WAIT not in text
    assert f"ask its owner, uid {OWNER}" in text
    assert RUN in reader_gets(place, "gate", NAME, uid=OWNER)[1]


def test_a_submitted_controller_is_named_while_it_waits(place: Path) -> None:
    owner_does(place, lambda context: dataset_folders.prepare(context.layout(NAME)))
    owner_does(place, lambda context: staging_notice.submitted(context.layout(NAME), "4711", WEST))
    at = time.time() - 3600
    os.utime(notice(place), (at, at))  # it waits for an hour by now
    code, text = reader_gets(place, "gate", NAME)
    assert code == 4
    assert "submitted" in text
    assert WAIT in text
    owner_does(place, lists)
    assert "submitted" not in reader_gets(place, "gate", NAME)[1]


def test_a_submission_makes_a_first_folder_which_a_cancel_removes(place: Path) -> None:
    owner_does(place, lambda context: staging_notice.submitted(context.layout(NAME), "4711", WEST))
    assert [path.name for path in notice(place).parent.iterdir()] == [notice(place).name]
    root = str(place / "own/target")
    code, text = reader_gets(place, "gate", NAME, "--root", root)
    assert (code, WAIT in text) == (4, True)
    assert f"uid {OWNER} submitted its staging: SLURM job 4711" in text
    assert reader_gets(place, "releases", "--root", root)[1].startswith(NAME)
    at = time.time() - staging_notice.UNSEEN - 60
    os.utime(notice(place), (at, at))
    assert WAIT not in reader_gets(place, "gate", NAME)[1]
    owner_does(place, lambda context: array_orders.cancel(context, NAME))
    assert not notice(place).parent.exists()


def test_a_submission_does_not_replace_what_is_at_work(place: Path) -> None:
    owner_does(place, lists)
    owner_does(place, lambda context: staging_notice.submitted(context.layout(NAME), "4712", WEST))
    assert WAIT in reader_gets(place, "gate", NAME)[1]


def test_a_submission_takes_the_place_of_a_controller_that_is_gone(place: Path) -> None:
    """Its elements go on, and touch its notice."""
    owner_does(place, lists)
    owner_does(place, lambda context: staging_notice.submitted(context.layout(NAME), "4712", GONE))
    text = reader_gets(place, "gate", NAME)[1]
    assert "it is being staged by" in text
    assert "wait for job 4712: " in text


def test_a_notice_goes_with_its_job(place: Path) -> None:
    """By the job's own end, and by gc; a folder that a person made stays."""
    owner_does(place, lambda context: staging_notice.submitted(context.layout(NAME), "4711", WEST))
    owner_does(place, lambda context: staging_notice.withdraw(context.layout(NAME), "4712"))
    owner_does(place, lambda context: staging_notice.forget_ended(context.layout(NAME), WEST))
    assert notice(place).exists()
    owner_does(place, lambda context: staging_notice.forget_ended(context.layout(NAME), GONE))
    assert not notice(place).parent.exists()
    notice(place).parent.mkdir()
    os.chown(notice(place).parent, OWNER, OWNER)
    owner_does(place, lambda context: staging_notice.submitted(context.layout(NAME), "4711", WEST))
    owner_does(place, lambda context: staging_notice.withdraw(context.layout(NAME), "4711"))
    assert list(notice(place).parent.iterdir()) == []


@pytest.mark.parametrize("what", ["owner", "link", "long", "job", "json", "newer"])
def test_what_nobody_should_believe_is_passed_over(place: Path, what: str) -> None:
    owner_does(place, lists)
    path = notice(place)
    told = json.loads(path.read_text())
    if what == "owner":
        os.chown(path, READER, READER)
    elif what == "link":
        path.rename(place / "elsewhere")
        path.symlink_to(place / "elsewhere")
    elif what == "long":
        path.write_text(json.dumps({**told, "host": "h" * 100_000}))
    elif what == "job":
        path.write_text(json.dumps({**told, "job": "1 --wrap=evil"}))
    elif what == "json":
        path.write_text("{")
    else:
        path.write_text(json.dumps({**told, "format": 2}))
    code, text = reader_gets(place, "gate", NAME)
    assert code == 4
    assert "nothing is published" in text
    assert WAIT not in text
    assert "evil" not in text
    assert reader_gets(place, "status", NAME)[0] == 0


def test_what_it_says_steers_no_terminal(place: Path) -> None:
    owner_does(place, lists)
    told = json.loads(notice(place).read_text())
    notice(place).write_text(json.dumps({**told, "host": "h\x1b[2J", "step": "x\x1b[2J"}))
    for command in ("gate", "path", "status"):
        assert "\x1b" not in reader_gets(place, command, NAME)[1]


# penstock after -----------------------------------------------------------------------------

UNKNOWN = "slurm_load_jobs error: Invalid job id specified"
CONFIG = "ClusterName = {}\nMaxArraySize = 1001\nPrivateData = {}\nSLURM_VERSION = 22.05.8\n"
DEPENDENCY = "--dependency=afterok:4711 --kill-on-invalid-dep=yes"
OPTIONS = re.compile(
    r"|--dependency=[a-z0-9:,_+]+( --kill-on-invalid-dep=yes)?|--[A-Za-z0-9._-]+-is-[a-z-]+"
    r"|--penstock-after-has-failed"
)


def slurm(place: Path, squeue: str = UNKNOWN, *, cluster: str = "west", private: str = "none") -> None:
    """A SLURM whose squeue answers so about any job, and which has nothing else."""
    folder = place / "bin"
    folder.mkdir(exist_ok=True)
    rows = squeue.replace(" ", "\n") if "|" in squeue else ""
    error = "" if rows else f"echo '{squeue}' >&2; exit 1"
    for name, out, end in (("squeue", rows, error), ("scontrol", CONFIG.format(cluster, private), "")):
        (folder / name).write_text(f"#!/bin/sh\ncat <<'EOT'\n{out}\nEOT\n{end}\n")
        (folder / name).chmod(0o755)


def after(place: Path, *words: str, uid: int = READER) -> tuple[int, str, str]:
    code, out, err = streams(place, "after", *(words or (NAME,)), uid=uid)
    assert OPTIONS.fullmatch(out), "sbatch would get this"
    assert bool(code) == (out.startswith("--") and not out.startswith("--dependency="))
    return code, out, err


@pytest.mark.parametrize(
    ("squeue", "words"),
    [
        ("4711|2001|RUNNING|None|", "stages it in job 4711: step list"),
        ("4711|2001|PENDING|Priority|", "in job 4711, which waits in SLURM: Priority"),
        ("4711|2001|REQUEUE_HOLD|JobHeldUser|", "which waits in SLURM: JobHeldUser"),
        ("4711|2001|COMPLETED|None| 4712|2001|PENDING|Resources|", "which waits in SLURM: Resources"),
    ],
    ids=["runs", "waits", "requeued", "an array"],
)
def test_a_job_may_wait_for_the_job_that_stages(place: Path, squeue: str, words: str) -> None:
    owner_does(place, lists)
    slurm(place, squeue)
    code, out, err = after(place)
    assert (code, out) == (0, DEPENDENCY)
    assert words in err
    assert "begins with: data=$(penstock --config" in err
    assert f"path {NAME} --job) || exit" in err
    assert after(place, NAME, "--and", "afterok:12:13,singleton", "--for", "srun")[:2] == (
        0, "--dependency=afterok:12:13,singleton,afterok:4711",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("squeue", "more", "words"),
    [
        (UNKNOWN, {}, "job 4711 is not in SLURM any more: it ended before"),
        ("4711|2001|CANCELLED|None|", {}, "job 4711 is not in SLURM any more"),
        ("4711|2002|RUNNING|None|", {}, f"job 4711 is not of uid {OWNER}"),
        ("4711|2001|RUNNING|None| 4712|2002|RUNNING|None|", {}, f"job 4711 is not of uid {OWNER}"),
        ("4711|2001|RUNNING|None|", {"cluster": "east"}, "job 4711 is of cluster west, this is east"),
    ],
    ids=["forgotten", "ended", "another's", "of two", "of another cluster"],
)
def test_no_job_waits_for_what_stages_nothing(
    place: Path, squeue: str, more: dict[str, str], words: str
) -> None:
    owner_does(place, lists)
    slurm(place, squeue, **more)
    code, out, err = after(place)
    assert (code, out) == (4, "--data-is-not-staged")
    assert words in err
    assert "begins with" not in err


def test_a_job_that_is_hidden_is_waited_for_while_its_notice_is_young(place: Path) -> None:
    owner_does(place, lists)
    slurm(place, private="accounts,jobs")
    code, out, err = after(place)
    assert (code, out) == (0, DEPENDENCY)
    assert "job 4711 is hidden (PrivateData): last sign of life" in err
    assert after(place, uid=OWNER)[:2] == (4, "--data-is-not-staged"), "SLURM shows an account its own jobs"
    at = time.time() - staging_notice.UNSEEN - 60
    os.utime(notice(place), (at, at))
    assert after(place)[:2] == (4, "--data-is-not-staged")


def test_what_is_published_needs_no_wait_unless_a_new_release_is_asked_for(place: Path) -> None:
    owner_does(place, is_published)
    slurm(place, "4711|2001|RUNNING|None|")
    assert after(place)[:2] == (0, "")
    assert after(place, NAME, "--new")[:2] == (0, "")
    (place / "source/more").write_bytes(b"later")
    owner_does(place, lists)
    code, out, err = after(place)
    assert (code, out) == (0, "")
    assert "nothing to wait for; a new release is under way, --new waits" in err
    assert after(place, NAME, "--and", "afterany:12")[1] == "--dependency=afterany:12"
    assert after(place, NAME, "--new")[:2] == (0, DEPENDENCY)
    slurm(place, "4711|2001|RUNNING|None|", cluster="east")
    assert after(place, NAME, "--new")[:2] == (4, "--data-is-not-staged")
    slurm(place)
    assert after(place, NAME, "--new")[:2] == (0, ""), "what was under way has ended"


def test_what_an_untrusted_account_stages_is_not_waited_for(place: Path) -> None:
    owner_does(place, lists)
    slurm(place, "4711|2001|RUNNING|None|")
    given = json.loads((place / "my.yaml").read_text())
    given["target"]["owners"] = [READER]
    (place / "my.yaml").write_text(json.dumps(given))
    code, out, err = after(place)
    assert (code, out) == (4, "--data-is-not-staged")
    assert "whose releases do not count here" in err


def test_a_release_that_is_published_while_it_is_asked_for_is_there(place: Path) -> None:
    """Its job has ended by the time that squeue is asked."""
    owner_does(place, is_published)
    (place / "source/more").write_bytes(b"later")
    owner_does(place, lists)
    current = place / "own/target/data/current"
    current.rename(current.with_name("parked"))
    slurm(place)
    stub = place / "bin/squeue"
    stub.write_text(
        stub.read_text().replace("#!/bin/sh", f"#!/bin/sh\nmv {current.with_name('parked')} {current}")
    )
    code, out, err = after(place, uid=0)
    assert (code, out) == (0, ""), err
    assert "published just now" in err


def test_a_dataset_that_is_held_or_damaged_starts_no_job(place: Path) -> None:
    owner_does(place, is_published)
    slurm(place)
    for path in (place / "own/target/data/releases").glob("*/data/d/*"):
        path.unlink()
    assert after(place)[:2] == (4, "--data-is-damaged")
    (place / "own/target/HOLD").write_text("data storage target 17\n")
    code, out, err = after(place)
    assert (code, out) == (4, "--data-is-held")
    assert "storage target 17" in err


def test_nobody_stages_it_says_whom_to_ask(place: Path) -> None:
    slurm(place)
    owner_does(place, lists, JobEnvironment())
    assert "in no job: wait, or ask for `penstock" in after(place)[2]
    owner_does(place, lambda context: array_orders.cancel(context, NAME))
    assert f"nobody stages it: ask its owner, uid {OWNER}" in after(place)[2]
    given = json.loads((place / "my.yaml").read_text())
    given["target"]["contact"] = "data@site.example"
    (place / "my.yaml").write_text(json.dumps(given))
    assert "ask data@site.example to stage it" in reader_gets(place, "gate", NAME)[1]
    assert after(place)[1:] == (
        "--data-is-not-staged",
        "penstock: data: nobody stages it: ask data@site.example",
    )


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (("nosuch",), "--nosuch-is-not-known"),
        ((NAME, "nosuch"), "--nosuch-is-not-known"),
        (("--wrap=evil",), "--penstock-after-has-failed"),
        (("x; reboot",), "--penstock-after-has-failed"),
        ((NAME, "--and", "afterok:1 --wrap=evil"), "--penstock-after-has-failed"),
        ((NAME, "--and", "afterok:1?afterok:2"), "--penstock-after-has-failed"),
        ((NAME, "--and", "afterok:1,"), "--penstock-after-has-failed"),
        ((NAME, "--root", "/nosuch"), "--data-is-not-known"),
        (("--rooot", "/nosuch", NAME), "--penstock-after-has-failed"),
    ],
)  # fmt: skip
def test_no_mistake_lets_a_job_start(place: Path, words: tuple[str, ...], out: str) -> None:
    owner_does(place, is_published)
    slurm(place)
    code, said, _ = streams(place, "after", *words)
    assert code in (2, 3)
    assert said == out


def test_a_root_that_is_closed_and_a_slurm_that_is_away_start_no_job(place: Path) -> None:
    owner_does(place, lists)
    slurm(place, "slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    assert after(place)[:2] == (1, "--data-is-not-known")
    (place / "own").chmod(0o700)
    assert after(place)[:2] == (3, "--data-is-not-known")


def test_no_mistake_before_the_command_lets_a_job_start(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--root", "/nosuch", "after", NAME], ["--config", "after", NAME], ["aftr", "after"]):
        assert main(words) == 2
        assert capsys.readouterr().out == "--penstock-after-has-failed\n"
