"""Each file's permissions are looked at once: where publish looks at its times. What differs is set there."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.standing import begin
from tests.support.whole_way import FILES, content, go, texts
from tests.target.conftest import need

from penstock.config.settings import ModeRule, PermissionsConfig
from penstock.core import posix_acl
from penstock.core.errors import FailedError
from penstock.dataset import receipts, run_store
from penstock.fs import owners
from penstock.run import publish_step
from penstock.run.publish_step import seal_staging
from penstock.tables.run_tables import giants

if TYPE_CHECKING:
    from penstock.dataset.context import Context
    from penstock.run.reconciliation import Deviations

STANDING = True
ACL = PermissionsConfig(file_mode=0o440, acl=("group:4242:r-X",), modes=(ModeRule("deep/", file=0o400),))
SCRIPT = """
import sys
from pathlib import Path
from tests.support.whole_way import go, staging
from tests.run.test_file_permissions import ACL
from penstock.config.settings import PermissionsConfig

folder, after, upto, acl = Path(sys.argv[1]), *sys.argv[2:]
permissions = ACL if acl == "acl" else PermissionsConfig()
with staging(folder, folder / "source", permissions=permissions) as context:
    go(context, after=after, upto=upto)
"""


def with_permissions(context: Context, permissions: PermissionsConfig) -> None:
    data = replace(context.config.datasets["data"], permissions=permissions)
    context.config = replace(context.config, datasets={"data": data})


def released(context: Context) -> dict[str, int]:
    data = context.layout("data").current / "data"
    return {name: stat.S_IMODE((data / name).lstat().st_mode) for name in FILES}


def ctimes(data: Path) -> dict[str, int]:
    return {name: (data / name).stat().st_ctime_ns for name in FILES}


@pytest.mark.parametrize("acl", ["none", "acl"])
def test_no_file_is_looked_at_twice(tmp_path: Path, source: Path, acl: str) -> None:
    """Over permissions and publish, but for the giant, which permissions sets. `fstat` counts, too."""
    strace, trace = need("strace"), tmp_path / "trace"
    count: Counter[str] = Counter()
    for after, upto in (
        ("", "copy"),
        ("copy", "permissions"),
        ("permissions", "verify"),
        ("verify", "publish"),
    ):
        words = [sys.executable, "-c", SCRIPT, str(tmp_path), after, upto, acl]
        traced = upto in ("permissions", "publish")
        before = [strace, "-f", "-qq", "-y", "-o", str(trace), "-e", "trace=%%stat"] if traced else []
        subprocess.run([*before, *words], check=True, cwd=Path(__file__).parents[2])
        if traced:
            # Both kinds of calls: of a name in an open folder, and of an open file.
            names = re.findall(
                r'(?:<[^>]*/data(?:/[^>]*)?>, "|<[^>]*/data/(?:\S*/)?)(\w+)[">]', trace.read_text()
            )
            count.update(names)
    leaves = {name.rpartition("/")[2] for name in ("a/one", "a/two", "b", "deep/er/and/deeper", "z")}
    assert {name: count[name] for name in leaves} == dict.fromkeys(leaves, 1)


@pytest.mark.parametrize("upto", ["copy", "verify"])
def test_a_file_with_another_mode_is_set_and_its_shard_verified_again(
    context: Context, source: Path, upto: str
) -> None:
    begin(context, upto=upto)
    run = run_store.open_run(context.layout("data"))
    (run.data / "a/two").chmod(0o666)
    go(context, after=upto, upto="verify")
    before = {index: receipts.element(run.folder, "verify", index) for index in run.indices}
    times = ctimes(run.data)
    go(context, after="verify")
    assert set(released(context).values()) == {0o440}
    assert content(context.layout("data").current / "data") == content(source)
    assert any('permissions: "a/two": it has mode 0666' in text for text in texts(context))
    done = receipts.step(run.folder, "permissions")
    assert done is not None
    assert done["changed_files"] == 1
    after = {index: receipts.element(run.folder, "verify", index) for index in run.indices}
    assert len([index for index in run.indices if after[index] != before[index]]) == 1
    # No other file was touched.
    moved = ctimes(context.layout("data").current / "data")
    assert {name for name in FILES if moved[name] != times[name]} == {"a/two"}


def test_a_giant_that_contradicts_its_source_is_copied_before_permissions_are_set(
    context: Context, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One walk finds both: a copy that is not complete cannot be closed."""
    begin(context, upto="verify")
    run = run_store.open_run(context.layout("data"))
    (run.data / "b").chmod(0o666)
    walks: list[Deviations] = []

    def walk(*args: Any, **options: Any) -> Deviations:
        walks.append(deviations := seal_staging(*args, **options))
        if len(walks) == 1:
            held = tuple(index for index in run.indices if giants(run.folder.shard(index)))
            deviations.add("contradicted", "giant", held)
            deviations.wrong["giant"] = held
        return deviations

    monkeypatch.setattr(publish_step, "seal_staging", walk)
    assert go(context, after="verify")["published"]
    assert [set(deviations.counts) for deviations in walks] == [
        {"contradicted", "permissions", "touched"},
        {"permissions"},
        set(),
    ]
    assert set(released(context).values()) == {0o440}
    assert content(context.layout("data").current / "data") == content(source)


def test_a_linked_file_with_another_mode_is_never_changed(context: Context, source: Path) -> None:
    begin(context)
    (source / "new").write_bytes(b"new")
    go(context, upto="verify")
    run = run_store.open_run(context.layout("data"))
    assert (run.data / "z").stat().st_nlink == 2
    (run.data / "z").chmod(0o444)
    with pytest.raises(FailedError, match="shared with another release") as caught:
        go(context, after="verify")
    assert "mode 0444" in caught.value.why
    assert stat.S_IMODE((run.data / "z").stat().st_mode) == 0o444


def test_another_acl_is_found_and_set(context: Context) -> None:
    with_permissions(context, ACL)
    begin(context, upto="verify")
    run = run_store.open_run(context.layout("data"))
    os.removexattr(run.data / "a/one", owners.ACCESS)
    (run.data / "a/one").chmod(0o440)
    assert go(context, after="verify")["published"]
    data = context.layout("data").current / "data"
    for name, mode in released(context).items():
        # With `r-X` a file of mode 0400 shows the mask.
        assert mode == 0o440, name
        acl = owners.read_acl(data / name)
        assert posix_acl.in_words(acl) == "group:4242:r--", name
