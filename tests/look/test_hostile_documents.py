"""Something hostile in the place of each document of another account's dataset: every command ends soon, in
bounded memory, by an exit status of the table, and not by a traceback.

The dataset has two releases, an audit, a comparison of a tree, and a run that stopped before its permissions.
Commands run in forks of this process.
"""

from __future__ import annotations

import io
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.look.conftest import AFTER, BEFORE
from tests.support import warm
from tests.support.forked import NOBODY, forked
from tests.support.published import publish, published
from tests.support.staging_runs import tree
from tests.target.conftest import need_root

from penstock.cli.main import main
from penstock.config.settings import PermissionsConfig
from penstock.keep import audit_step
from penstock.run import adopt_step, copy_step, list_step, plan_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OWNER = 12345
SECONDS = 60
"""Of one command on a loaded machine: it takes 0.1 s."""
MEMORY = 350 << 10
"""KiB of one command, beside what this process has."""
TABLE = frozenset(range(8))

READS = (
    "audit data", "gate data", "path data", "describe data", "diff data A B", "show data B", "releases",
    "status", "history data", "du data",
)  # fmt: skip
OWNS = ("status", "gc data", "list data")
CHANGES = (
    "gc data",
    "plan data",
    "repair data",
    "rollback data",
    "cancel data",
    "throttle data 1",
    "remove data A",
    "sign data",
)


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def bomb(path: Path) -> None:
    """64 GiB of rows in 50 KB."""
    rows = pa.DictionaryArray.from_arrays(pa.array([0] * 65_536, pa.int32()), pa.array([b"x" * (1 << 20)]))
    pq.write_table(pa.table({"path": rows}), path)


def holding(content: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


def unreadable(path: Path) -> None:
    path.write_bytes(b"{}")
    path.chmod(0)


KINDS: dict[str, Callable[[Path], None]] = {
    "huge": huge,
    "many": holding(b'{"format": 1, "x": [' + b"[]," * 9_000_000 + b"[]]}"),
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "deep": holding(b"[" * 100_000),
    "folder": lambda path: path.mkdir(),
    "lines": holding(b"{}\n" * 1_000_000),
    "link": lambda path: path.symlink_to(f"{path.name}.away"),
    "digits": holding(b'{"format": ' + b"9" * 100_000 + b"}"),
    "unreadable": unreadable,
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with `config.yaml`, `source` and `target`."""
    need_root()
    warm.import_all()
    top = tmp_path_factory.mktemp("hostile")
    source = tree(top / "source", BEFORE)
    for_all = PermissionsConfig(file_mode=0o444, dir_mode=0o555)
    with published(top, source, permissions=for_all) as context:
        tree(source, {"changed": AFTER["changed"]})
        publish(context)
        audit_step.run(context, "data")
        adopt_step.run(context, "data", adopt_step.Request(tree(top / "copy", BEFORE)))
        tree(source, {"came": AFTER["came"]})
        for step in (list_step.run, plan_step.run, copy_step.run):
            step(context, "data")
    (top / "config.yaml").write_text(
        "datasets:\n"
        f'  data: {{source: "{source}", permissions: {{file_mode: "0444", dir_mode: "0555"}}}}\n'
        f'target: {{root: "{top}/target", owners: ["{OWNER}"], keep_free: 0}}\n'
    )
    return top


def documents(top: Path) -> Iterator[str]:
    """The path of one document of each sort, below `target`."""
    current = os.readlink(top / "target/data/current")
    met = set()
    for folder, _, names in os.walk(top / "target"):
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), top / "target")
            sort = re.sub(r"[0-9a-f]{6,}|[0-9TZ-]{5,}|(?<=reserve/)[0-9]+", "#", path)
            if "/data/" not in path.removeprefix("data") and sort not in met:
                met.add(sort)
                yield path
    yield from (".promises/x", "data/under-way.json", "data/under-way.repair.json", "data/pins/x")
    yield f"data/{current}/release.json.sig"
    for name in ("rollback.json", "cancelled.json", "root.json"):
        yield f"data/.penstock/{name}"


def copied(dataset: Path, tmp_path: Path, document: str, make: Callable[[Path], None]) -> Path:
    """A copy of the dataset, all of it OWNER's, with something else in this document's place."""
    top = tmp_path / "top"
    shutil.copytree(dataset, top, symlinks=True)
    top.chmod(0o755)
    config = (top / "config.yaml").read_text().replace(str(dataset), str(top))
    (top / "config.yaml").write_text(config)
    path = top / "target" / document
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.parent.stat().st_mode
    path.parent.chmod(mode | 0o200)
    if os.path.lexists(path):
        path.rename(path.with_name(f"{path.name}.away"))
    make(path)
    path.parent.chmod(mode)
    for folder, folders, names in os.walk(top):
        for name in (".", *folders, *names):
            os.lchown(os.path.join(folder, name), OWNER, OWNER)
    (top / "home").mkdir()
    (top / "home").chmod(0o777)
    return top


def calls(top: Path, commands: list[list[str]]) -> Iterator[tuple[int, str, float, int]]:
    """Commands in this process: of each its exit status, output, seconds, and memory in KiB that it took."""
    os.environ |= {"HOME": str(top / "home"), "XDG_STATE_HOME": str(top / "home")}
    del os.environ["PENSTOCK_AS_ROOT"]
    os.chdir(top)
    for words in commands:
        signal.alarm(2 * SECONDS)
        with open(top / "home" / f"output.{os.geteuid()}", "w+b") as output:
            for number in (1, 2):
                os.dup2(output.fileno(), number)
            raw = io.FileIO(1, "w", closefd=False)
            stream = io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)
            sys.stdout = sys.stderr = stream
            began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            status = main(words)
            stream.flush()
            output.seek(0)
            took = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            yield status, output.read().decode(errors="replace"), time.monotonic() - began, took


def check(top: Path, commands: tuple[str, ...], uid: int) -> None:
    current = os.path.basename(os.readlink(top / "target/data/current"))
    (before,) = {path.name for path in (top / "target/data/releases").iterdir() if path.name[0] != "."} - {
        current
    }
    words = [[{"A": before, "B": current}.get(word, word) for word in text.split()] for text in commands]
    answers = forked(lambda: list(calls(top, words)), uid=uid)
    for command, (status, output, seconds, memory) in zip(commands, answers, strict=True):
        assert status in TABLE, (command, output)
        assert "bug in penstock" not in output, (command, output)
        assert "Traceback" not in output, (command, output)
        assert output.strip() or not status, command
        assert seconds < SECONDS, (command, seconds)
        assert memory < MEMORY, (command, memory)


@pytest.fixture
def opened() -> Iterator[Path]:
    """A folder that every account reaches, apart from pytest's, whose modes change."""
    with tempfile.TemporaryDirectory(prefix="penstock-test-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_a_fifo_in_each_documents_place_keeps_nobody_waiting(dataset: Path, opened: Path) -> None:
    """A third of them: the kinds below take each one."""
    for number, document in enumerate(list(documents(dataset))[::3]):
        top = copied(dataset, opened, document, os.mkfifo)
        check(top, (CHANGES[number % len(CHANGES)],), OWNER)
        if ".penstock" not in document:
            check(top, (READS[number % len(READS)],), NOBODY)
        shutil.rmtree(top)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if kind in ("many", "endless", "link") else pytest.mark.thorough)
        for kind in KINDS
    ],
)
def test_whatever_stands_in_a_documents_place_every_command_ends(
    dataset: Path, opened: Path, kind: str
) -> None:
    """Each document meets one of the kinds."""
    for document in list(documents(dataset))[list(KINDS).index(kind) :: len(KINDS)]:
        make = bomb if kind == "many" and document.endswith(".parquet") else KINDS[kind]
        top = copied(dataset, opened, document, make)
        if ".penstock" not in document:
            check(top, ("audit data", "describe data", "diff data A B"), NOBODY)
        check(top, OWNS, OWNER)
        shutil.rmtree(top)


@pytest.mark.parametrize("kind", ["fifo", "endless", "huge", "folder"])
def test_a_lock_that_is_none_is_not_waited_for(dataset: Path, opened: Path, kind: str) -> None:
    make = {**KINDS, "fifo": os.mkfifo}[kind]
    for lock, command in (("lock", "gc data"), ("audit.lock", "repair data")):
        top = copied(dataset, opened, f"data/.penstock/{lock}", make)
        check(top, (command, "status"), OWNER)
        shutil.rmtree(top)


@pytest.mark.parametrize("name", ["manifest.parquet", "release.json"])
def test_a_fifo_in_a_releases_document_keeps_no_reader_waiting(
    dataset: Path, opened: Path, name: str
) -> None:
    current = os.readlink(dataset / "target/data/current")
    check(copied(dataset, opened, f"data/{current}/{name}", os.mkfifo), READS, NOBODY)


def test_a_manifest_of_terabytes_takes_little_memory(dataset: Path, opened: Path) -> None:
    current = os.readlink(dataset / "target/data/current")
    check(copied(dataset, opened, f"data/{current}/manifest.parquet", bomb), READS, NOBODY)


# Whole documents, with one field of another type ------------------------------------------

FOR_ALL_BELOW_A_ROOT = ("metrics --root target", "status", "releases --root target", "du --root target")
FOR_ONE = ("show data", "history data", "gate data", "gc data --dry-run")
VALUES = (
    None, True, 5, -1, 1 << 62, 1.5, 1e300, "", "x", "\0", "\ud800", "../..", "9" * 5000, "9" * 5000 + ".5",
    "\u0663.5", "0000-01-01T00:00:00Z", [], [1], ["x"], {}, {"x": 1}, {"\ud800": []},
)  # fmt: skip
RAW = (b"NaN", b"-Infinity", b"1e999", b"1" * 5000, b"[" * 100_000)
Place = tuple[str, int, tuple[Any, ...]]
"""A document below `target`, its line (of a document of lines), and the way to a value in it."""


@pytest.fixture(scope="module")
def beside_another(dataset: Path) -> Iterator[Path]:
    """The dataset, and beside it `well`, which is the same."""
    with tempfile.TemporaryDirectory(prefix="penstock-test-") as folder:
        os.chmod(folder, 0o755)
        top = copied(dataset, Path(folder), "data/.penstock/ended.json", holding(ENDED))
        shutil.copytree(top / "target/data", top / "target/well", symlinks=True)
        for below, folders, names in os.walk(top / "target/well"):
            for name in (".", *folders, *names):
                os.lchown(os.path.join(below, name), OWNER, OWNER)
        config = top / "config.yaml"
        config.write_text(
            config.read_text().replace("datasets:\n", f"datasets:\n  well: {{source: {top}}}\n")
        )
        yield top


ENDED = b'{"format": 1, "step": "copy", "exit": 1, "why": "", "at": 1.5, "user": "u", "host": "h"}'


def fields(value: object, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield way
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, member in [*inner][:40]:
        yield from fields(member, (*way, name))


def places(top: Path) -> list[Place]:
    """Every value of every JSON document of the dataset."""
    every = []
    for document in documents(top):
        path = top / "target" / document
        if path.suffix in (".json", ".jsonl") and path.exists():
            lines = path.read_bytes().splitlines() if path.suffix == ".jsonl" else [path.read_bytes()]
            every += [(document, n, way) for n, line in enumerate(lines) for way in fields(json.loads(line))]
    return every


def with_value(text: bytes, way: tuple[Any, ...], value: object) -> bytes:
    """The JSON text with this value in that place; bytes stand there as they are."""
    whole = [json.loads(text)]
    inner: Any = whole
    for name in (0, *way[:-1]) if way else ():
        inner = inner[name]
    inner[way[-1] if way else 0] = "@value@" if isinstance(value, bytes) else value
    text = json.dumps(whole[0]).encode()
    return text.replace(b'"@value@"', value) if isinstance(value, bytes) else text


def check_beside(top: Path, place: Place, value: object) -> None:
    """No command fails for `well`, whatever stands in `data`."""
    document, number, way = place
    path = top / "target" / document
    content, status, above = path.read_bytes(), path.stat(), path.parent.stat()
    lines = content.splitlines() if path.suffix == ".jsonl" else [content]
    lines[number] = with_value(lines[number], way, value)
    path.parent.chmod(above.st_mode | 0o200)
    path.chmod(0o644)
    try:
        path.write_bytes(b"\n".join(lines) + b"\n")
        commands = [text.split() for text in FOR_ALL_BELOW_A_ROOT + FOR_ONE]
        answers = forked(lambda: list(calls(top, commands)), uid=OWNER)
    finally:
        path.write_bytes(content)
        path.chmod(status.st_mode)
        path.parent.chmod(above.st_mode)
    for command, (code, output, _, _) in zip(FOR_ALL_BELOW_A_ROOT + FOR_ONE, answers, strict=True):
        assert code in TABLE, (command, output)
        assert "bug in penstock" not in output, (command, output)
        assert "Traceback" not in output, (command, output)
        assert command in FOR_ONE or re.search(
            r"(?m)^(?:[ !?~] )?well\b|dataset_readable.*well.* 1", output
        ), (
            command,
            output,
        )


@pytest.mark.parametrize(
    ("way", "value"),
    [
        (("by", "since"), 5),
        (("by", "pid"), 1 << 62),
        (("controller",), "9" * 5000 + ".5"),
        (("run",), "../../../data"),
        (("run",), "\0"),
    ],
)
def test_a_claim_of_other_types_is_no_claim(
    beside_another: Path, way: tuple[str, ...], value: object
) -> None:
    claims = sorted((beside_another / "target/data/.penstock/claims").iterdir())
    for path in claims:
        check_beside(beside_another, (os.path.relpath(path, beside_another / "target"), 0, way), value)


def test_a_receipt_of_other_types_counts_nothing(beside_another: Path) -> None:
    for place in places(beside_another):
        if "/receipts/copy/" in place[0] and place[2] == ("files",):
            check_beside(beside_another, place, ["x"])


@pytest.mark.parametrize("value", ["\0", "2026-02-30T00:00:00Z", "2026-01-31"])
def test_a_seal_with_a_time_that_is_none_is_damaged(beside_another: Path, value: str) -> None:
    current = os.readlink(beside_another / "target/data/current")
    check_beside(beside_another, (f"data/{current}/release.json", 0, ("evidence", "oldest_read")), value)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_a_field_of_another_type_ends_no_command_for_others(
    beside_another: Path, data: st.DataObject
) -> None:
    place = data.draw(st.sampled_from(places(beside_another)))
    check_beside(beside_another, place, data.draw(st.sampled_from((*VALUES, *RAW))))
