"""`/etc/penstock/site.yaml`: who may say it, what it gives a configuration, and what it refuses, by line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.support.forked import NOBODY, forked

from penstock.cli.main import main
from penstock.cluster.slurm.site import NewOptions
from penstock.config import loader, site, validation
from penstock.config.annotations import keys_of
from penstock.config.loader import load, target_at
from penstock.config.site import Bounds
from penstock.core.errors import ConfigError, PreflightError
from penstock.core.human import printable
from penstock.doctor import new_configuration
from penstock.doctor.new_configuration import Asked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.config.settings import ClusterConfig, Config

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="the site's file is root's: only as root")
pytestmark = as_root
SECTIONS = {
    "target": {"roots": "[ROOT, /beegfs/other]", "ops": "3000"},
    "cluster": {"partitions": "[transfer, cpu]", "max_elements": "3", "backends": "[slurm]"},
    "bandwidth": {"folder": "/beegfs/.link", "link": "40Gbit/s", "requests": "2000"},
    "gc": {"grace": "30d"},
}
"""A sample of each section; a key that is added here moves no line that a test names (`line_of`)."""
SITE = "# of the administrators\n" + "".join(
    f"{section}:\n" + "".join(f"  {key}: {value}\n" for key, value in keys.items())
    for section, keys in SECTIONS.items()
)
SLURM: dict[str, Any] = {"backend_override": "slurm"}
ACCOUNTS = """\
target:
  owners: [svc-data, 1234]
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the file lies for this test."""
    folder = tmp_path / "etc"
    folder.mkdir(mode=0o755)
    monkeypatch.setattr(site, "FILE", folder / "site.yaml")
    return folder / "site.yaml"


def line_of(key: str) -> int:
    """Where SITE has a key, such as `target.roots`."""
    section, name = key.split(".")
    rows = SITE.splitlines()
    begin = rows.index(f"{section}:")
    return next(at for at, row in enumerate(rows[begin:], begin + 1) if row.startswith(f"  {name}: "))


def said(place: Path, text: str) -> None:
    place.write_text(text.replace("ROOT", str(place.parents[1] / "root")))


def configured(place: Path, how: Mapping[str, Any] = SLURM, **sections: Any) -> Config:
    sections.setdefault("target", {}).setdefault("root", str(place.parents[1] / "root"))
    file = place.parents[1] / "my.yaml"
    file.write_text(yaml.safe_dump({**sections, "datasets": {"d": {"source": "s3://b/p/"}}}, sort_keys=False))
    return load(file, **how)


def refused(place: Path, **sections: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        configured(place, **sections)
    assert caught.value.exit_code == 2
    return printable(str(caught.value))


def test_without_a_file_nothing_is_bounded(place: Path) -> None:
    assert configured(place, gc={"grace": "1s"}).gc.grace == 1


def test_its_values_hold_where_the_configuration_has_none(place: Path) -> None:
    said(place, SITE)
    config = configured(place)
    assert config.target.ops == 3000
    assert config.cluster.options.partition == "transfer"
    assert config.cluster.options.max_elements == 3
    assert config.bandwidth.folder == Path("/beegfs/.link")
    assert (config.bandwidth.rate, config.bandwidth.requests) == (5_000_000_000, 2000)
    assert config.gc.grace == 30 * 86400.0


def test_a_configuration_may_tighten_it(place: Path) -> None:
    said(place, SITE)
    config = configured(
        place,
        target={"root": "/beegfs/other/team"},
        cluster={"partition": "cpu", "max_elements": 2},
        bandwidth={"folder": "/beegfs/.link", "link": "1GB/s", "requests": 5},
        gc={"grace": "60d"},
    )
    assert config.cluster.options.max_elements == 2
    assert (config.bandwidth.rate, config.bandwidth.requests) == (1_000_000_000, 5)
    assert config.gc.grace == 60 * 86400.0


@pytest.mark.parametrize(
    ("section", "values", "key", "bound", "words"),
    [
        ("target", {"root": "/scratch"}, "target.root", "roots", "not for a configuration to say"),
        ("target", {"root": "/beegfs/others"}, "target.root", "roots", "/beegfs/other"),
        ("cluster", {"partition": "gpu"}, "cluster.partition", "partitions", "transfer, cpu"),
        ("cluster", {"partition": "cpu,gpu"}, "cluster.partition", "partitions", "transfer, cpu"),
        ("cluster", {"max_elements": 5}, "cluster.max_elements", "max_elements", "at most 3"),
        (
            "cluster", {"steps": {"copy": {"max_elements": 9}}}, "cluster.steps.copy.max_elements",
            "max_elements", "most 3",
        ),
        (
            "cluster", {"steps": {"copy": {"partition": "x"}}}, "cluster.steps.copy.partition",
            "partitions", "cpu",
        ),
        ("bandwidth", {"folder": "/tmp"}, "bandwidth.folder", "folder", "/beegfs/.link alone"),
        ("bandwidth", {"folder": "/beegfs/.link", "link": "50Gbit/s"}, "bandwidth.link", "link", "40Gbit/s"),
        (
            "bandwidth", {"folder": "/beegfs/.link", "requests": 2001}, "bandwidth.requests",
            "requests", "2000",
        ),
        ("gc", {"grace": "1d"}, "gc.grace", "grace", "at least 30d"),
    ],
)  # fmt: skip
def test_what_a_configuration_may_not_say_is_refused_by_both_lines(
    place: Path, section: str, values: dict[str, Any], key: str, bound: str, words: str
) -> None:
    said(place, SITE)
    text = refused(place, **{section: values})
    assert f"{key} (line " in text
    assert f"{place}, line {line_of(f'{section}.{bound}')}: " in text
    assert words in text


@pytest.mark.parametrize(
    ("how", "at"),
    [
        ({}, "cluster.backend (line 2)"),
        ({"backend_override": "local"}, "cluster.backend (--backend)"),
        ({"in_job": True}, ""),
        ({"backend_override": "slurm"}, ""),
        ({"staging": False}, ""),
    ],
)
def test_a_site_may_forbid_to_stage_outside_of_jobs(place: Path, how: Mapping[str, Any], at: str) -> None:
    said(place, SITE)
    if not at:
        assert configured(place, how, cluster={"backend": "local"}).cluster.options.max_elements == 3
        return
    with pytest.raises(ConfigError) as caught:
        configured(place, how, cluster={"backend": "local"})
    text = str(caught.value)
    assert (
        f'{at}: "local" is not for a configuration to say: {place}, line {line_of("cluster.backends")}'
        in text
    )
    assert "cluster.backends there allows slurm, and any inside a job" in text


@pytest.mark.parametrize(
    ("sections", "kept"),
    [
        ({"target": {"root": "/scratch"}}, lambda made: made.target.root == Path("/scratch")),
        ({"cluster": {"partition": "gpu"}}, lambda made: made.cluster.options.partition == "gpu"),
        ({"cluster": {"max_elements": 5}}, lambda made: made.cluster.options.max_elements == 3),
        (
            {"cluster": {"steps": {"copy": {"max_elements": 9}}}},
            lambda made: made.cluster.of("copy").max_elements == 3,
        ),
        ({"bandwidth": {"folder": "/tmp"}}, lambda made: made.bandwidth.folder == Path("/beegfs/.link")),
        ({"gc": {"grace": "1d"}}, lambda made: made.gc.grace == 30 * 86400.0),
        ({"gc": {"grace": "60d"}}, lambda made: made.gc.grace == 60 * 86400.0),
    ],
)
def test_what_stages_nothing_gets_the_sites_value_and_is_never_refused(
    place: Path, sections: dict[str, Any], kept: Callable[[Config], bool]
) -> None:
    said(place, SITE)
    assert kept(configured(place, {"staging": False}, **sections))


@pytest.mark.parametrize(
    ("own", "counts"),
    [
        (["svc-data"], ("svc-data",)),
        (["svc-data", "eve"], ("svc-data",)),
        (["eve"], ("svc-data", "1234")),
        ([], ("svc-data", "1234")),
    ],
)
def test_whom_readers_trust_is_in_both_lists(place: Path, own: list[str], counts: tuple[str, ...]) -> None:
    said(place, ACCOUNTS)
    target = {"owners": own} if own else {}
    assert configured(place, {"staging": False}, target=target).target.owners == counts


def test_a_site_that_was_tightened_stops_a_run_at_its_next_step_and_no_other_command(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    said(place, SITE)
    monkeypatch.chdir(tmp_path)
    configured(place, {"staging": False}, target={"root": str(tmp_path / "away")}, gc={"grace": "1s"})
    for words, code in (
        (["step", "plan", "d"], 2),
        (["audit"], 2),
        (["status"], 0),
        (["cancel"], 0),
        (["path"], 4),
        (["gate"], 4),
        (["releases"], 0),
    ):
        assert main(["--config", str(tmp_path / "my.yaml"), *words]) == code, words
        refusal = f"{place}, line {line_of('target.roots')}: target.roots there allows {tmp_path / 'root'}"
        assert (refusal in printable(capfd.readouterr().err)) is (code == 2), words


def test_accounts_that_the_site_does_not_trust_are_refused(place: Path) -> None:
    said(place, ACCOUNTS)
    assert configured(place).target.owners == ("svc-data", "1234")
    assert configured(place, target={"owners": [1234]}).target.owners == ("1234",)
    text = refused(place, target={"owners": ["svc-data", "eve"]})
    assert "target.owners (line " in text
    assert f"{place}, line 2: target.owners there allows svc-data, 1234" in text


def test_a_file_that_this_account_cannot_read_stops_all(place: Path) -> None:
    said(place, SITE)
    for above in place.parents:
        if above.stat().st_mode & 0o011 != 0o011:
            above.chmod(above.stat().st_mode | 0o011)
    place.chmod(0o600)
    with pytest.raises(ConfigError, match="the site's file cannot be used") as caught:
        forked(site.stored, uid=NOBODY)
    assert caught.value.why == "Permission denied"
    assert caught.value.where == str(place)
    assert "administrator" in caught.value.hint


@pytest.mark.parametrize("configuration", [True, False])
def test_a_selftest_is_bounded_too(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    configuration: bool,
) -> None:  # fmt: skip
    said(place, SITE)
    (tmp_path / "root").mkdir()
    (tmp_path / "away").mkdir()
    (tmp_path / "root/link").symlink_to(tmp_path / "away")
    monkeypatch.chdir(tmp_path)
    given = ["--config", str(tmp_path / "my.yaml")] if configuration else []
    if configuration:
        configured(place)
    for folder in ("away", "root/link"):
        assert main([*given, "selftest", str(tmp_path / folder)]) == 2
        told = capfd.readouterr().err
        assert f"the site allows no work in this folder [{tmp_path / folder}]" in told
        line = line_of("target.roots")
        assert (
            f"{place}, line {line}: target.roots there allows {tmp_path / 'root'} and /beegfs/other" in told
        )
        assert list((tmp_path / "away").iterdir()) == []
    loader.check_place(tmp_path / "root/below")


def test_a_link_to_elsewhere_is_no_allowed_root(place: Path, tmp_path: Path) -> None:
    said(place, SITE)
    (tmp_path / "root").mkdir()
    (tmp_path / "root/away").symlink_to(tmp_path)
    assert "target.root" in refused(place, target={"root": str(tmp_path / "root/away/other")})


@pytest.mark.parametrize("what", ["file", "folder"])
@pytest.mark.parametrize(("uid", "mode"), [(1234, 0o755), (0, 0o775), (0, 0o757)])
def test_a_file_that_others_may_change_stops_all(place: Path, what: str, uid: int, mode: int) -> None:
    said(place, SITE)
    path = place if what == "file" else place.parent
    os.chown(path, uid, uid)
    path.chmod(mode)
    text = refused(place)
    assert "the site's file does not count" in text
    assert f"chown 0:0 {path} && chmod go-w {path}" in text


def test_a_link_counts_by_where_it_leads_and_never_as_no_file(place: Path, tmp_path: Path) -> None:
    """A file that another tool puts there by a link, whose mount is gone, must not unbind the site."""
    said(place, SITE)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    place.rename(elsewhere / "site.yaml")
    place.symlink_to(elsewhere / "site.yaml")
    elsewhere.chmod(0o777)
    assert f"chown 0:0 {elsewhere} && chmod go-w {elsewhere}" in refused(place)
    (elsewhere / "site.yaml").unlink()
    assert f"it is a link to {elsewhere / 'site.yaml'}, which is not there" in refused(place)


def test_a_fifo_is_no_file_of_a_site_and_nobody_waits_for_it(place: Path) -> None:
    os.mkfifo(place, 0o644)
    assert "it is no plain file" in refused(place)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("target: {root: /a}\n", "target.root (line 1): unknown key; did you mean `roots`?"),
        ("target:\n  ops: many\n", 'target.ops (line 2): "many" is text; give operations a second'),
        ("target: [no]\n", "line 1"),
        ("gc: {ops: 5}\n", "gc.ops (line 1): unknown key; there are: grace"),
        ("a: *b\n", "line 1: aliases are not allowed"),
        ("bandwidth:\n  link: 5\n", "bandwidth.link"),
        ("bandwidth:\n  link: 5GB/s\n", "bandwidth"),
        ("cluster:\n  partitions: gpu\n", "give a list of partitions"),
    ],
)
def test_a_file_that_nobody_can_obey_stops_all(place: Path, text: str, words: str) -> None:
    place.write_text(text)
    assert words in refused(place)


def test_a_file_that_changed_is_compared_with_the_schema_anew(place: Path) -> None:
    said(place, SITE)
    configured(place)
    place.write_text("target: {rots: [/a]}\n")
    assert "unknown key" in refused(place)


def test_an_empty_file_bounds_nothing(place: Path) -> None:
    place.write_text("# nothing yet\n")
    assert configured(place).target.ops is None


def test_an_administrator_tries_the_file_and_a_draft_of_it_without_a_configuration(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["preflight", "--site"]) == 0
    assert f"{place}: not there: it binds nothing" in capfd.readouterr().out
    said(place, SITE + "  link_not: 1\n")
    assert main(["preflight", "--site"]) == 2
    assert f"[{place}]: gc.link_not (line {len(SITE.splitlines()) + 1}): unknown key" in printable(
        capfd.readouterr().err
    )
    draft = tmp_path / "draft.yaml"
    draft.write_text(ACCOUNTS + f"  roots: [{tmp_path}, /not/there]\n")
    os.chown(draft, 1234, 1234)
    assert main(["preflight", "--site", str(draft), "--json"]) == 0
    rows = json.loads(capfd.readouterr().out)["results"]
    assert [(row["about"], row["verdict"], row["found"].partition(" ")[0]) for row in rows] == [
        ("target.owners", "ok", "svc-data,"),
        ("target.owners", "warning", "svc-data"),
        ("target.roots", "ok", f"{tmp_path},"),
        ("target.roots", "warning", "/not/there"),
    ]
    assert rows[0]["found"] == "svc-data, 1234 (line 2)"
    draft.write_text("target: {roots: [/a]\n")
    assert main(["preflight", "--site", str(draft)]) == 2
    assert f"[{draft}]: line " in printable(capfd.readouterr().err)
    assert main(["preflight", "--site", str(tmp_path / "none")]) == 2
    assert main(["preflight", "data", "--site"]) == 2


def test_limit_needs_no_configuration_where_the_site_names_the_links_folder(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["limit", "1GB/s"]) == 2, "nobody says which link"
    place.write_text(f"bandwidth:\n  folder: {tmp_path}/link\n  link: 2GB/s\n")
    assert main(["limit", "1GB/s"]) == 0
    assert "by the cap file: 954 MiB/s (8 Gbit/s); by the configuration: 1.86 GiB/s" in capfd.readouterr().out
    assert (tmp_path / "link/cap").is_file()


def test_the_page_shows_each_key() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/site.md").read_text()
    example = yaml.safe_load(page.split("```yaml\n", 1)[1].split("```", 1)[0])
    assert validation.problems(example, site.SITE) == []
    wanted = {name: set(keys_of(key.below)) for name, key in keys_of(Bounds).items() if key.below}
    assert wanted == {name: set(keys) for name, keys in example.items()}


def test_the_command_obeys_the_file_in_etc_and_no_other(tmp_path: Path) -> None:
    """In a mount namespace with an /etc of its own; the environment says nothing of it."""
    etc = tmp_path / "etc"
    shutil.copytree(
        "/etc", etc, symlinks=True, ignore=lambda _, names: [n for n in names if n == "alternatives"]
    )
    (etc / "penstock").mkdir(exist_ok=True)
    (etc / "penstock/site.yaml").write_text("target:\n  roots: [/beegfs]\n")
    config = tmp_path / "my.yaml"
    config.write_text(f"target: {{root: {tmp_path / 'target'}}}\ndatasets: {{d: {{source: {tmp_path}}}}}\n")
    words = [sys.executable, "-m", "penstock", "--config", str(config), "preflight"]
    script = 'mount --bind "$1" /etc && shift && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", str(etc), *words],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "/etc/penstock/site.yaml, line 2: target.roots there allows /beegfs" in done.stderr


def test_a_new_configuration_names_a_partition_that_the_site_allows(
    place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said(place, "cluster:\n  partitions: [transfer, cpu]\n")
    tried: list[object] = []

    def refusing_the_first(config: ClusterConfig, steps: object, allowed: list[str]) -> NewOptions:
        tried.append(tuple(allowed))
        return NewOptions("cpu", default=False)

    monkeypatch.setattr(new_configuration, "new_options", refusing_the_first)
    made = new_configuration.propose(Asked("s3://b/p/", tmp_path, {}, "d", "slurm"), tmp_path / "my.yaml")
    assert tried == [("transfer", "cpu")]
    assert re.search("partition: cpu +# the only one that takes these jobs of those that the site", made.text)


def test_of_slurms_lines_a_note_of_a_new_configuration_has_the_first(
    place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def silent(config: ClusterConfig, steps: object, allowed: object) -> NewOptions:
        why = "scontrol: error: Unknown host; scontrol: error: no record; scontrol: fatal: no source"
        raise PreflightError("SLURM's controller does not answer", why=why)

    monkeypatch.setattr(new_configuration, "new_options", silent)
    made = new_configuration.propose(Asked("s3://b/p/", tmp_path, {}, "d"), tmp_path / "my.yaml")
    said = "SLURM's controller does not answer: scontrol: error: Unknown host"
    assert made.notes == (f"cluster.backend is local: {said}",)


def test_a_root_in_place_of_a_configuration_comes_with_the_sites_owners(place: Path, tmp_path: Path) -> None:
    assert target_at(tmp_path).owners == ()
    said(place, ACCOUNTS)
    assert target_at(tmp_path).owners == ("svc-data", "1234")
