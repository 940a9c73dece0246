"""What an account that may not read a dataset's state is told while another one stages it: what is under way,
whose, since when, and the job to depend on (SL4)."""

from __future__ import annotations

import contextlib
import io
import json
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.forked import forked
from tests.support.published import publish
from tests.support.staging_runs import context_for, tree

from penstock.cli.main import main
from penstock.config.settings import PermissionsConfig
from penstock.core.errors import PenstockError
from penstock.core.layout import DatasetLayout
from penstock.dataset import staging_notice
from penstock.host import job_environment
from penstock.host.job_environment import JobEnvironment
from penstock.jobs import cancellation
from penstock.run import list_step, plan_step
from penstock.target import dataset_folders, tree_removal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.dataset.context import Context

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other accounts")
OWNER, READER = 2001, 2002
JOB = JobEnvironment(job="4711", proven=True, cluster="west")
WAIT = "--dependency=afterok:4711"
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
        job_environment.enter(job)
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

    def work() -> tuple[int, str]:
        for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "TMPDIR"):
            os.environ[name] = str(place / "home")
        os.chdir(place / "home" if uid == READER else "/")
        text = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            code = main(["--config", str(place / "my.yaml"), *words])
        text.seek(0)
        return code, text.read()

    answer: Any = forked(work, uid=uid)
    assert "Traceback" not in answer[1]
    return answer[0], " ".join(answer[1].split())


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
    assert "afterok" not in text
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
    owner_does(place, lambda context: cancellation.run(context, NAME))
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
    assert "afterok" not in text
    assert f"ask its owner, uid {OWNER}" in text
    assert RUN in reader_gets(place, "gate", NAME, uid=OWNER)[1]


def test_a_submitted_controller_is_named_while_it_waits(place: Path) -> None:
    owner_does(place, lambda context: dataset_folders.prepare(context.layout(NAME)))
    owner_does(place, lambda context: staging_notice.submitted(context.layout(NAME), "4711", "west"))
    at = time.time() - 3600
    os.utime(notice(place), (at, at))  # it waits for an hour by now
    code, text = reader_gets(place, "gate", NAME)
    assert code == 4
    assert "submitted" in text
    assert WAIT in text
    owner_does(place, lists)
    assert "submitted" not in reader_gets(place, "gate", NAME)[1]


def test_a_submission_does_not_replace_what_is_at_work(place: Path) -> None:
    owner_does(place, lists)
    owner_does(place, lambda context: staging_notice.submitted(context.layout(NAME), "4712", "west"))
    assert WAIT in reader_gets(place, "gate", NAME)[1]


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
    assert "afterok" not in text
    assert "evil" not in text
    assert reader_gets(place, "status", NAME)[0] == 0


def test_what_it_says_steers_no_terminal(place: Path) -> None:
    owner_does(place, lists)
    told = json.loads(notice(place).read_text())
    notice(place).write_text(json.dumps({**told, "host": "h\x1b[2J", "step": "x\x1b[2J"}))
    for command in ("gate", "path", "status"):
        assert "\x1b" not in reader_gets(place, command, NAME)[1]
