"""What `penstock init` writes on a real cluster passes preflight as it stands."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import pytest
from tests.cluster.place import Place, job_user
from tests.cluster.processes import wait_for

from penstock.config import command_options, loader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.machine import Machine

    from penstock.config.settings import ClusterConfig

pytestmark = pytest.mark.slurm
PENSTOCK = (sys.executable, "-m", "penstock")


def made(place: Place, *words: str) -> ClusterConfig:
    """What init writes for a bucket's prefix; preflight has taken it, by a job on the nodes."""
    place.fill("scans", 2)
    server = ("--endpoint", place.server.endpoint, "--anon")
    place.ends(place.start(*PENSTOCK, "init", place.server.url("scans/"), str(place.target), *server, *words))
    told = place.ends(place.start(*PENSTOCK, "preflight"))
    assert "slurm, 4 elements at once, each takes a whole node" in " ".join(told.split())
    return loader.load(place.work / "penstock.yaml").cluster


@pytest.mark.later_release
def test_what_is_written_passes_preflight(place: Place) -> None:
    cluster = made(place)
    assert (cluster.backend, cluster.options.partition) == ("slurm", "data")
    assert (cluster.options.account, cluster.options.core_spec) == (None, "auto")
    text = (place.work / "penstock.yaml").read_text()
    assert "partition: data                           # the cluster's default" in text


def test_a_submitted_run_takes_the_configuration_that_the_environment_names(place: Place) -> None:
    """The variable reaches no job: the file's path does."""
    place.fill("scans", 2)
    named = {command_options.VARIABLE: "named.yaml"}
    words = (str(place.source / "scans"), str(place.target))
    place.ends(place.start(*PENSTOCK, "init", *words, env=named))
    told = place.ends(place.start(*PENSTOCK, "run", "--submit", env=named))
    assert "to end everything:  penstock cancel\n" in told
    wait_for(lambda: not place.unpublished("scans"), "the submitted run to publish", seconds=120)
    place.published("scans")
    assert [path.name for path in place.work.glob("*.yaml")] == ["named.yaml"]


@contextlib.contextmanager
def closed(slurm: Machine, *partitions: str) -> Iterator[None]:
    """While inside, only root may use these partitions."""

    def allow(group: str) -> None:
        for name in partitions:
            done = slurm.run("scontrol", "update", f"PartitionName={name}", f"AllowGroups={group}")
            assert done.returncode == 0, done.stderr

    allow("root")
    try:
        yield
    finally:
        allow("ALL")


# Not on a later release: 24.11 takes a job into a partition that AllowGroups closes, also by --test-only.
@pytest.mark.parametrize(
    ("shut", "chosen", "comment"),
    [
        (("data", "urgent"), "cpu", "the only one that takes these jobs"),
        (("data",), "urgent", "or cpu"),
    ],
)
def test_a_default_partition_that_refuses_the_account_is_not_taken(
    place: Place, shut: tuple[str, ...], chosen: str, comment: str
) -> None:
    if job_user() == "root":
        pytest.skip("root may use every partition")
    with closed(place.machine, *shut):
        assert made(place).options.partition == chosen
    assert f"# {comment}\n" in (place.work / "penstock.yaml").read_text()


@pytest.fixture
def place_of_two_accounts(slurm_accounting: Machine) -> Iterator[Place]:
    """Whose user has a second account, `genomics`, beside the default one, `ml`."""
    with Place(slurm_accounting) as place:
        accounting(place, "add", "account", "genomics", "Cluster=penstock")
        try:
            accounting(place, "add", "user", job_user(), "account=genomics", "Cluster=penstock")
            yield place
        finally:
            accounting(place, "delete", "account", "genomics")


def accounting(place: Place, *words: str) -> None:
    done = place.machine.run("sacctmgr", "-i", *words)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.later_release
def test_an_account_is_named_where_the_default_one_may_have_no_jobs(place_of_two_accounts: Place) -> None:
    place = place_of_two_accounts
    mine = ("modify", "user", job_user(), "where", "account=ml", "set")
    accounting(place, *mine, "MaxSubmitJobs=0")
    try:
        options = made(place).options
    finally:
        accounting(place, *mine, "MaxSubmitJobs=-1")
    assert (options.partition, options.account) == ("data", "genomics")


@pytest.mark.later_release
def test_an_account_is_named_where_the_partition_starts_no_jobs_of_the_default_one(
    place_of_two_accounts: Place,
) -> None:
    """slurmctld takes them, and lets them wait for ever."""
    place = place_of_two_accounts

    def allow(accounts: str) -> None:
        done = place.machine.run("scontrol", "update", "PartitionName=data", f"AllowAccounts={accounts}")
        assert done.returncode == 0, done.stderr

    allow("genomics")
    try:
        options = made(place).options
    finally:
        allow("ALL")
    assert (options.partition, options.account) == ("data", "genomics")


@pytest.mark.later_release
def test_where_slurm_does_not_answer_the_file_is_for_this_machine(slurm: Machine, place: Place) -> None:
    slurm.stop_controller()
    place.fill("scans", 1)
    words = (str(place.source / "scans"), str(place.target))
    told = place.ends(place.start(*PENSTOCK, "init", *words))
    assert "cluster.backend is local: SLURM's controller does not answer" in told
    assert loader.load(place.work / "penstock.yaml").cluster.backend == "local"
