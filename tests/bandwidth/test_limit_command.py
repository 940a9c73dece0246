from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import penstock
from tests.support.staging_runs import context_for, tree

from penstock.cli.main import main
from penstock.config.loader import load
from penstock.config.settings import BandwidthConfig
from penstock.core.errors import ConfigError, PreflightError
from penstock.core.layout import RunLayout
from penstock.doctor import preflight_step
from penstock.doctor.preflight_requirements import judged_bandwidth
from penstock.jobs import bandwidth
from penstock.jobs.array_runner import element_command
from penstock.jobs.bandwidth import Cap, Overview, overview, reading, render, set_cap
from penstock.jobs.shares import HolderShare

if TYPE_CHECKING:
    from pathlib import Path

GBIT = 125_000_000


def configured(folder: Path, bandwidth: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(
        f"target: {{root: {folder}/target}}\ndatasets: {{data: {{source: {folder}/source}}}}\n"
        f"bandwidth: {bandwidth}\n"
    )
    return path


def capped(link: Path, rate: str, requests: int) -> None:
    """A cap file that bounds requests, too, as an administrator writes it by hand."""
    set_cap(link, rate)
    bandwidth.write(link, render(rate, requests))


def test_z1_the_administrator_sets_the_cap_and_all_see_who_has_which_part(tmp_path: Path) -> None:
    config = configured(tmp_path, f"{{folder: {tmp_path}/link, link: 100Gbit/s, reserve: 20Gbit/s}}")
    capped(tmp_path / "link", "1GB/s", 2000)
    said = penstock("--config", str(config), "limit", "40Gbit/s")
    assert said.returncode == 0, said.stderr
    assert said.stdout == (
        "bytes     4.66 GiB/s (40 Gbit/s)\n"
        "            by the cap file: 4.66 GiB/s (40 Gbit/s); by the configuration: 9.31 GiB/s (80 Gbit/s)\n"
        "requests  2,000 a second\n"
        "no run has a part of it\n"
    )
    receipt = tmp_path / "receipt.json"
    link = BandwidthConfig(tmp_path / "link", 80 * GBIT)
    with reading(link, "", "copy data, an element", "r1", print, time.sleep):
        said = penstock("--config", str(config), "--receipt", str(receipt), "limit")
    assert "100.0%, 4.66 GiB/s: " in said.stdout
    assert (
        f"runs `penstock step copy data, an element` on {os.uname().nodename}, process {os.getpid()}"
        in said.stdout
    )
    found = json.loads(receipt.read_text())
    assert (found["rate"], found["requests"], len(found["held"])) == (40 * GBIT, 2000, 1)
    for words, cap, line in (
        (("none",), Cap(None, 2000), "none"),
        (("1GB/s",), Cap(10**9, 2000), "1GB/s"),
    ):
        assert penstock("--config", str(config), "limit", *words).returncode == 0
        assert overview(tmp_path / "link").said == cap
        assert f"limit: {line}\n" in (tmp_path / "link/cap").read_text()


def test_limit_says_what_is_wrong(tmp_path: Path) -> None:
    config = configured(tmp_path, "{}")
    said = penstock("--config", str(config), "limit")
    assert said.returncode == 2
    assert "bandwidth.folder" in said.stderr
    config = configured(tmp_path, f"{{folder: {tmp_path}/link}}")
    said = penstock("--config", str(config), "limit")
    assert said.returncode == 3
    assert "the link's administrator makes it by `penstock" in said.stderr
    assert penstock("--config", str(config), "limit", "40").returncode == 2


@pytest.mark.parametrize("wrong", ["content", "mode", "names", "link"])
def test_s25_the_command_that_preflight_names_mends_a_cap_file_that_is_not_believed(
    tmp_path: Path, wrong: str
) -> None:
    config, link = configured(tmp_path, f"{{folder: {tmp_path}/link}}"), tmp_path / "link"
    capped(link, "1GB/s", 7)
    if wrong == "content":
        (link / "cap").write_text("limit: 40Gbps\n")
    elif wrong == "mode":
        (link / "cap").chmod(0o664)
    else:
        (link / "cap").rename(link / "other")
        getattr(link / "cap", "hardlink_to" if wrong == "names" else "symlink_to")(link / "other")
    assert penstock("--config", str(config), "limit").returncode == 3
    if wrong != "link":
        assert overview(link).said == Cap()
    said = penstock("--config", str(config), "limit", "2GB/s")
    assert said.returncode == 0, said.stderr
    assert overview(link)[:2] == (Cap(2 * 10**9), "")


def test_the_command_makes_the_folder_and_nothing_above_it(tmp_path: Path) -> None:
    """A file system that is not mounted: its folder would be made on this machine's own disk."""
    with pytest.raises(PreflightError, match="No such file or directory"):
        set_cap(tmp_path / "beegfs" / "link", "1GB/s")
    assert os.listdir(tmp_path) == []


def test_s25_only_the_folders_owner_sets_the_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_cap(tmp_path / "link", "1GB/s")
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 4711)
    with pytest.raises(PreflightError, match=f"it is uid {own + 4711}, and the folder belongs to uid {own}"):
        set_cap(tmp_path / "link", "2GB/s")


def test_s25_a_cap_file_that_others_may_write_is_said_and_closed_to_them(tmp_path: Path) -> None:
    config = configured(tmp_path, f"{{folder: {tmp_path}/link}}")
    capped(tmp_path / "link", "40Gbit/s", 9)
    cap = tmp_path / "link" / "cap"
    cap.chmod(0o664)
    said = penstock("--config", str(config), "limit").stdout
    assert (
        f"does not count: {cap} has mode 0664: others than its owner may write it\n  chmod 644 {cap}" in said
    )
    assert penstock("--config", str(config), "limit", "20Gbit/s").returncode == 0
    assert cap.stat().st_mode & 0o777 == 0o644
    assert overview(tmp_path / "link").said == Cap(20 * GBIT)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{link: 1GB/s}", "bandwidth.link (line 3): needs `bandwidth.folder`"),
        ("{requests: 5}", "bandwidth.requests (line 3): needs `bandwidth.folder`"),
        ("{folder: x, reserve: 1GB/s}", "bandwidth.reserve (line 3): is a part of `bandwidth.link`"),
        ("{folder: x, link: 1GB/s, reserve: 8Gbit/s}", '"8Gbit/s" leaves nothing of the link\'s 1GB/s'),
        ("{folder: x, link: 100}", "must be a rate with its unit"),
        ("{folder: x, requests: 0}", "give a number of requests a second"),
    ],
)
def test_what_the_configuration_may_not_say(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(configured(tmp_path, text))
    assert problem in str(raised.value)


def test_the_configured_cap_is_the_link_less_the_reserve(tmp_path: Path) -> None:
    found = load(configured(tmp_path, "{folder: x, link: 100Gbit/s, reserve: 20Gbit/s}")).bandwidth
    assert found.rate == 80 * GBIT
    assert found.folder is not None
    assert found.folder.is_absolute()
    assert load(configured(tmp_path, "{folder: x}")).bandwidth.rate is None


def test_elements_that_fetch_are_given_the_link(tmp_path: Path) -> None:
    context = context_for(tmp_path, tmp_path / "source")
    run = RunLayout(tmp_path / "run")
    assert "--bandwidth-folder" not in element_command(context, run, "copy")
    bandwidth = BandwidthConfig(tmp_path / "link", 100, 20, 7)
    context.config = replace(context.config, bandwidth=bandwidth)
    given = ["--bandwidth-folder", str(tmp_path / "link"), "--bandwidth", "80", "--requests", "7"]
    for step in ("copy", "repair"):
        assert element_command(context, run, step)[-6:] == given
    assert element_command(context, run, "copy", "0123456789abcdef")[-6:-4] == [
        "--link-holder", "0123456789abcdef",
    ]  # fmt: skip
    for step in ("verify", "audit"):
        assert "--bandwidth-folder" not in element_command(context, run, step)


def test_s25_preflight_stops_where_the_folder_or_the_cap_is_not_in_order(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    link = tmp_path / "link"
    context.config = replace(context.config, bandwidth=BandwidthConfig(link, 80 * GBIT))
    with pytest.raises(PreflightError, match="the bandwidth folder"):
        preflight_step.run(context, "data")
    set_cap(link, "40Gbit/s")
    (row,) = [one for one in preflight_step.run(context, "data")["results"] if one.about == "bandwidth cap"]
    assert row.found == "4.66 GiB/s, 0 runs with a part of it now"
    (link / "cap").chmod(0o666)
    with pytest.raises(PreflightError, match=f"{link}/cap has mode 0666: others than its owner may write it"):
        preflight_step.run(context, "data")


def test_the_table_of_preflights_verdicts() -> None:
    wrong = judged_bandwidth(BandwidthConfig(), Overview(Cap(), "/link/cap has mode 0666", "chmod it", []))
    assert [(one.verdict, one.found, one.mend) for one in wrong] == [
        ("stop", "/link/cap has mode 0666", "chmod it")
    ]
    held = [HolderShare(0.5, "one"), HolderShare(0.5, "other")]
    (both,) = judged_bandwidth(BandwidthConfig(link=10**9), Overview(Cap(5 * 10**8, 7), "", "", held))
    assert (both.verdict, both.found) == (
        "ok",
        "477 MiB/s, 7 requests a second, 2 runs with a part of it now",
    )
    (file,) = judged_bandwidth(BandwidthConfig(), Overview(Cap(10**9), "", "", []))
    assert file.verdict == "ok"
    (none,) = judged_bandwidth(BandwidthConfig(), Overview(Cap(), "", "", []))
    assert (none.verdict, none.mend) == ("warning", "penstock limit RATE, or `bandwidth.link`")


def test_a_longer_cap_file_of_an_administrator_is_replaced_in_place(tmp_path: Path) -> None:
    (tmp_path / "cap").write_text("# " + "x" * 500 + "\nlimit: 1GB/s\n")
    inode = (tmp_path / "cap").stat().st_ino
    bandwidth.write(tmp_path, render("2GB/s", None))
    assert overview(tmp_path).said == Cap(2 * 10**9)
    assert (tmp_path / "cap").stat().st_ino == inode


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("data",), '"data" is no cap of the link'),
        (("data",), "`penstock limit data --nodes N`"),
        (("40Gbit/s", "--nodes", "2"), "40Gbit/s is a cap of the link, and --nodes is of a dataset"),
        (("dta", "--nodes", "2"), 'no dataset is named "dta"'),
        (("data", "2"), "more arguments than it takes: 2"),
    ],
)
def test_a_mixture_of_link_and_dataset_is_refused(
    tmp_path: Path, words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configured(tmp_path, f"{{folder: {tmp_path}/link}}")
    assert main(["--config", str(config), "limit", *words]) == 2
    assert told in capsys.readouterr().err.replace(f" --config {config}", "")
    assert not (tmp_path / "link").exists()
