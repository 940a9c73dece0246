"""SLURM's lists of hosts, against SLURM's own reading of them."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.range_lists import host_list, host_names

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1,n2", "n1 n2"),
        ("n[1-3,7]", "n1 n2 n3 n7"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("r[1-2]c[1-2]", "r1c1 r1c2 r2c1 r2c2"),
        ("n[1-2],login1,n2", "n1 n2 login1"),
        ("", ""),
    ],
)
def test_the_names_of_a_list(text: str, names: str) -> None:
    assert host_names(text) == names.split()


@pytest.mark.parametrize(
    "text", ["n[1-", "/etc/hosts", "-n1", "n[3-1]", "n[1-99999999]", "a b", "n[]", ",", "n[1-2]-ib"]
)
def test_what_is_no_list(text: str) -> None:
    with pytest.raises(ValueError, match="host"):
        host_names(text)


def test_names_become_ranges() -> None:
    assert host_list(["n3", "n1", "n2", "n9", "login"]) == "login,n[1-3,9]"
    assert host_list(["n08", "n09", "n10"]) == "n[08-09],n10"
    assert host_list([]) == ""


NAMES = st.lists(st.from_regex(r"[a-z]{1,3}[0-9]{0,4}(-ib)?", fullmatch=True), max_size=40)


@settings(deadline=None)
@given(NAMES)
def test_a_list_of_names_has_these_names(names: list[str]) -> None:
    assert sorted(host_names(host_list(names))) == sorted(set(names))


@pytest.mark.slurm
def test_scontrol_reads_lists_alike(tmp_path: Path) -> None:
    if not shutil.which("scontrol"):
        pytest.skip("no scontrol here")
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=x\nSlurmctldHost=localhost\nNodeName=n1\nPartitionName=p Nodes=n1\n")

    def scontrol(what: str, text: str) -> str:
        return subprocess.run(
            ["scontrol", "show", what, text],
            env={"SLURM_CONF": str(conf), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True
        ).stdout.strip()  # fmt: skip

    for text in ("n[1-3,7]", "n[08-11]", "r[1-2]c[1-2]", "n[1-2],login1"):
        assert scontrol("hostnames", text).split() == host_names(text)
    names = ["n1", "n2", "n3", "n08", "n09", "n10", "login", "r1c2-ib", "r1c3-ib"]
    assert sorted(scontrol("hostnames", host_list(names)).split()) == sorted(names)
