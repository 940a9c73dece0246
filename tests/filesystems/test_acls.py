"""ACLs on file systems that keep none, or have little room for them: refused before a byte is copied."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.filesystems.bed import Bed
from tests.support.published import STEPS
from tests.support.staging_runs import context_for, tree

from penstock.config.settings import PermissionsConfig
from penstock.core.errors import PreflightError
from penstock.doctor import preflight_step, preflight_target
from penstock.fs.owners import acl_refusal

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.dataset.context import Context

POLICY = PermissionsConfig(acl=("group:4241:r-X", "group:4242:r-X"))


def on(bed: Bed, source: Path, policy: PermissionsConfig, filesystem: str = "auto") -> Context:
    context = context_for(bed.nodes[0], source, permissions=policy)
    target = replace(context.config.target, filesystem=filesystem)
    context.config = replace(context.config, target=target)
    return context


@pytest.mark.parametrize(
    ("named", "filesystem", "mend"),
    [
        ("beegfs8", "beegfs", "sysXAttrsEnabled and sysACLsEnabled for the client"),
        ("nfs3", "auto", "mount it with POSIX ACLs"),
    ],
)
def test_s14_preflight_refuses_a_target_that_keeps_no_acls(
    tmp_path: Path, named: str, filesystem: str, mend: str
) -> None:
    source = tree(tmp_path / "source", {"a": b"1"})
    with Bed(named=named) as bed:
        assert acl_refusal(bed.nodes[0]) == "it keeps no POSIX ACLs, or is mounted without them"
        with pytest.raises(PreflightError, match="the target keeps no ACLs") as caught:
            preflight_step.run(on(bed, source, POLICY, filesystem), "data")
        assert caught.value.where == "datasets.data.permissions.acl"
        assert mend in caught.value.hint
        # Without an ACL in the policy it is a target like others.
        preflight_step.run(on(bed, source, PermissionsConfig(), filesystem), "data")
        assert not [*bed.nodes[0].iterdir()]


def test_s14_a_node_says_that_its_mount_keeps_no_acls(tmp_path: Path) -> None:
    """By what the probe's job does on a node, before anything is copied."""
    source = tree(tmp_path / "source", {"a": b"1"})
    with Bed(named="nfs3") as bed:
        config = on(bed, source, POLICY).config
        dataset, target = config.datasets["data"], config.target
        answer = preflight_step.answer(dataset, target, lambda: None, nullcontext())
        (stop,) = preflight_target.judged_acl("n1", dataset, target, answer)
        assert (stop.about, stop.verdict) == ("ACL on n1", "stop")
        assert "it keeps no POSIX ACLs, or is mounted without them" in stop.found
        assert not [*bed.nodes[0].iterdir()]
        plain = replace(dataset, permissions=PermissionsConfig())
        assert preflight_step.answer(plain, target, lambda: None, nullcontext()).acls is None


def test_s14_plan_refuses_acls_that_only_a_trial_shows_refused(tmp_path: Path) -> None:
    """The kernel reads no ACL for a FUSE daemon that has xattrs and no ACLs: preflight cannot know it."""
    source = tree(tmp_path / "source", {"a": b"1"})
    with Bed(named="weka-forcedirect") as bed:
        context = on(bed, source, POLICY)
        assert acl_refusal(bed.nodes[0]) == ""
        STEPS[0](context, "data")
        with pytest.raises(PreflightError, match="no release can be staged") as caught:
            STEPS[1](context, "data")
        assert "POSIX ACLs: no (EOPNOTSUPP" in caught.value.why
        assert "mount it with POSIX ACLs; or take `permissions.acl` out" in caught.value.hint
