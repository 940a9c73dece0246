"""The ACL of the release's files: whether its users and groups are known, and the target keeps ACLs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.filesystem.acl_xattrs import judge, refusal
from penstock.filesystem.kinds import rules_of

if TYPE_CHECKING:
    from penstock.config.settings import DatasetConfig
    from penstock.core.layout import DatasetLayout
    from penstock.state.context import Context
    from penstock.steps.preflight.answers import Answers
    from penstock.steps.preflight.looks import Looks


def check(
    context: Context, config: DatasetConfig, layout: DatasetLayout, answers: Answers, looks: Looks
) -> None:
    """Changes nothing: an ACL is read, plan's probe sets one. Raises PreflightError for a user or group that
    this machine does not know, ConfigError for a pattern of `permissions.modes` that cannot be used."""
    rules = context.storage.access_rules(config.permissions)
    if not rules.has_acl or answers.silent(layout.root):
        return
    seen = answers.facts(layout.root, "the target")
    folder = layout.root if layout.root.exists() else layout.root.parent
    kind = rules_of(seen.traits, context.config.target.filesystem)
    looks.saw(
        judge(str(folder), ", ".join(config.permissions.acl), refusal(os.path.realpath(folder)), kind.acls),
        what="the target keeps no ACLs",
        where=f"datasets.{config.name}.permissions.acl",
    )
