"""`penstock init`: what it writes is what preflight takes, and it writes over nothing."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.commands import PATIENCE, penstock
from tests.support.s3server import S3Server

from penstock.cli.main import main
from penstock.config import loader, new_file


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    (tmp_path / "images/a").write_bytes(b"1")
    (tmp_path / "target").mkdir()
    (tmp_path / "work").mkdir()
    return tmp_path


def init(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return penstock("--backend", "local", "init", *words, cwd=place / "work")


def test_a_dataset_is_staged_in_three_commands(place: Path) -> None:
    done = init(place, "../images", "../target")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == f"wrote {place}/work/penstock.yaml"
    assert "next: penstock preflight " in done.stdout
    for words in (("preflight",), ("run",)):
        after = penstock(*words, cwd=place / "work")
        assert after.returncode == 0, after.stderr
    published = Path(penstock("path", cwd=place / "work").stdout.strip())
    assert published.parent.parent == place / "target/images/releases"
    assert (published / "a").read_bytes() == b"1"


def test_it_is_short_and_every_line_is_a_key_or_a_comment(place: Path) -> None:
    init(place, str(place / "images"), str(place / "target"))
    text = (place / "work/penstock.yaml").read_text()
    assert len([line for line in text.splitlines() if not line.startswith("#")]) <= 12
    assert f"  root: {place}/target " in text
    assert re.search(r"# \w+ on /.*, .* free$", text, re.MULTILINE)
    config = loader.load(place / "work/penstock.yaml")
    assert config.target.root == place / "target"
    assert list(config.datasets) == ["images"]
    assert config.cluster.backend == "local"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("../image", "the source is not there; did you mean images? [{place}/image]"),
        ("../imags/a", "the source is not there; did you mean images? [{place}/imags/a]"),
        ("../images/a/b", "the source is not there [{place}/images/a/b]"),
        ("file://{place}/image", "did you mean images? [{place}/image]"),
        # No user has such a home, so the name stays as it is.
        ("~no-such-user/x", "the source is not there [{place}/work/~no-such-user/x]"),
    ],
)
def test_a_source_that_is_not_there_is_refused_with_the_nearest_name(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    source: str,
    said: str,
) -> None:
    monkeypatch.chdir(place / "work")
    assert main(["init", source.format(place=place), "../target"]) == 2
    assert said.format(place=place) in capsys.readouterr().err
    assert not list((place / "work").iterdir())


def test_a_target_below_folders_that_are_not_there_is_a_warning(place: Path) -> None:
    done = init(place, "../images", "../no/such/target")
    assert f"  target    {place}/no/such/target: not there yet, " in done.stdout
    assert f"warning: {place}/no/such/target is not there, nor is {place}/no/such ({place} is)" in done.stdout
    assert "warning" not in init(place, "--config", "new.yaml", "../images", "../new").stdout


def test_who_will_be_able_to_read_is_said_with_the_key_that_changes_it(place: Path) -> None:
    done = init(place, "../images", "../target")
    assert re.search(
        r"^  readers   \w+ alone: /.* \(mode 0700\) lets nobody else in$", done.stdout, re.MULTILINE
    )
    assert "    # permissions: {group: NAME}" in (place / "work/penstock.yaml").read_text()


@pytest.mark.parametrize("name", ["penstock.yaml", "mine.yaml"])
def test_a_file_that_is_there_stays(place: Path, name: str) -> None:
    for make in (lambda path: path.write_text("x"), lambda path: path.symlink_to("nowhere")):
        path = place / "work" / name
        make(path)
        before = os.lstat(path)
        words = [] if name == "penstock.yaml" else ["--config", name]
        done = init(place, *words, str(place / "images"), str(place / "target"))
        assert done.returncode == 2
        assert f"it stays as it is [{place}/work/{name}]" in done.stderr
        assert "--config FILE" in done.stderr
        assert os.lstat(path) == before
        path.unlink()


def test_it_is_written_where_it_counts(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CONFIG", str(place / "named.yaml"))
    assert init(place, str(place / "images"), str(place / "target")).returncode == 0
    assert (place / "named.yaml").exists()
    assert penstock("preflight", cwd=place / "work").returncode == 0
    done = init(place, "--config", "no/folder.yaml", str(place / "images"), str(place / "target"))
    assert done.returncode == 2
    assert f"the folder of the configuration is not there [{place}/work/no]" in done.stderr
    assert not list((place / "work").iterdir())


def test_a_config_yaml_that_counts_no_more_is_named(place: Path) -> None:
    (place / "work/config.yaml").write_text("target: {root: /x}\n")
    done = init(place, str(place / "images"), str(place / "target"))
    assert "config.yaml counts no more in this folder: penstock.yaml goes before it" in done.stdout


@pytest.mark.parametrize(("umask", "mode"), [(0o027, 0o640), (0o002, 0o664), (0o077, 0o600)])
def test_the_file_has_the_mode_that_the_umask_leaves(place: Path, umask: int, mode: int) -> None:
    words = ("--backend", "local", "init", str(place / "images"), str(place / "target"))
    subprocess.run(
        [sys.executable, "-m", "penstock", *words], cwd=place / "work", umask=umask, check=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE,
    )  # fmt: skip
    [made] = (place / "work").iterdir()
    assert made.stat().st_mode & 0o7777 == mode


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "SOURCE and TARGET are missing"),
        (("/images",), "TARGET is missing"),
        (("", "/target"), "SOURCE is missing"),
    ],
)
def test_without_a_terminal_what_is_missing_is_named(place: Path, words: tuple[str, ...], said: str) -> None:
    done = init(place, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "init SOURCE TARGET`, such as `" in done.stderr
    assert not list((place / "work").iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ("s3://AKIA:hush@bucket/a/", "{target}"),
        ("https://x.example/a/?X-Amz-Signature=hush", "{target}"),
        ("s3://bucket/a/", "{target}", "--endpoint", "https://me:hush@s3.example"),
    ],
)
def test_a_secret_is_refused_and_not_repeated(place: Path, words: tuple[str, ...]) -> None:
    done = init(place, *(word.format(target=place / "target") for word in words))
    assert done.returncode == 2
    assert "secrets do not belong in this file" in done.stderr
    assert "hush" not in done.stderr + done.stdout
    assert not list((place / "work").iterdir())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("s3://bucket/a", "s3://bucket/b"), 'TARGET "s3://bucket/b" is no folder'),
        (("s3:///a", "{target}"), "names no bucket"),
        (("s3://b/a", "{target}", "--name", "all"), "is taken by the workflow"),
        (("s3://b/a", "{target}", "--name", "a/b"), "datasets.a/b"),
        (("s3://b/a", "{target}", "--endpoint", "s3.example"), "a server's URL"),
        (("{images}", "{target}", "--anon"), '--anon says nothing of "/'),
        (
            ("{images}", "{target}", "--profile", "x", "--endpoint", "u"),
            "--endpoint and --profile say nothing",
        ),
        (("$HOME/x", "{target}"), 'SOURCE "$HOME/x" has a variable'),
        (("{images}", "$NOWHERE/x"), 'TARGET "$NOWHERE/x" has a variable'),
        (("s3:/bucket/x", "{target}"), 'SOURCE "s3:/bucket/x" is no URL: write s3://bucket/x '),
        (("{images}", "s3:bucket"), 'TARGET "s3:bucket" begins as a URL'),
        (("ann@nas:data", "{target}"), "write sftp://ann@nas/FOLDER"),
        (("https://x.example/a/", "{target}", "--profile", "team"), "--profile says nothing of"),
    ],
)
def test_what_makes_no_configuration_is_refused(place: Path, words: tuple[str, ...], said: str) -> None:
    there = {"target": place / "target", "images": place / "images"}
    done = init(place, *(word.format(**there) for word in words))
    assert done.returncode == 2
    assert said in done.stderr
    assert "(line" not in done.stderr
    assert not list((place / "work").iterdir())


def test_what_is_missing_is_asked_for_on_a_terminal_until_it_can_be_used(place: Path) -> None:
    ours, theirs = pty.openpty()
    words = (sys.executable, "-m", "penstock", "--backend", "local", "init")
    shown = b""
    with subprocess.Popen(
        words, cwd=place / "work", stdin=theirs, stderr=theirs, stdout=subprocess.PIPE
    ) as process:
        os.close(theirs)
        answers = (
            (b"SOURCE", "penstock init ../images ../target"),
            (b"SOURCE", place / "images"),
            (b"TARGET", "s3://bucket/x"),
            (b"TARGET", place / "target"),
        )
        for what, answer in answers:
            said = b""
            while not re.search(what + rb", such as \S+: $", said):
                said += os.read(ours, 1000)
            shown += said
            os.write(ours, f"{answer}\n".encode())
        out, _ = process.communicate(timeout=PATIENCE)
    os.close(ours)
    assert process.returncode == 0, out
    assert b"the source is not there [" in shown
    assert b"is no folder" in shown
    assert loader.load(place / "work/penstock.yaml").target.root == place / "target"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_at_the_question_ends_it(place: Path, number: signal.Signals) -> None:
    ours, theirs = pty.openpty()
    words = (sys.executable, "-m", "penstock", "init")
    with subprocess.Popen(
        words, cwd=place / "work", stdin=theirs, stderr=theirs, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        os.close(theirs)
        said = b""
        while b"SOURCE, such as" not in said:
            said += os.read(ours, 1000)
        process.send_signal(number)
        assert process.wait(PATIENCE) == 128 + number
    os.close(ours)
    assert not list((place / "work").iterdir())


def test_a_public_bucket_works_by_two_flags(place: Path) -> None:
    (place / "objects/train").mkdir(parents=True)
    (place / "objects/train/x").write_bytes(b"1")
    with S3Server(place / "objects") as server:
        words = (server.url("train/"), str(place / "target"), "--endpoint", server.endpoint, "--anon")
        done = init(place, *words)
        assert done.returncode == 0, done.stderr
        after = penstock("preflight", cwd=place / "work")
        assert after.returncode == 0, after.stderr


def test_the_group_is_the_folders_where_its_setgid_bit_says_so(place: Path) -> None:
    group = os.getgroups()[0] if os.getgroups() else os.getegid()
    os.chown(place / "target", -1, group)
    for mode, named in ((0o2755, True), (0o755, False)):
        (place / "target").chmod(mode)
        assert init(place, str(place / "images"), str(place / "target")).returncode == 0
        config = loader.load(place / "work/penstock.yaml")
        assert (config.datasets["images"].permissions.group is not None) is named
        assert penstock("preflight", cwd=place / "work").returncode == 0
        (place / "work/penstock.yaml").unlink()


def test_a_name_that_is_taken_below_the_target_gets_a_number(place: Path) -> None:
    (place / "target/images").mkdir()
    done = init(place, str(place / "images"), str(place / "target"))
    assert f"{place}/target/images is there already: --name images goes on with that dataset" in done.stdout
    assert list(loader.load(place / "work/penstock.yaml").datasets) == ["images-2"]
    (place / "work/penstock.yaml").unlink()
    init(place, str(place / "images"), str(place / "target"), "--name", "images")
    assert list(loader.load(place / "work/penstock.yaml").datasets) == ["images"]


def test_slurm_that_is_asked_for_and_is_not_here_stops(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    words = ("init", str(place / "images"), str(place / "target"))
    done = penstock("--backend", "slurm", *words, cwd=place / "work")
    assert done.returncode == 3
    assert "SLURM's commands are not on this machine" in done.stderr
    assert not list((place / "work").iterdir())
    done = penstock(*words, cwd=place / "work")
    assert "  cluster   local\n" in done.stdout
    assert "note" not in done.stdout


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("s3://bucket/imagenet/", "imagenet"),
        ("s3://bucket/imagenet/train.tar", "train.tar"),
        ("s3://bucket/", "bucket"),
        ("s3://bucket", "bucket"),
        ("abfs://container@account.dfs.core.windows.net/", "container"),
        ("https://data.example.org:8443/", "data.example.org"),
        ("https://data.example.org/My%20Data/", "My-20Data"),
        ("sftp://me@host/", "host"),
        ("/nfs/ct scans (2026)", "ct-scans-2026"),
        ("/nfs/.hidden", "hidden"),
        ("/nfs/Datensätze", "Datensatze"),
        ("/nfs/資料", "data"),
        ("/", "data"),
        ("/nfs/all", "all-2"),
        ("/nfs/" + "x" * 200, "x" * 64),
    ],
)
def test_the_name_is_made_of_the_sources_last_folder(source: str, name: str) -> None:
    assert new_file.dataset_name(source, lambda _: False) == name
    assert new_file.dataset_name(source, {name}.__contains__) not in (name, "")
    assert len(new_file.dataset_name(source, {name}.__contains__)) <= 64


@pytest.mark.parametrize(
    "source",
    [
        "/a: b",
        "/a #b",
        "/it's",
        '/say "x"',
        "/back\\slash",
        "/{a}",
        "/[a]",
        "/ü/資料/😀",
        "/%TAG",
        "/a,b",
        "/~x",
        "/- x",
    ],
)
def test_any_path_is_written_as_what_it_is(source: str) -> None:
    for name in ("2024", "1e5", "no", "plain"):
        file = new_file.NewFile(source, f"{source}/t", name, {}, "odd \n kind", None, ())
        config = loader.load_text(file.text().replace("cluster:\n", ""), "x.yaml")
        assert str(config.target.root) == f"{source}/t"
        assert config.datasets[name].sources[0].url == source


def test_two_at_once_write_one_file(place: Path) -> None:
    words = [sys.executable, "-m", "penstock", "--backend", "local", "init"]
    started = [
        subprocess.Popen(
            [*words, str(place / "images"), str(place / "target"), "--name", f"d{number}"],
            cwd=place / "work", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]  # fmt: skip
    outs = [process.communicate(timeout=PATIENCE) for process in started]
    assert sorted(process.returncode for process in started) == [0, 2, 2, 2], outs
    [winner] = [number for number, process in enumerate(started) if process.returncode == 0]
    assert list(loader.load(place / "work/penstock.yaml").datasets) == [f"d{winner}"]
    assert [path.name for path in (place / "work").iterdir()] == ["penstock.yaml"]
