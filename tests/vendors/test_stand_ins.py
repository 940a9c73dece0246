"""The stand-ins refuse what the real commands refuse (show 4): here they are called by hand, wrongly."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.vendors.beegfs_cluster import Cluster


@pytest.fixture(autouse=True)
def _a_user(request: pytest.FixtureRequest) -> None:
    """The stand-ins take the caller for one who is not root."""
    for name in ("beegfs", "beegfs7", "beegfs8"):
        if name in request.fixturenames:
            request.getfixturevalue(name).write(root=False)


def call(*argv: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(one) for one in argv], capture_output=True, text=True, check=False, timeout=20)


def test_the_option_of_the_other_version_is_refused(beegfs: Cluster, tmp_path: Path) -> None:
    """Show 4"""
    argv, words = {
        7: (("beegfs-ctl", "--setpattern", "--num-targets=4"), "Invalid argument"),
        8: (("beegfs", "entry", "set", "--numtargets=4"), "unknown flag"),
    }[beegfs.version]
    seen = call(*argv, tmp_path)
    assert (seen.returncode, words in seen.stderr) == (1, True)
    assert beegfs.patterns() == {}


def test_users_may_set_patterns_only_where_the_site_allows_it(beegfs: Cluster, tmp_path: Path) -> None:
    argv = {
        7: ("beegfs-ctl", "--setpattern", "--numtargets=2", tmp_path),
        8: ("beegfs", "entry", "set", "--num-targets=2", tmp_path),
    }[beegfs.version]
    words = {7: "Permission denied", 8: "not permitted"}[beegfs.version]
    beegfs.write(allow_user_pattern=False)
    assert words in call(*argv).stderr
    beegfs.write(allow_user_pattern=True, owners={str(tmp_path): 12345})
    assert words in call(*argv).stderr
    beegfs.write(owners={})
    assert call(*argv).returncode == 0
    assert beegfs.patterns()[str(tmp_path)] == {"kind": "raid0", "chunk": 512 << 10, "targets": 2, "pool": 1}


def test_exclusive_flags_of_quotas(beegfs7: Cluster) -> None:
    assert call("beegfs-ctl", "--getquota", "--csv", "--uid", "--gid", "1").returncode == 1
    assert call("beegfs-ctl", "--getquota", "--csv", "1").returncode == 1
    assert (
        "Only one of --all"
        in call("beegfs-ctl", "--getquota", "--csv", "--uid", "--all", "--list", "1").stderr
    )


def test_others_quotas_are_for_root(beegfs8: Cluster) -> None:
    argv = ("beegfs", "quota", "list-usage", "--uids", "12", "--output", "ndjson", "--raw")
    assert "only root" in call(*argv).stderr
    beegfs8.write(root=True)
    assert call(*argv).returncode == 0


def test_exit_statuses_of_states(beegfs: Cluster) -> None:
    beegfs.server_down("stor02")
    if beegfs.version == 8:
        assert call("beegfs", "node", "list", "--reachability-error", "--output", "ndjson").returncode == 5
        return
    listing = ("beegfs-ctl", "--listnodes", "--reachable", "--errorcodes", "--nodetype=storage")
    assert call(*listing).returncode == 5
    assert call("beegfs-check-servers").returncode == 0
    assert call("beegfs-check-servers", "-e").returncode == 1
    beegfs.change(101, reachability="Offline")
    states = ("beegfs-ctl", "--listtargets", "--state", "--errorcodes", "--nodetype=storage")
    assert call(*states).returncode == 6
    assert call("beegfs-df", "-e").returncode == 0  # the script does not ask for --state
