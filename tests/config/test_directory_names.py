"""Users and groups by the names that directories give them: with blanks, backslashes, other letters (f6).

The names are real ones of this machine's own look-up: /etc/passwd and /etc/group of a mount namespace."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from penstock.config.loader import load
from penstock.core import posix_acl
from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

GROUPS = {"domain users": 7001, "CORP\\ml": 7002, "Größe+1": 7003, "ml@corp.example": 7004}
NAMES = [*GROUPS, "CORP\\domain users", "svc$", "a,b", "12 34"]


def among(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command where these groups are known, and a user `CORP\\svc`, as root."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts")
    with open("/etc/group", encoding="utf-8") as known:
        lines = [f"{name}:x:{number}:" for name, number in GROUPS.items()]
        (folder / "group").write_text(known.read() + "\n".join(lines) + "\n")
    with open("/etc/passwd", encoding="utf-8") as known:
        (folder / "passwd").write_text(known.read() + "CORP\\svc:x:7100:7001::/:/bin/sh\n")
    script = 'mount --bind "$0/group" /etc/group && mount --bind "$0/passwd" /etc/passwd && exec "$@"'
    return subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, folder, *words],
        check=False,
        capture_output=True,
        text=True,
    )


def configuration(folder: Path, name: str, acl: str) -> Path:
    (folder / "source").mkdir(exist_ok=True)
    (folder / "source" / "file").write_bytes(b"content")
    (folder / "target").mkdir(exist_ok=True)
    path = folder / "config.yaml"
    path.write_text(
        f"target: {{root: {folder}/target, keep_free: 0, owners: ['CORP\\svc', root]}}\n"
        f"datasets: {{d: {{source: {folder}/source, permissions: {{group: '{name}', acl: ['{acl}']}}}}}}\n"
    )
    return path


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_of_a_directory_gets_the_release(name: str, tmp_path: Path) -> None:
    """f6: from the outside, with names that getgrnam and getpwnam know."""
    path = configuration(tmp_path, name, "user:CORP\\svc:r-X")
    for step in ("list", "plan", "copy", "permissions"):
        done = among(tmp_path, sys.executable, "-m", "penstock", "--config", str(path), "step", step, "d")
        assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "target" / "d" / "releases").glob(".*.staging/data/file")
    assert file.stat().st_gid == GROUPS[name]
    acl = subprocess.run(["getfacl", "-n", "-c", "-p", file], check=True, capture_output=True, text=True)
    assert "user:7100:r" in acl.stdout


def test_a_group_that_nobody_knows_is_named(tmp_path: Path) -> None:
    """f6."""
    path = configuration(tmp_path, "CORP\\nobody here", "user:CORP\\svc:r-X")
    done = among(tmp_path, sys.executable, "-m", "penstock", "--config", str(path), "preflight")
    assert done.returncode == 3
    assert 'there is no group "CORP\\nobody here" on this machine' in done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_every_key_that_takes_a_name_takes_those_of_a_directory(name: str, tmp_path: Path) -> None:
    """f6: group, ACL entries, owners."""
    path = tmp_path / "config.yaml"
    permissions = f"{{group: '{name}', acl: ['group:{name}:rX']}}"
    path.write_text(
        f"target: {{root: {tmp_path}, owners: ['{name}']}}\n"
        f"datasets: {{d: {{source: {tmp_path}, permissions: {permissions}}}}}\n"
    )
    config = load(path)
    assert config.target.owners == (name,)
    access = config.datasets["d"].permissions
    assert access.group == name
    assert [posix_acl.parse(text).who for text in access.acl] == [name]


@pytest.mark.parametrize("name", ["", "a:b", "a\\nb", "a\\0b", "line\\n", "a\\eb", "x" * 256])
@pytest.mark.parametrize("key", ["group: ", "acl: [", "owners"])
def test_what_can_be_no_name_is_refused(name: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    owners = f', owners: ["{name}"]' if key == "owners" else ""
    permissions = {"group: ": f'group: "{name}"', "acl: [": f'acl: ["group:{name}:rX"]'}.get(key, "")
    path.write_text(
        f"target: {{root: {tmp_path}{owners}}}\n"
        f"datasets: {{d: {{source: {tmp_path}, permissions: {{{permissions}}}}}}}\n"
    )
    with pytest.raises(ConfigError):
        load(path)
