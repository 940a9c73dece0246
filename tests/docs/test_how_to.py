"""The how-to pages: every block is run, or read by what penstock reads such a block with.

What becomes of a block goes by the word behind its fence (`KINDS`); `ELSEWHERE` has each exception, by page
and first words, with its reason. All commands, those in sentences and tables too, pass the real parser. The
tutorial's are run by tests/docs/test_page.py and tests/slurm/test_tutorial.py.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml
from tests.cli.test_examples import commands_in
from tests.cluster.machine import remove
from tests.cluster.place import job_user
from tests.docs import page
from tests.support import aws_services, schedule
from tests.support.s3server import S3Server

from penstock.cli import argument_parser
from penstock.config import loader
from penstock.config.annotations import keys_of
from penstock.config.settings import Config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FOLDER = Path(__file__).resolve().parents[2] / "docs/how-to"
PAGES = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.md"))}
RUN, CRON, AGAIN, CONFIG, SITE, PROFILE, POLICY, SCRIPT, SLURM, PARSED = (
    "run", "run as cron does", "run behind each configuration", "loaded, then used",
    "loaded as the site's file, then used", "used by the commands behind it", "read as JSON",
    "written to train.sh", "run by tests/slurm/test_how_to.py", "parsed",
)  # fmt: skip
KINDS = {"sh": RUN, "": CRON, "yaml": CONFIG, "ini": PROFILE, "json": POLICY}
FILES = {SITE: "site.yaml.new", PROFILE: "~/.aws/config"}
ROOT, VENDOR, ON_SLURM = (PARSED, "needs root"), (PARSED, "needs such a file system"), (SLURM, "needs SLURM")
ELSEWHERE = {
    ("beegfs", "penstock"): VENDOR,
    ("coming-from", "penstock init"): (PARSED, "without-slurm.md has the same commands"),
    ("first-set-up", "groupadd"): ROOT,
    ("first-set-up", "penstock selftest"): (PARSED, "a minute; tests/filesystems/test_selftest.py runs it"),
    ("first-set-up", "target:\n  roots"): (SITE, ""),
    ("first-set-up", "install -D"): ROOT,
    ("first-set-up", "penstock preflight\n"): ON_SLURM,
    ("first-set-up", "MAILTO"): ON_SLURM,
    ("first-set-up", "#SCRON"): ON_SLURM,
    ("nightly-audits", "#SCRON"): ON_SLURM,
    ("offline", "make wheels"): (PARSED, "tests/workflow/test_wheels.py runs the lines of install.md"),
    ("offline", "penstock --backend local"): (PARSED, "without-slurm.md has the same command"),
    ("offline", "penstock run --submit"): ON_SLURM,
    ("s3-role", "penstock preflight"): (AGAIN, ""),
    ("several-teams", "groupadd"): ROOT,
    ("several-teams", "target:\n  roots"): (SITE, ""),
    ("training-job", "#!/bin/bash"): (SCRIPT, ""),
    ("training-job", "data="): (PARSED, "needs Apptainer"),
    ("training-job", ""): ON_SLURM,
    ("weka", "penstock"): VENDOR,
    ("without-slurm", "penstock --backend slurm"): ON_SLURM,
}
CHAINS = (("without-slurm", "new-data", "nightly-audits", "several-teams"),
          ("publish-a-tree", "first-set-up", "offline"), ("s3-role",))  # fmt: skip
"""What a page publishes, those behind it use."""
KEYS = "aws_access_key_id = role\\naws_secret_access_key = s3cret\\n"
PREPARED = {
    "new-data": "head -c 20000 /dev/urandom >/source/imagenet/train/7.tar",
    "publish-a-tree": "cp -a /source/coco /scratch/old; cd /scratch/old/coco\n"
    "rm train/1.tar; echo x >train/2.tar; echo x >NOTES; cd - >/dev/null",
    "s3-role": f"umask 077; mkdir -p ~/.config/penstock; printf '{KEYS}' >~/.config/penstock/s3\n"
    "rm ~/.aws/config; chmod +x /usr/local/bin/fetch-keys\n"
    "printf '[staging-keys]\\naws_access_key_id = A\\naws_secret_access_key = B\\n' >~/.aws/credentials",
}  # fmt: skip
PLACES = ("/beegfs/", "/scratch/", "/source/", "/srv/", "/var/lib/node-exporter", "/data/outgoing",
          "/run/secrets/", "/usr/local/bin/fetch-keys")  # fmt: skip


def blocks(name: str) -> Iterator[tuple[page.Block, str]]:
    """Each block of a page, and what becomes of it."""
    for block in page.blocks(PAGES[name], tuple(KINDS)):
        exceptions = (
            what for (where, begin), (what, _) in ELSEWHERE.items()
            if where == name and block.commands.startswith(begin) and (begin or block.kind == "sh")
        )  # fmt: skip
        yield block, next(exceptions, KINDS[block.kind])


def over(values: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = {key: over(values[key], value) if isinstance(values.get(key), dict) else value
              for key, value in above.items()}  # fmt: skip
    return {**values, **merged}


def configuration(name: str, block: str = "", **more: Any) -> dict[str, Any]:
    """What a page's block says, over the least that a configuration has, and `more` of its dataset."""
    dataset, root = ("coco", "/scratch") if name == "publish-a-tree" else ("imagenet", "/beegfs")
    datasets = {dataset: {"source": f"s3://bucket/{dataset}/", **more}}
    return over({"target": {"root": f"{root}/datasets"}, "datasets": datasets}, yaml.safe_load(block) or {})


class Scene(NamedTuple):
    """The folders and servers in place of those of the pages."""

    top: Path
    endpoint: str
    group: str
    on_slurm: bool

    def here(self, text: str) -> str:
        for place in PLACES:
            text = text.replace(place, f"{self.top}{place}")
        text = text.replace("/data/datasets", f"{self.top}/beegfs/datasets")
        return text.replace("/opt/penstock/current/bin", str(page.BIN))

    def file(self, path: str, text: str, how: str = ">") -> str:
        return f"cat {how}{path} <<'PUT'\n{self.here(text).rstrip()}\nPUT\n"

    def configured(self, name: str, block: str = "") -> str:
        block = block.replace("group: datasets", f"group: {self.group}").replace("transfer", "data")
        if self.on_slurm:
            more = {"storage_options": {"endpoint_url": self.endpoint, "anon": True}}
            values = configuration(name, block, permissions={"group": self.group}, **more)
            # A job that waits reads the file when it starts.
            wait = 'until [ -z "$(squeue -h)" ]; do sleep 0.5; done\n'
            return wait + self.file("penstock.yaml", json.dumps({"cluster": {"backend": "slurm"}, **values}))
        values = configuration(name, block)
        if values.get("cluster", {}).get("backend") == "slurm":
            del values["cluster"]
        return self.file("penstock.yaml", json.dumps(values))

    def session(self, name: str, wanted: Sequence[str]) -> Iterator[page.Block]:
        """The blocks of a page as commands, in a working directory of its own."""
        begin = f"cd {self.top}; mkdir -p ~/.aws {{beegfs,scratch}}/datasets scratch/old data/outgoing\n"
        begin += f"mkdir -p srv/{name}; cd srv/{name}\n"
        if not self.on_slurm:
            begin += f"printf '[default]\\nendpoint_url = {self.endpoint}\\n{KEYS}' >~/.aws/config\n"
            begin += self.here(PREPARED.get(name, "")) + "\n"
        begin += "" if name == "without-slurm" and not self.on_slurm else self.configured(name)
        for script in (block.commands for block, what in blocks(name) if what == SCRIPT):
            begin += self.file("train.sh", script)
        again = "".join(block.commands for block, what in blocks(name) if what == AGAIN)
        yield page.Block("", 0, begin)
        for block, what in blocks(name):
            text = self.here(block.commands.replace("/srv/staging", f"/srv/{name}"))
            if what in FILES:
                text = self.file(FILES[what], block.commands, ">>")
            elif what == CONFIG:
                text = self.configured(name, block.commands) + again
            elif not block.kind:
                text = schedule.commands(text)
            if what in (CONFIG, *FILES, *wanted):
                yield page.Block(block.section, block.line, text, block.kind, block.shown)


@contextmanager
def scene(folder: str = "/tmp", *, on_slurm: bool = False) -> Iterator[Scene]:
    account, top = pwd.getpwnam(job_user()), Path(tempfile.mkdtemp(prefix="how-to-", dir=folder))
    try:
        for made in ("beegfs", "scratch", "var/lib/node-exporter", "run/secrets/aws", "usr/local/bin"):
            (top / made).mkdir(parents=True)
        for train in (top / "source/imagenet/train", top / "source/coco/train"):
            train.mkdir(parents=True)
            for number in range(1, 41):
                (train / f"{number}.tar").write_bytes(os.urandom(20_000))
        (top / "run/secrets/aws/token").write_text("token")
        helper = top / "usr/local/bin/fetch-keys"
        helper.write_text(f"#!/bin/sh\necho '{json.dumps({'Version': 1, **aws_services.KEYS})}'\n")
        for path in (top, *top.rglob("*")):
            os.chown(path, account.pw_uid, account.pw_gid)
        top.chmod(0o755)
        key, secret = ("", "") if on_slurm else ("role", "s3cret")
        with S3Server(top / "source", options=["--checksums"], access_key=key, secret_key=secret) as store:
            yield Scene(top, store.endpoint, grp.getgrgid(account.pw_gid).gr_name, on_slurm)
    finally:
        remove(top)


def ran(at: Scene, wanted: Sequence[str], env: Mapping[str, str], names: Sequence[str], **how: Any) -> None:
    """Run these blocks of the pages, and compare what they print with what the pages show."""
    for name in names:
        session = list(at.session(name, wanted))
        printed = page.run(session, name, env={"HOME": str(at.top / "home" / name), **env}, **how)
        for block, output in zip(session, printed, strict=True):
            shown = page.normal(PAGES[name][slice(*block.shown)]) if block.shown else ""
            rest = page.normal(output.replace(f"{at.top}/", "/"))
            for part in filter(None, re.split(r"^ *\.\.\.$", shown, flags=re.MULTILINE)):
                _, there, rest = rest.partition(part.strip("\n"))
                assert there, f"{name}.md, line {block.line}, shows {part}\nThis was printed: {output}"


def test_the_pages_commands_run() -> None:
    with scene() as at, aws_services.serving() as address:
        env = dict.fromkeys(("AWS_ENDPOINT_URL_STS", "AWS_EC2_METADATA_SERVICE_ENDPOINT"), address)
        env["AWS_ENDPOINT_URL_S3"] = at.endpoint
        with ThreadPoolExecutor() as pool:
            list(pool.map(partial(ran, at, (RUN, CRON), env), CHAINS))


def test_no_block_is_left_out() -> None:
    for name, text in PAGES.items():
        assert name in sum(CHAINS, ()) or not {RUN, CRON} & {what for _, what in blocks(name)}
        shown = [block.kind for block, _ in blocks(name) if block.shown]
        assert shown == ["sh"] * text.count("```text"), name
        assert len(list(blocks(name))) + len(shown) == text.count("\n```") / 2, name
    for (name, begin), (what, why) in ELSEWHERE.items():
        assert what != PARSED or why
        assert any(block.commands.startswith(begin) for block, _ in blocks(name)), (name, begin)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_short_and_begins_with_a_command(name: str) -> None:
    assert len(PAGES[name].split()) <= 600
    begin = PAGES[name].partition("\n```")[0].split("\n", 1)[1]
    assert len(re.findall(r"[.:](?:\s|$)", begin)) <= 2, begin


@pytest.mark.parametrize("name", PAGES)
def test_commands_and_configurations_are_taken(name: str, tmp_path: Path) -> None:
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", PAGES[name], flags=re.DOTALL))
    lines = [*filter(re.compile("penstock ").match, spans)]
    for block, what in blocks(name):
        if what == CONFIG:
            loader.load_text(json.dumps(configuration(name, block.commands)), "penstock.yaml")
        elif what == SITE:
            (tmp_path / "site.yaml").write_text(block.commands)
            assert loader.site_file(tmp_path / "site.yaml")
        elif what == POLICY:
            assert json.loads(block.commands)["Statement"]
        elif block.kind in ("sh", ""):
            subprocess.run(["bash", "-n"], input=block.commands if block.kind else "", text=True, check=True)
            lines += block.commands.replace("/opt/penstock/current/bin/", "").splitlines()
    for line in lines:
        for words in commands_in(re.sub(r"\$\w+", "1", re.sub(r"(^| +)#.*| 2?>.*", "", line))):
            argument_parser.build().parse_args([word for word in words if word != "&"])
    for text in filter(re.compile(r"[a-z_]+: \S").match, spans):
        ((key, value),) = yaml.safe_load(text).items()
        above = {key: value} if key in keys_of(Config) else {"datasets": {"imagenet": {key: value}}}
        loader.load_text(json.dumps(over(configuration(""), above)), "penstock.yaml")
