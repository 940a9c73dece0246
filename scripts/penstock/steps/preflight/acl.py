"""The ACL of the release's files: whether its users and groups are known, and the target keeps ACLs, on this
machine and on nodes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.core.checks import CheckResult
from penstock.core.documents.node_answer import AclsSeen
from penstock.core.text import printable
from penstock.filesystem.acl_xattrs import judge, refusal
from penstock.filesystem.kinds import named_kind, rules_of

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.config.settings import DatasetConfig, TargetConfig
    from penstock.core.documents.node_answer import NodeAnswer
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
    facts = answers.facts(layout.root, "the target")
    folder = _folder(layout.root)
    kind = rules_of(facts.traits, context.config.target.filesystem)
    looks.saw(
        judge(str(folder), ", ".join(config.permissions.acl), refusal(os.path.realpath(folder)), kind.acls),
        what="the target keeps no ACLs",
        where=key(config),
    )


def key(config: DatasetConfig) -> str:
    """The key of the configuration that errors name."""
    return f"datasets.{config.name}.permissions.acl"


def _folder(root: Path) -> Path:
    """What is read: the first run may make the root."""
    return root if root.exists() else root.parent


def seen(config: DatasetConfig, target: TargetConfig, answers: Answers) -> AclsSeen | None:
    """What this machine says, for a node's answer: by a read, as `check`. None where no ACL is configured."""
    if not config.permissions.acl:
        return None
    if answers.silent(target.root):
        return AclsSeen(error=answers.seen(target.root).error)
    try:
        return AclsSeen(refusal(os.path.realpath(_folder(target.root))))
    except OSError as error:
        return AclsSeen(error=error.strerror or str(error))


def judged(node: str, config: DatasetConfig, target: TargetConfig, answer: NodeAnswer) -> list[CheckResult]:
    """What the answer of a node says; `node` is its name.

    | an ACL is configured | the node's answer                       | verdict                 |
    |----------------------|-----------------------------------------|-------------------------|
    | no                   | any                                     | nothing                 |
    | yes                  | says nothing of it (an older version's) | a note                  |
    | yes                  | could not read one, and says why        | a note                  |
    | yes                  | there are no POSIX ACLs, and says why   | a stop, as for a target |
    | yes                  | an ACL can be read                      | ok                      |
    """
    if not config.permissions.acl:
        return []
    about, acls = f"ACL on {printable(node)}", answer.acls
    if acls is None or acls.error:
        why = f"penstock {answer.penstock} there looks at no ACLs" if acls is None else acls.error
        mend = "read one there: `getfacl` of the target"
        return [CheckResult(about, printable(f"not known ({why})"), "note", mend=mend)]
    kind = rules_of(named_kind(answer.target.kind), target.filesystem)
    result = judge(answer.target.path, ", ".join(config.permissions.acl), printable(acls.refused), kind.acls)
    return [result._replace(about=about)]
