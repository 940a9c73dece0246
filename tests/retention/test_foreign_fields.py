"""What other accounts write and commands print is escaped and bounded: no field forges a line of output,
steers a terminal or fills the screen (K3)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.accounts import give
from tests.support.forked import NOBODY

from penstock.cli.main import main
from penstock.jobs import shares

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.retention.conftest import Releases

    Plant = Callable[[Releases], None]

FORGED = "x\nFORGED\r\x1b[2JFORGED\x9b1mFORGED\u202eFORGED\u2028FORGED"
TEXT = FORGED + "A" * 30_000
MOST = 25_000
"""Characters of output."""
HOLDER = (
    "run", "command", "user", "host", "boot", "namespace", "start", "job", "restart", "nonce", "since",
    "cluster",
)  # fmt: skip
STATE = ("status", "gate", "path", "releases", "show")


def plant(path: Path, content: Any) -> None:
    """A file of another account; JSON unless it is text."""
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    give(path, NOBODY, NOBODY)


def pins(releases: Releases) -> None:
    """One for each field."""
    for field in ("release", "at", "user", "host", "program", "job", "cluster", "format"):
        said: dict[str, Any] = {
            "format": 1, "release": releases.names["b"], "at": "2026-01-01T00:00:00Z", "user": "u",
            "host": "h", "pid": 1, "program": "p", "job": "17" if field == "cluster" else "",
        }  # fmt: skip
        plant(releases.layout.pins / f"4000-x-{field}-0-aaaaaaaa-00000001", {**said, field: TEXT})
    plant(releases.layout.pins / FORGED, {**said, "format": 1})


def notices(releases: Releases) -> None:
    """Of other datasets, one for each field; of an older version, too."""
    said: dict[str, Any] = {
        "format": 1, "step": "copy", "since": "2026-01-01T00:00:00Z", "host": "h", "uid": NOBODY,
        "gid": NOBODY, "bytes": 1 << 20, "files": 1, "at_once": 2, "ops": 10, "pool": "p", "job": "1",
        "cluster": "c",
    }  # fmt: skip
    for field in said:
        folder_of_other = releases.layout.root / f"other-{field}"
        folder_of_other.mkdir()
        give(folder_of_other, NOBODY, NOBODY)
        plant(folder_of_other / "under-way.json", said | {field: TEXT[:2000]})
    releases.layout.promises.mkdir(mode=0o1777, exist_ok=True)
    for field in ("run", "dataset"):
        plant(releases.layout.promises / f"{NOBODY}-{field}", {"run": "r", "dataset": "other", field: TEXT})
    plant(releases.layout.promises / FORGED, {"run": "r"})


def lock(releases: Releases) -> None:
    plant(releases.layout.lock, {**dict.fromkeys(HOLDER, TEXT), "pid": TEXT})


def root_file(name: str, line: str) -> Plant:
    """A line feed ends a line of HOLD, and is a blank of PAUSE."""
    text = TEXT.replace("\n", " ").replace("\r", " ").replace("\u2028", " ")
    return lambda releases: plant_of_root(releases.layout.root / name, line.format(text))


def plant_of_root(path: Path, text: str) -> None:
    path.write_text(text)


def folder(where: Callable[[Releases], Path]) -> Plant:
    return lambda releases: (where(releases) / "data").mkdir(parents=True)


def changed(where: Callable[[Releases], Path], *keys: str, value: object = TEXT) -> Plant:
    """A document of the dataset's owner, who is another account to a reader."""

    def planted(releases: Releases) -> None:
        path = where(releases)
        document = json.loads(path.read_text())
        place = document
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value
        path.chmod(0o600)
        path.write_text(json.dumps(document))

    return planted


def verdict(*keys: str, value: object = TEXT) -> Plant:
    return changed(lambda there: there.layout.verdict(there.names["b"]), *keys, value=value)


def seal(*keys: str) -> Plant:
    return changed(lambda there: there.layout.release(there.names["b"]) / "release.json", *keys)


def history(releases: Releases) -> None:
    last = json.loads(releases.layout.history.read_text().splitlines()[-1])
    with releases.layout.history.open("a") as file:
        for field in last:
            file.write(json.dumps({**last, field: TEXT}) + "\n")


def file(releases: Releases) -> None:
    data = releases.layout.release(releases.names["b"]) / "data"
    data.chmod(0o750)
    (data / FORGED).touch()


PLANTS: dict[str, tuple[Plant, Sequence[str]]] = {
    "pins": (pins, ("status", "releases", "show", "gc")),
    "notices": (notices, ("status", "step plan", "gc")),
    "lock": (lock, ("status",)),
    "HOLD's reason": (root_file("HOLD", "data {}\n"), STATE),
    "HOLD's names": (root_file("HOLD", "{}\n"), STATE),
    "HOLD's many names": (
        lambda there: plant_of_root(there.layout.root / "HOLD", "none/x y\n" * 5000), STATE,
    ),
    "PAUSE": (root_file("PAUSE", "{}"), ("status", "releases")),
    "a release's name": (
        folder(lambda there: there.layout.releases / FORGED), ("status", "releases", "gc", "du"),
    ),
    "a staging's name": (
        folder(lambda there: there.layout.releases / f".{FORGED}.staging"),
        ("status", "releases", "gc", "du"),
    ),
    "a verdict's kinds": (verdict("findings", value={TEXT: 1}), STATE),
    "a verdict's release": (verdict("release"), STATE),
    "a verdict's seal": (verdict("seal"), STATE),
    "a verdict's status": (verdict("last", "status"), STATE),
    "history": (history, ("history", "show", "releases")),
    "a seal's dataset": (seal("dataset"), STATE),
    "a seal's run": (seal("run"), STATE),
    "a seal's version": (seal("penstock"), STATE),
    "a seal's format": (seal("format"), STATE),
    "a file's name": (file, ("audit", "gate", "status")),
}  # fmt: skip
WORDS = {
    "step plan": ("step", "plan", "data"), "du": ("du", "data"), "gc": ("gc", "data", "--dry-run"),
    "releases": ("releases",),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTS)
def test_what_other_accounts_wrote_forges_no_output(
    releases: Releases, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """K3."""
    planted, commands = PLANTS[name]
    releases.begin_with("ab")
    if name.startswith("a verdict"):
        assert main(["--config", str(releases.config), "audit", "data"]) == 0
        capsys.readouterr()
    planted(releases)
    for command in commands:
        status = main(["--config", str(releases.config), *WORDS.get(command, (command, "data"))])
        output = "".join(capsys.readouterr())
        assert status in (0, 3, 4), output[:3000]
        assert not [line for line in output.split("\n") if line.startswith(("FORGED", "  FORGED"))], output[
            :9000
        ]
        assert not set("\r\x1b\x9b\u202e\u2028").intersection(output), output[:9000]
        assert "bug in penstock" not in output, output[:9000]
        assert len(output) < MOST, (command, len(output), output[:3000])
    for text in shares.holders_of(releases.layout):
        assert text.isprintable()
        assert len(text) < 500
