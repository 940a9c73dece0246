"""What a real BeeGFS printed, read: by each parser, and by preflight's checks as a whole."""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support import commands
from tests.support.hanging import hanging_mount
from tests.support.staging_runs import context_for, tree
from tests.vendors import recorded
from tests.vendors.recorded import answer, proc_files

from penstock.cli.commands import site_setup
from penstock.cli.session import Session
from penstock.core.errors import PreflightError, TargetAwayError
from penstock.doctor import preflight_step
from penstock.fs import (
    beegfs,
    beegfs_mount,
    beegfs_v7,
    beegfs_v8,
    store_checks,
    stores,
    watched_facts,
)
from penstock.fs.stores import (
    Pattern,
    Server,
    StoreStatus,
    Target,
)
from penstock.run import list_step, plan_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from subprocess import CompletedProcess

    from penstock.fs.store_checks import TargetChecks

SUPPORT = Path(__file__).parents[1] / "support"
PROGRAMS = {"7": ("beegfs-ctl", "beegfs-df", "beegfs-check-servers"), "8": ("beegfs",)}


def test_the_targets_of_version_8_are_read_with_role_and_pool() -> None:
    """Types are numbers, pools are `s:1`."""
    said = answer("8.3.1-root", "target", "list")
    targets = beegfs_v8.read_targets(said.out, {"storage_pool_default": "1"})
    assert [(one.role, one.id, one.pool) for one in targets] == [
        ("metadata", "1", ""), *(("storage", number, "1") for number in ("101", "102", "201", "202", "203")),
    ]  # fmt: skip
    assert targets[1] == Target(
        "storage", "101", "target_storage_101", "s:1", "1", 1020702720, 1020620800, 65536, 65514, "normal",
        "online", "good",
    )  # fmt: skip
    assert said.code == 1


def test_the_servers_of_version_8_are_read_without_clients() -> None:
    servers = beegfs_v8.read_servers(answer("8.3.1-root", "node", "list").out)
    assert [(one.role, one.name, one.id, one.reachable) for one in servers] == [
        ("metadata", "node_meta_1", "1", True), ("storage", "node_storage_1", "1", True),
        ("storage", "node_storage_2", "2", True), ("management", "management", "1", True),
    ]  # fmt: skip
    said = answer("8.3.1-server-ended", "node", "list")
    assert [one.name for one in beegfs_v8.read_servers(said.out) if not one.reachable] == ["node_storage_2"]
    assert said.code == 5


def test_pools_and_patterns_of_version_8() -> None:
    assert beegfs_v8.read_pools(answer("8.3.1-root", "pool", "list").out) == {"storage_pool_default": "1"}
    folder = answer("8.3.1-root", "entry", "info", "/mnt/beegfs/u")
    assert beegfs_v8.read_pattern(folder.out) == Pattern("raid0", 512 << 10, 4, "1", "storage_pool_default")


def test_states_of_files_are_numbers() -> None:
    said = answer("8.3.1-user-with-secret", "--columns")
    found = beegfs.read_states(said.out, ["/mnt/beegfs/u", "/mnt/beegfs/u/big"], "/mnt/beegfs")
    assert {path: state.place for path, state in found.items()} == {"/mnt/beegfs/u/big": "local"}


@pytest.mark.parametrize(
    ("name", "words", "cause"),
    [
        ("8.3.1-management-away", ("pool", "list"), "management"),
        ("8.3.1-management-away", ("node", "list"), "management"),
        ("8.3.1-management-away", ("entry", "info"), "management"),
        ("8.3.1-user", ("pool", "list"), "secret"),
        ("8.3.1-user", ("node", "list"), "secret"),
        ("8.3.1-user", ("entry", "info"), "secret"),
        ("8.3.1-user", ("quota", "1001"), ""),
        ("8.3.1-root", ("quota",), ""),
        ("8.3.1-root", ("pool", "list"), ""),
        ("8.3.1-server-ended", ("node", "list"), ""),
        ("7.4.7-management-away", ("--listtargets",), "management"),
        ("7.4.7-management-away", ("--getentryinfo",), "management"),
        ("7.4.7", ("--listtargets",), ""),
    ],
)
def test_why_a_command_got_no_answer(name: str, words: tuple[str, ...], cause: str) -> None:
    """The management service is away only where the words say so of a connection."""
    module = beegfs_v7 if name.startswith("7") else beegfs_v8
    assert module.silence_cause(answer(name, *words).err) == cause


def test_version_7() -> None:
    meta = beegfs_v7.read_targets("metadata", answer("7.4.7", "--listtargets", "--nodetype=meta").out)
    assert [(one.role, one.id, one.node, one.reachability) for one in meta] == [
        ("metadata", "1", "bee1", "online")
    ]
    storage = beegfs_v7.read_targets("storage", answer("7.4.7-pools", "--listtargets").out)
    assert [(one.id, one.pool, one.capacity) for one in storage] == [
        ("101", "1", "normal"), ("102", "1", "normal"), ("201", "1", "normal"), ("202", "2", "low"),
        ("203", "2", "low"),
    ]  # fmt: skip
    assert beegfs_v7.read_pattern(answer("7.4.7-pools", "--getentryinfo").out) == Pattern(
        "raid0", 1 << 20, 2, "2", "fast"
    )
    away = beegfs_v7.read_targets("storage", answer("7.4.7-server-away", "--listtargets", "storage").out)
    assert [(one.id, one.reachability, one.total_bytes is None) for one in away[1:3]] == [
        ("102", "online", False), ("201", "offline", True),
    ]  # fmt: skip
    servers = beegfs_v7.read_servers(answer("7.4.7-server-ended", "beegfs-check-servers").out)
    assert [one.name for one in servers if not one.reachable] == ["stor2"]
    assert [
        one.used for one in beegfs_v7.read_quotas("user", answer("7.4.7", "--getquota", "--uid").out, "1")
    ] == [0]


# What /proc shows


@pytest.fixture
def listening() -> Iterator[str]:
    """An address that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def refused() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def shown(tmp_path: Path) -> Callable[..., Path]:
    """Makes a /proc with a mount at `point` and a transcript's files, where some addresses are others."""

    def make(
        name: str, addresses: dict[str, str], point: Path | str = "/mnt/beegfs", config: str = ""
    ) -> Path:
        proc = tmp_path / "proc"
        (proc / "self").mkdir(parents=True)
        line = f"40 1 0:40 / {point} rw - beegfs beegfs_nodev rw,cfgFile=/etc/beegfs/beegfs-client.conf"
        (proc / "self/mountinfo").write_text(f"22 1 254:0 / / rw - ext4 /dev/vda rw\n{line}\n")
        for path, text in {**proc_files(config or name), **proc_files(name)}.items():
            made = proc / "fs/beegfs/client" / path.partition("/")[2]
            made.parent.mkdir(parents=True, exist_ok=True)
            for old, new in addresses.items():
                text = text.replace(old, new)
            made.write_text(text)
        return proc

    return make


def all_at(address: str) -> dict[str, str]:
    return {f"10.9.9.1:{port}": address for port in (8003, 8005, 8008, 8103)}


def status_of(proc: Path) -> StoreStatus:
    return beegfs_mount.status([beegfs_mount.view("client", proc)])


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("7.4.7", ("stor1", "stor2", "bee1")),
        ("8.3.1-user", ("node_storage_1", "node_storage_2", "node_meta_1")),
    ],
)
def test_the_client_shows_states_and_servers(
    shown: Callable[..., Path], listening: str, name: str, names: tuple[str, ...]
) -> None:
    seen = status_of(shown(name, all_at(listening)))
    assert [(one.role, one.id, one.node, one.reachability, one.consistency) for one in seen.targets] == [
        ("metadata", "1", names[2], "online", "good"),
        ("storage", "101", names[0], "online", "good"), ("storage", "102", names[0], "online", "good"),
        ("storage", "201", names[1], "online", "good"), ("storage", "202", names[1], "online", "good"),
        ("storage", "203", names[1], "online", "good"),
    ]  # fmt: skip
    assert [(one.role, one.name, one.reachable) for one in seen.servers[1:]] == [
        ("metadata", names[2], True), ("storage", names[0], True), ("storage", names[1], True),
    ]  # fmt: skip
    (fine,) = stores.judge(seen)
    assert fine.found == "5 storage targets, 1 metadata targets, 4 servers reached: all in order"


@pytest.mark.parametrize("name", ["7.4.7-server-ended", "8.3.1-server-ended"])
def test_a_server_that_ended_just_now_still_looks_well_and_is_found_out(
    shown: Callable[..., Path], listening: str, refused: str, name: str
) -> None:
    """Its targets are `Online`, its connections are listed: a connection that is refused tells."""
    seen = status_of(shown(name, {**all_at(listening), "10.9.9.1:8103": refused}))
    assert {one.reachability for one in seen.targets} == {"online"}
    assert [one.id for one in seen.servers if one.reachable is False] == ["2"]


@pytest.mark.parametrize("name", ["7.4.7-server-away", "8.3.1-server-away"])
def test_a_server_whose_targets_are_all_offline_is_away(
    shown: Callable[..., Path], listening: str, refused: str, name: str
) -> None:
    seen = status_of(shown(name, {**all_at(listening), "10.9.9.1:8103": refused}))
    assert [one.id for one in seen.targets if one.reachability == "offline"] == ["201", "202", "203"]
    assert [one.id for one in seen.servers if one.reachable is False] == ["2"]


def test_without_the_management_service_the_client_has_no_news(
    shown: Callable[..., Path], listening: str
) -> None:
    """It shows all targets as probably offline; they serve data for 15 minutes more."""
    seen = status_of(shown("8.3.1-management-away", all_at(listening)))
    assert {one.reachability for one in seen.targets} == {"unknown"}
    (warning,) = stores.judge(seen)
    assert (warning.verdict, warning.about) == ("warning", "BeeGFS management server management [ID: 1]")


def test_an_address_that_does_not_answer_is_waited_for_shortly() -> None:
    """A listener whose queue is full takes no connection, and refuses none."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        with socket.create_connection(address):
            assert beegfs_mount.connect([address], seconds=0.2) == {address: False}


@pytest.mark.parametrize("host", ["not an address", "255.255.255.255"])
def test_an_address_that_is_refused_at_once_is_not_taken(host: str) -> None:
    """connect(2) itself reports it, and the socket's own error is 0 after that."""
    assert beegfs_mount.connect([(host, 1)], seconds=0.2) == {(host, 1): False}


@pytest.mark.parametrize(
    ("nodes", "info", "rdma"),
    [
        ("a [ID: 1]\n   Connections: TCP: 1 (10.0.0.1:8003); RDMA: 4 (10.0.0.1:8003); \n", "", True),
        ("a [ID: 1]\n   Connections: TCP: 8 (10.0.0.1:8003 [fallback route]); \n", "type: RDMA]", False),
        ("a [ID: 1]\n   Connections: <none>\n", "+ ib0[ip addr: 10.0.0.9; type: RDMA]\n", True),
        ("a [ID: 1]\n   Connections: <none>\n", "+ eth0[ip addr: 10.0.0.9; type: TCP]\n", False),
        ("a [ID: 1]\n   Connections: <none>\n", "", None),
    ],
)
def test_whether_a_client_uses_rdma(nodes: str, info: str, rdma: bool | None) -> None:
    """The rows of `uses_rdma`."""
    assert beegfs_mount.uses_rdma(beegfs_mount.read_nodes("storage", nodes), info) is rdma


def test_no_word_of_rdma_buffers_over_tcp(shown: Callable[..., Path], listening: str) -> None:
    """connUseRDMA is on as shipped, also where there is no RDMA."""
    proc = shown("7.4.7", all_at(listening))
    assert "connUseRDMA = 1" in (proc / "fs/beegfs/client/config").read_text()
    (client,) = beegfs_mount.live_clients(proc)
    assert client.rdma is False


def test_servers_are_asked_before_a_call_is_made_on_the_mount(
    shown: Callable[..., Path], listening: str, refused: str, tmp_path: Path
) -> None:
    """The folder of the mount is not even looked up: it does not exist."""
    point = tmp_path / "mounted"
    proc = shown("8.3.1-server-ended", {**all_at(listening), "10.9.9.1:8103": refused}, point, "8.3.1-root")
    with pytest.raises(
        PreflightError, match=r"storage server node_storage_2 \[ID: 2\]: not reached"
    ) as caught:
        watched_facts.require_servers(point / "sets", proc)
    assert caught.value.exit_code == 3
    watched_facts.require_servers(tmp_path, proc)


def test_plan_and_selftest_ask_before_they_make_a_file(
    shown: Callable[..., Path], listening: str, refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    list_step.run(context, "data")
    target = context.layout("data").root
    proc = shown("8.3.1-server-ended", {**all_at(listening), "10.9.9.1:8103": refused}, target, "8.3.1-root")
    monkeypatch.setattr(watched_facts.require_servers, "__defaults__", (proc,))
    monkeypatch.chdir(tmp_path)
    before = sorted((path, path.stat().st_mtime_ns) for path in target.rglob("*"))
    with pytest.raises(PreflightError, match="storage server node_storage_2"):
        plan_step.run(context, "data")
    with pytest.raises(PreflightError, match="storage server node_storage_2"):
        site_setup._folder(argparse.Namespace(folder=target, config=None), Session(argparse.Namespace()))
    assert sorted((path, path.stat().st_mtime_ns) for path in target.rglob("*")) == before


def test_preflight_asks_before_it_waits_for_the_mount(
    shown: Callable[..., Path], listening: str, refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client forgets the address of a server once a call has failed on it: the first call would have."""
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    target = context.layout("data").root
    proc = shown("8.3.1-server-ended", {**all_at(listening), "10.9.9.1:8103": refused}, target, "8.3.1-root")
    monkeypatch.setattr(watched_facts.servers_away, "__defaults__", (proc,))
    monkeypatch.setattr(preflight_step, "Answers", pytest.fail)
    with pytest.raises(TargetAwayError, match="storage server node_storage_2"):
        preflight_step.run(context, "data")


@pytest.mark.parametrize(
    ("version", "holds"), [("7.4.7", True), ("8.3.1", False), ("", False)], ids=["7", "8", "not known"]
)
@pytest.mark.parametrize("states", [{}, {"Online": "Probably-offline"}], ids=["just now", "for a while"])
def test_a_client_of_version_7_answers_no_call_without_the_management_service(
    shown: Callable[..., Path], listening: str, refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    version: str, holds: bool, states: dict[str, str],
) -> None:  # fmt: skip
    """`ls` waited on 7.4.7; 8.3.1 passed a preflight."""
    (tmp_path / "sys/module/beegfs").mkdir(parents=True)
    (tmp_path / "sys/module/beegfs/version").write_text(version)
    monkeypatch.setattr(beegfs_mount.client_version, "__defaults__", (str(tmp_path / "sys"),))
    management = {"10.9.9.1:8008": refused} if not states else {}
    point = tmp_path / "mounted"
    proc = shown("7.4.7", {**all_at(listening), **management, **states}, point)
    status, away = watched_facts.servers_away(point, proc)
    assert status is not None
    assert [one.about for one in away] == (["BeeGFS management server bee1 [ID: 1]"] if holds else [])
    assert stores.away(status) == holds
    if holds:
        with pytest.raises(TargetAwayError, match="management server bee1"):
            watched_facts.require_servers(point, proc)


# What reads a target whose server is away


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library by which a process sees the mount table and the clients of another /proc."""
    library, source = tmp_path_factory.mktemp("library") / "shown.so", SUPPORT / "shown_proc.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", library, source], check=True)
    return str(library)


@pytest.fixture
def reading(
    shown: Callable[..., Path], listening: str, refused: str, tmp_path: Path, preloaded: str
) -> Iterator[Callable[..., CompletedProcess[str]]]:
    """Runs a command about a target below a link to a mount on which each call waits: a server of it ended.
    `forgotten`: the client shows no connection to it any more."""
    with hanging_mount(tmp_path / "mounted") as point:
        (tmp_path / "link").symlink_to(point)
        (tmp_path / "penstock.yaml").write_text(
            f"target: {{root: {tmp_path}/link/sets}}\ndatasets: {{data: {{source: /usr/include}}}}\n"
        )
        addresses = {**all_at(listening), "10.9.9.1:8103": refused}

        def run(*words: str, forgotten: bool = False) -> CompletedProcess[str]:
            lost = {f"TCP: {count} ({refused})": "<none>" for count in (1, 2, 3)} if forgotten else {}
            proc = shown("7.4.7-server-ended", {**addresses, **lost}, point, "7.4.7")
            env = {"LD_PRELOAD": preloaded, "SHOWN_PROC": str(proc)}
            return commands.run(sys.executable, "-m", "penstock", *words, cwd=tmp_path, env=env)

        yield run


@pytest.mark.parametrize(
    "words",
    [
        "status", "releases", "releases --root link/sets", "show", "gate", "gate --root link/sets", "path",
        "history", "metrics", "metrics --root link/sets", "du", "diff data", "gc --dry-run", "rollback",
        "plan", "audit", "repair", "cancel data", "run --dry-run", "preflight", "selftest link/sets",
        "limit data --nodes 2",
    ],
)  # fmt: skip
def test_each_command_names_the_server_that_is_away_and_makes_no_call_there(
    reading: Callable[..., CompletedProcess[str]], words: str
) -> None:
    done = reading(*words.split())
    assert done.returncode == 3, done.stderr
    assert "storage server stor2 [ID: 2]: not reached from this machine" in done.stderr
    assert "a server or a target of the file system is away" in done.stderr
    assert "start the server, or mend its network" in done.stderr


def test_preflight_connects_to_each_server_once(
    shown: Callable[..., Path], tmp_path: Path, preloaded: str
) -> None:
    """All servers of this client listen at one address."""
    (target := tmp_path / "target").mkdir()
    configuration = f"target: {{root: {target}}}\ndatasets: {{data: {{source: /usr/include}}}}\n"
    (tmp_path / "penstock.yaml").write_text(configuration)
    with socket.create_server(("127.0.0.1", 0)) as server:
        proc = shown("7.4.7", all_at(f"127.0.0.1:{server.getsockname()[1]}"), target)
        env = {"LD_PRELOAD": preloaded, "SHOWN_PROC": str(proc)}
        done = commands.run(sys.executable, "-m", "penstock", "preflight", cwd=tmp_path, env=env)
        assert (done.returncode, "5 storage targets" in done.stdout) == (0, True), done.stdout + done.stderr
        server.setblocking(False)
        taken = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                server.accept()[0].close()
                taken += 1
    assert taken == 1


def test_a_server_whose_connections_the_client_has_forgotten_is_found_out(
    reading: Callable[..., CompletedProcess[str]],
) -> None:
    """The mount must answer then, in a process of its own."""
    done = reading("status", forgotten=True)
    assert done.returncode == 3, done.stderr
    assert "the file system of the target does not answer" in done.stderr


# The whole of preflight's questions


@pytest.fixture
def played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: Callable[..., Path], listening: str
) -> Callable[..., TargetChecks]:
    """What preflight finds where the commands and the client answer as in a transcript."""

    def check(name: str, shows: str = "", **addresses: str) -> TargetChecks:
        made = tmp_path / "bin"
        made.mkdir()
        for program in PROGRAMS[name[0]]:
            command = f'exec {sys.executable} -S -E {recorded.__file__} {name} {program} "$@"'
            (made / program).write_text(f"#!/bin/sh\n{command}\n")
            (made / program).chmod(0o755)
        monkeypatch.setenv("PATH", f"{made}:{os.environ['PATH']}")
        folder = tmp_path / "target"
        folder.mkdir()
        root = {"7": "7.4.7", "8": "8.3.1-root"}[name[0]]
        proc = shown(shows or root, all_at(listening), folder, root)
        status, _ = watched_facts.servers_away(folder, proc)
        return store_checks.check_target(folder, gid=os.getegid(), named="beegfs", shown=status, proc=proc)

    return check


@pytest.mark.parametrize(
    ("name", "server"),
    [
        ("7.4.7-server-ended", "BeeGFS 7 storage server stor2 [ID: 2]"),
        ("8.3.1-server-ended", "BeeGFS 8 storage server node_storage_2 [ID: 2]"),
    ],
)
def test_of_a_mount_that_does_not_answer_the_commands_name_the_server(
    played: Callable[..., TargetChecks], tmp_path: Path, name: str, server: str
) -> None:
    """Its client has forgotten the address, and makes no connection."""
    played(name)
    proc = tmp_path / "proc"
    (stop,) = watched_facts.unreached_servers(tmp_path / "target", proc)
    assert (stop.verdict, stop.about) == ("stop", server)
    assert watched_facts.unreached_servers(tmp_path, proc) == []


def words(checks: TargetChecks, *verdicts: str) -> list[str]:
    return [f"{one.about}: {one.found}" for one in checks.results if one.verdict in verdicts]


def test_rows_count_although_the_licence_cannot_be_verified(played: Callable[..., TargetChecks]) -> None:
    """Only what was not answered is a note: quotas."""
    checks = played("8.3.1-root")
    assert words(checks, "ok") == [
        "BeeGFS 8: 5 storage targets, 1 metadata targets, 4 servers reached: all in order"
    ]
    (note,) = words(checks, "note", "warning", "stop")
    assert note.startswith("BeeGFS 8 quotas: not known: ")
    assert "License" in note


def test_an_account_without_the_secret_gets_what_the_client_shows(
    played: Callable[..., TargetChecks], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    checks = played("8.3.1-user")
    assert words(checks, "ok") == [
        "BeeGFS 8: 5 storage targets, 1 metadata targets, 4 servers reached: all in order"
    ]
    (note,) = words(checks, "note", "warning", "stop")
    assert (
        "storage pools, targets, servers, stripe pattern, quotas: not known: this account may not read"
        in note
    )


def test_version_7_in_order(played: Callable[..., TargetChecks]) -> None:
    checks = played("7.4.7")
    assert words(checks, "ok") == [
        "BeeGFS 7: 5 storage targets, 1 metadata targets, 4 servers reached: all in order"
    ]
    assert words(checks, "note", "warning", "stop") == []


@pytest.mark.parametrize("name", ["7.4.7-management-away", "8.3.1-management-away"])
def test_the_management_service_away_is_one_warning(played: Callable[..., TargetChecks], name: str) -> None:
    checks = played(name, "8.3.1-management-away" if name[0] == "8" else "")
    assert checks.in_order
    assert [one for one in words(checks, "warning", "stop") if "management server" not in one] == []
    assert len(words(checks, "warning")) == 1


def test_what_the_commands_said_goes_before_what_the_client_shows() -> None:
    target = Target("storage", "1", reachability="online")
    said = StoreStatus("BeeGFS 8", (target,), (Server("storage", "a", "1", True),))
    shown = StoreStatus(
        "BeeGFS",
        (target._replace(reachability="offline", consistency="bad"), target._replace(id="2", sized=False)),
        (Server("storage", "a", "1", None), Server("storage", "b", "2", None)),
    )
    filled = shown.filling(said)
    assert filled.product == "BeeGFS 8"
    assert filled.targets == (target._replace(consistency="bad"), target._replace(id="2", sized=False))
    assert [(one.id, one.reachable) for one in filled.servers] == [("1", True), ("2", None)]
