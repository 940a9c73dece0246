"""Quotas that the kernel counts: on real file systems with real quotas, under a kernel that has them
(`tests.support.uml`); and what becomes of answers that are none."""

from __future__ import annotations

import errno
import json
import os
import shutil
import struct
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import uml
from tests.support.staging_runs import context_for, tree

from penstock.core.dataset_documents import StillToWrite
from penstock.core.run_steps import gravest
from penstock.doctor import preflight_step
from penstock.fs import libc, quotas
from penstock.fs.quotas import KernelQuotas, Quota, unnamed_group

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.fs.quotas import Scope

KIB, MIB = 1 << 10, 1 << 20
USER, GROUP, PROJECT = 2001, 3001, 4001

SCRIPT = """
import ctypes, json, os, subprocess, sys, time
from pathlib import Path
from penstock.fs import libc, quotas
from penstock.host.kernel_facts import mount_of

KIND, MKFS_OPTIONS, MODULES = {kind!r}, {options!r}, {modules!r}
USER, GROUP, PROJECT = {user}, {group}, {project}
for module in MODULES:
    fd = os.open(module, os.O_RDONLY)
    if ctypes.CDLL(None).syscall(313, fd, b"", 0):  # finit_module
        sys.exit(f"no module {{module}}")
    os.close(fd)
top = Path("/mnt/disk")
top.mkdir()
subprocess.run(["mount", "-t", KIND, "-o", MKFS_OPTIONS, "/dev/ubda", str(top)], check=True)
foreign = [] if KIND == "xfs" else ["-f"]


def limit(*words, expert="limit"):
    # xfs_quota sets them on other file systems, too (-f).
    done = subprocess.run(["xfs_quota", "-x", *foreign, "-c", " ".join([expert, *map(str, words)]), str(top)],
                          capture_output=True, text=True)
    if done.returncode or done.stderr:
        sys.exit(f"{{words}}: {{done.stderr}}")


def folder(name, uid=0, gid=0, project=0):
    made = top / name
    made.mkdir()
    os.chown(made, uid, gid)
    if project:
        subprocess.run(["xfs_io", "-c", f"chproj {{project}}", "-c", "chattr +P", str(made)], check=True)
    return made


def write(path, size, uid=0, gid=0):
    path.write_bytes(bytes(size))
    os.chown(path, uid, gid)
    os.sync()


def shown(path, uid, gid):
    seen = quotas.of_new_files(path, uid, gid)
    return {{
        "enforced": sorted(seen.enforced),
        "quotas": [one._asdict() for one in seen.quotas],
        "unknown": [one.name for one in seen.unknown],
        "now": [one._asdict() for one in quotas.check(seen)],
        "more": [one._asdict() for one in quotas.check(seen, 1 << 20, 10)],
    }}


def as_user(work):
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.setgroups([])
        os.setgid(GROUP)
        os.setuid(USER)
        os.write(writes, json.dumps(work()).encode())
        os._exit(0)
    os.close(writes)
    with open(reads) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return json.loads(text)


told = {{}}
plain = folder("plain", USER, GROUP)
told["none"] = shown(plain, USER, GROUP)
limit("-u", "bhard=10m", "bsoft=0", "ihard=20", "isoft=0", USER)
limit("-g", "bhard=4m", "bsoft=1m", "isoft=2", "ihard=0", GROUP)
write(plain / "a", 2 << 20, USER, GROUP)
told["soft"] = shown(plain, USER, GROUP)
told["as user"] = as_user(lambda: shown(plain, USER, GROUP))
told["other group as user"] = as_user(lambda: shown(plain, USER, GROUP + 1))
ours = folder("ours", USER, GROUP, PROJECT)
limit("-p", "bhard=3m", "bsoft=0", "isoft=0", "ihard=6", PROJECT)
write(ours / "a", 2 << 20, USER, GROUP + 1)
told["project"] = shown(ours, 0, 0)
told["project as user"] = as_user(lambda: shown(ours, USER, GROUP))
libc._QUOTACTL_FD = 9999
told["by the device"] = shown(ours, 0, 0)
libc._QUOTACTL_FD = 443
limit("-u", "-b", "1", expert="timer")
limit("-u", "bhard=10m", "bsoft=1m", USER + 1)
write(plain / "late", 2 << 20, USER + 1)
end = time.monotonic() + 20
while time.monotonic() < end:
    told["late"] = shown(plain, USER + 1, 0)
    if any((one["grace"] or 1) <= 0 for one in told["late"]["quotas"]):
        break
    time.sleep(0.2)
told["root"] = shown(plain, 0, 0)

target = folder("target")
source = Path("source")
source.mkdir()
(source / "one").write_bytes(b"1" * (3 << 20))
named = {{"source": str(source.absolute()), "permissions": {{"group": str(GROUP)}}}}
wanted = {{"target": {{"root": str(target), "keep_free": "0B"}}, "datasets": {{"data": named}}}}
Path("my.yaml").write_text(json.dumps(wanted))


def penstock(*words):
    done = subprocess.run([sys.executable, "-m", "penstock", "--as-root", "--config", "my.yaml", *words],
                          capture_output=True, text=True)
    return [done.returncode, done.stdout, done.stderr]


told["preflight"] = penstock("preflight", "data")
told["list"] = penstock("step", "list", "data")
told["plan"] = penstock("step", "plan", "data")
told["made"] = sorted(one.name for one in (target / "data").glob("releases/*"))
limit("-g", "bhard=2m", GROUP)
told["preflight, used up"] = penstock("preflight", "data")
limit("-g", "bhard=40m", GROUP)
told["plan, raised"] = penstock("step", "plan", "data")
told["made, raised"] = sorted(one.name for one in (target / "data").glob("releases/*"))
print(json.dumps(told))
"""


@pytest.fixture(scope="module", params=["xfs", "ext4"])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a script saw on a file system with user, group and project quotas."""
    uml.need_kernel()
    kind = request.param
    folder = tmp_path_factory.mktemp(f"quota-{kind}")
    disk = folder / "disk"
    with disk.open("wb") as stream:
        stream.truncate(320 << 20)
    make = {
        "xfs": ["mkfs.xfs", "-q", "-f"],
        "ext4": ["mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota"],
    }[kind]
    if shutil.which(make[0]) is None:
        pytest.skip(f"{make[0]} is not installed")
    subprocess.run([*make, disk], check=True)
    names = () if kind == "xfs" else ("quota_tree", "quota_v2")
    modules = [str(next(uml.MODULES.glob(f"*/kernel/fs/quota/{name}.ko"))) for name in names]
    options = {"xfs": "uquota,gquota,pquota", "ext4": "usrquota,grpquota,prjquota"}[kind]
    script = SCRIPT.format(
        kind=kind, options=options, modules=modules, user=USER, group=GROUP, project=PROJECT
    )
    seen: dict[str, Any] = json.loads(uml.run(folder, script, [disk]).splitlines()[-1])
    return seen


def of(told: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    """The quotas that were seen, by scope."""
    return {one["scope"]: one for one in told[name]["quotas"]}


def verdicts(told: dict[str, Any], name: str, when: str) -> list[tuple[str, str]]:
    return [(one["about"], one["verdict"]) for one in told[name][when] if one["verdict"] != "ok"]


def test_a8_whose_limits_are_in_force_is_known_before_any_is_set(told: dict[str, Any]) -> None:
    """A8: an owner of whom nothing is counted yet has no limit, and nothing is said."""
    assert told["none"]["enforced"] == ["group", "project", "user"]
    assert told["none"]["now"] == told["none"]["more"] == []


def test_a8_the_limits_of_the_final_owner_and_their_grace(told: dict[str, Any]) -> None:
    """A8: bytes and files, hard and soft; the grace is what is left of the file system's week."""
    seen = of(told, "soft")
    user, group = seen["user"], seen["group"]
    assert (user["limit"], user["soft_limit"], user["file_limit"]) == (10 * MIB, None, 20)
    assert 2 * MIB <= user["used"] < 2 * MIB + 64 * KIB
    assert user["used_files"] == 2
    assert user["grace"] is user["file_grace"] is None
    assert (group["limit"], group["soft_limit"], group["soft_file_limit"]) == (4 * MIB, MIB, 2)
    assert 604_800 - 200 < group["grace"] <= 604_800
    assert verdicts(told, "soft", "now") == [(f"quota of group {GROUP}", "warning")]
    (warning,) = (one for one in told["soft"]["now"] if one["verdict"] == "warning")
    assert "which passes its soft limit of 1.00 MiB" in warning["found"]
    assert "s of grace are left" in warning["found"]
    # Ten more files pass the other soft limit as well.
    assert len(verdicts(told, "soft", "more")) == 2


def test_a8_what_an_account_may_not_see_is_a_note(told: dict[str, Any]) -> None:
    """A8: its own quotas are as root sees them; a foreign group's, and a project's, are not known."""
    assert of(told, "as user").keys() == {"user", "group"}
    assert told["as user"]["unknown"] == []
    assert told["other group as user"]["unknown"] == [f"group {GROUP + 1}"]
    assert told["project as user"]["unknown"] == [f"project {PROJECT}"]
    assert (f"quota of project {PROJECT}", "note") in verdicts(told, "project as user", "now")


@pytest.mark.parametrize("name", ["project", "by the device"])
def test_a8_the_project_of_a_folder_that_hands_it_on(told: dict[str, Any], name: str) -> None:
    """A8: by quotactl_fd, and as kernels before 5.14 are asked."""
    seen = of(told, name)
    assert seen.keys() == {"project"}  # of user and group 0 nothing is asked
    assert (seen["project"]["id"], seen["project"]["limit"]) == (PROJECT, 3 * MIB)
    assert 2 * MIB <= seen["project"]["used"] < 2 * MIB + 64 * KIB
    assert verdicts(told, name, "now") == []
    assert (f"quota of project {PROJECT}", "stop") in verdicts(told, name, "more")


def test_a8_a_soft_limit_whose_grace_is_over_stops(told: dict[str, Any]) -> None:
    """A8"""
    assert of(told, "late")["user"]["grace"] <= 0
    assert verdicts(told, "late", "now") == [(f"quota of user {USER + 1}", "stop")]
    assert told["root"]["quotas"] == []


def test_a8_preflight_and_plan_refuse_what_the_group_cannot_take(told: dict[str, Any]) -> None:
    """A8: the group that the configuration names, not root's, whose quota is none. Preflight stops at one
    that is used up, with 3; plan at one that would be passed, with 6, before anything is made."""
    code, table, errors = told["preflight"]
    assert code == 0, errors
    assert f"quota of group {GROUP}" in table
    assert told["list"][0] == 0, told["list"]
    code, _, errors = told["plan"]
    assert code == 6, errors
    assert f"quota of group {GROUP}: " in errors
    assert "bytes are missing" in errors
    assert told["made"] == []
    code, _, errors = told["preflight, used up"]
    assert code == 3
    assert f"quota of group {GROUP}: 2.00 MiB used" in " ".join(errors.split())
    assert told["plan, raised"][0] == 0, told["plan, raised"]
    assert len(told["made, raised"]) == 1


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ESRCH, errno.EINVAL, errno.EPERM, errno.ENODEV])
def test_a8_a_file_system_that_does_not_answer_has_no_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A8: and no run stops."""

    def refuse(*_: object) -> bytes:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(libc, "quotactl", refuse)
    assert quotas.of_new_files(tmp_path, 1, 1) == KernelQuotas()
    assert quotas.ask(str(tmp_path / "gone"), 1, 1) == KernelQuotas()


def test_a8_the_answer_of_the_kernel_is_read() -> None:
    """A8: `struct if_dqblk`: limits in KiB, a grace by its end."""
    answer = struct.pack("=8Q", 10, 5, 6000, 0, 7, 8, 1_000, 0) + bytes(100)
    assert quotas.read("user", 5, answer, 400.0) == Quota(
        "user", 5, "", 6000, 10 * KIB, 8, None, 5 * KIB, 7, 600.0, None
    )


@pytest.mark.parametrize(
    ("mode", "enforced", "verdict"),
    [(0o755, False, "ok"), (0o2775, False, "warning"), (0o2775, True, "warning"), (0o755, True, "stop")],
)
def test_s18_a_group_is_to_be_named(tmp_path: Path, mode: int, enforced: bool, verdict: str) -> None:
    """S18: the rows of `quotas.unnamed_group`."""
    tmp_path.chmod(mode)
    found = unnamed_group(tmp_path, enforced=enforced)
    assert gravest(found) == verdict
    assert all("permissions.group" in one.mend for one in found)


def test_s18_preflight_warns_of_a_root_that_hands_its_group_on(tmp_path: Path) -> None:
    """S18"""
    source = tree(tmp_path / "source", {"a": b"1"})
    (tmp_path / "target").mkdir()
    (tmp_path / "target").chmod(0o3775)
    (warning,) = (
        text
        for text in preflight_step.run(context_for(tmp_path, source), "data")["warnings"]
        if text.startswith("group: ")
    )
    assert "which the folder hands on" in warning


@pytest.mark.parametrize(
    ("scope", "number", "verdict"),
    [
        ("user", 7, "stop"),
        ("user", 8, "ok"),
        ("group", 9, "stop"),
        ("group", 8, "ok"),
        ("project", 5, "stop"),
    ],
)
def test_s17_what_other_runs_will_write_counts(scope: Scope, number: int, verdict: str) -> None:
    """S17: those of the same user or group, and of all below the root for a project."""
    other = StillToWrite(4, 1, uid=7, gid=9)
    seen = KernelQuotas(quotas=(Quota(scope, number, used=5, limit=10, used_files=0),))
    assert gravest(quotas.check(seen, 3, 1, [other])) == verdict
    assert gravest(quotas.check(seen, 3, 1)) == "ok"
