from __future__ import annotations

import errno
import grp
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.staging_runs import context_for, events_of, tree

from penstock.config.settings import ModeRule, PermissionsConfig, SourceConfig, TargetConfig, VerifyConfig
from penstock.core.errors import ConfigError, NoSpaceError, PreflightError
from penstock.core.run_steps import CheckResult
from penstock.doctor import preflight_step
from penstock.doctor.preflight_results import Looks
from penstock.fs.owners import NFS4, acl_refusal, judge_acl

if TYPE_CHECKING:
    from penstock.dataset.context import Context


def changed(context: Context, **changes: object) -> Context:
    dataset = replace(context.config.datasets["data"], **changes)  # type: ignore[arg-type]
    context.config = replace(context.config, datasets={"data": dataset})
    return context


def test_it_lists_what_it_looked_at_and_creates_nothing(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", {"a": b"1"})
    context = context_for(tmp_path, source)
    receipt = preflight_step.run(context, "data")
    assert receipt["dataset"] == "data"
    kinds = [line.partition(":")[0] for line in receipt["checked"]]
    assert kinds == ["interpreter", "target", "source", "cluster"]
    assert str(source) in receipt["checked"][2]
    assert [row.about for row in receipt["results"] if row.verdict != "warning"] == kinds
    assert sorted(os.listdir(tmp_path)) == ["source"]
    assert [event.kind for event in events_of(context) if event.kind != "warning"] == ["start", "end"]


def test_it_warns_of_root(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    warnings = preflight_step.run(context, "data")["warnings"]
    assert any("uid 0" in text for text in warnings) == (os.geteuid() == 0)


def test_each_thing_that_cannot_work_is_named(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", {"a": b"1"})
    with pytest.raises(PreflightError, match="source folder cannot be read"):
        preflight_step.run(context_for(tmp_path, tmp_path / "none"), "data")
    with pytest.raises(PreflightError, match='no group "no-such-group"'):
        preflight_step.run(
            changed(context_for(tmp_path, source), permissions=PermissionsConfig(group="no-such-group")),
            "data",
        )
    with pytest.raises(ConfigError, match="exclude"):
        preflight_step.run(context_for(tmp_path, source, exclude=("!",)), "data")
    two = (SourceConfig(str(source)), SourceConfig(str(source), "a"))
    with pytest.raises(ConfigError, match="share a folder"):
        preflight_step.run(context_for(tmp_path, source, sources=two), "data")
    with pytest.raises(NoSpaceError, match="no room"):
        preflight_step.run(context_for(tmp_path, source, keep_free=1 << 62), "data")
    with pytest.raises(PreflightError, match="lie in one another"):
        preflight_step.run(context_for(tmp_path, tmp_path / "target" / "data" / ".."), "data")
    (tmp_path / "target").write_bytes(b"")
    with pytest.raises(PreflightError, match="not a folder"):
        preflight_step.run(context_for(tmp_path, source), "data")
    assert sorted(os.listdir(tmp_path)) == ["source", "target"]


def test_the_acl_is_tried_by_a_read_and_its_users_are_known(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    policy = PermissionsConfig(acl=("group:root:r-X", "user:4243:r"))
    receipt = preflight_step.run(changed(context, permissions=policy), "data")
    assert "ACL: group:root:r-X, user:4243:r" in receipt["checked"]
    assert os.listdir(tmp_path) == ["source"]
    policy = PermissionsConfig(acl=("group:no-such-group:r-X",))
    with pytest.raises(PreflightError, match='no group "no-such-group"'):
        preflight_step.run(changed(context, permissions=policy), "data")
    policy = PermissionsConfig(modes=(ModeRule("/", file=0o400), ModeRule("a\\", file=0o400)))
    with pytest.raises(ConfigError, match="a pattern cannot be used"):
        preflight_step.run(changed(context, permissions=policy), "data")


@pytest.mark.parametrize(
    ("refused", "verdict"), [("", "ok"), ("it keeps NFSv4 ACLs, which penstock does not set", "stop")]
)
def test_s14_what_refuses_acls_is_named(refused: str, verdict: str) -> None:
    found = judge_acl("/mnt", "group:a:r-X", refused, "mount it by NFS 3")
    assert found.verdict == verdict
    assert (refused in found.found, "mount it by NFS 3" in found.mend) == (True, bool(refused))


def test_s14_nfsv4_acls_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount that has them answers for their xattr, and keeps no POSIX ACL."""

    def answer(_: object, name: str, **__: object) -> bytes:
        number = errno.ENODATA if name == NFS4 else errno.EOPNOTSUPP
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "getxattr", answer)
    assert acl_refusal(tmp_path) == "it keeps NFSv4 ACLs, which penstock does not set, and no POSIX ACLs"


def test_the_own_group_may_be_given(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    try:
        name = grp.getgrgid(os.getegid()).gr_name
    except KeyError:
        name = str(os.getegid())
    receipt = preflight_step.run(changed(context, permissions=PermissionsConfig(group=name)), "data")
    assert all(row.verdict != "stop" for row in receipt["results"])


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    sources = tuple(SourceConfig(str(tmp_path / name), name) for name in ("one", "two"))
    context = context_for(tmp_path, "x", sources=sources, keep_free=1 << 62)
    context = changed(context, permissions=PermissionsConfig(group="no-such-group"))
    with pytest.raises(PreflightError, match="4 things stop the run") as caught:
        preflight_step.run(context, "data")
    for part in ("no room", "no-such-group", str(tmp_path / "one"), str(tmp_path / "two")):
        assert part in str(caught.value)
    assert caught.value.exit_code == 3


def test_a_file_system_of_the_kernel_holds_no_files(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    context.config = replace(context.config, target=TargetConfig(Path("/proc/x")))
    with pytest.raises(PreflightError, match="no file can be kept there"):
        preflight_step.run(context, "data")


def test_what_stops_is_a_row_with_the_words_of_the_error(tmp_path: Path) -> None:
    sources = tuple(SourceConfig(str(tmp_path / name), name) for name in ("one", "two"))
    context = context_for(tmp_path, "x", sources=sources, keep_free=1 << 62)
    result, error = preflight_step.look(context, "data")
    assert isinstance(error, PreflightError)
    stops = [row for row in result["results"] if row.verdict == "stop"]
    assert [row.about for row in stops] == ["target", "source", "source"]
    for row in stops:
        assert f"  - {row.found}\n    {row.mend}" in str(error)
    # The other checks were made, and nothing counts as done.
    assert {"interpreter", "readers", "cluster"} <= {row.about for row in result["results"]}
    assert [event.kind for event in events_of(context)] == ["start"]


def test_a_check_that_reports_a_stop_ends_the_step_as_one_that_raises(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    looks = Looks(context)
    looks.saw(
        CheckResult("storage target 104", "Offline", "stop", "Online", "have its server started"),
        CheckResult("storage target 105", "Needs-resync", "warning", "Good"),
        CheckResult("storage target 106", "Online", "ok", "Online"),
        what="the target is not in order",
        where="/x",
    )
    error = looks.error()
    assert isinstance(error, PreflightError)
    assert str(error) == (
        "the target is not in order [/x]: storage target 104: Offline\n  have its server started"
    )
    result = looks.document("data")
    assert result["checked"] == ["storage target 106: Online"]
    assert result["warnings"] == ["storage target 105: Needs-resync"]
    assert [row.verdict for row in result["results"]] == ["stop", "warning", "ok"]


def test_evidence_that_is_asked_for_has_a_row(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    context.config = replace(context.config, verify=VerifyConfig(minimum_grade="reread"))
    (row,) = (one for one in preflight_step.run(context, "data")["results"] if one.about == "evidence")
    assert (row.verdict, "the grade reread" in row.found) == ("ok", True)


@pytest.mark.parametrize(("content", "why"), [(None, "is missing"), ((), "is empty"), (("lost+found",), "")])
def test_a_target_that_lost_what_was_published_in_it_stops(
    tmp_path: Path, content: tuple[str, ...] | None, why: str
) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    root, receipt = context.config.target.root, tmp_path / "results/data/0a/publish.json"
    for name in content or ():
        (root / name).mkdir(parents=True)
    if content is not None:
        root.mkdir(exist_ok=True)
    _, error = preflight_step.look(context, "data", before=receipt)
    if not why:
        assert error is None
        return
    assert isinstance(error, PreflightError)
    assert f"{receipt} says that data was published in it, and the folder {why}" in str(error)
    assert f"`rm -r {tmp_path}/results/data`" in error.hint
    assert preflight_step.look(context, "data")[1] is None


def test_a_target_that_is_not_there_yet_is_a_note_with_the_mount_above(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    [row] = [row for row in preflight_step.run(context, "data")["results"] if row.about == "target"]
    assert row.verdict == "note"
    assert f"{context.config.target.root}, not there yet, " in row.found
    assert " on /" in row.found
