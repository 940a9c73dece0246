"""The ACL of the release's files: whether its accounts are known and the target keeps ACLs, here and on
nodes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.core.events import CheckResult
from penstock.core.human import printable
from penstock.core.node_answer import AclEntrySeen, AclsSeen
from penstock.core.posix_acl import USER, parse
from penstock.doctor.preflight.node_view import WHERE_IDS_ARE_MAPPED
from penstock.fs import owners
from penstock.fs.kinds import named_kind, rules_of
from penstock.fs.owners import acl_refusal, judge_acl
from penstock.target import modes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.config.settings import DatasetConfig, TargetConfig
    from penstock.core.layout import DatasetLayout
    from penstock.core.node_answer import NodeAnswer
    from penstock.dataset.context import Context
    from penstock.doctor.preflight.mount_answers import Answers
    from penstock.doctor.preflight.results import Looks


def check(
    context: Context, config: DatasetConfig, layout: DatasetLayout, answers: Answers, looks: Looks
) -> None:
    """Read an ACL; plan's probe sets one. Raises PreflightError for a user or group unknown here, ConfigError
    for an unusable pattern of `permissions.modes`."""
    rules = modes.access_rules(config.permissions)
    if not rules.has_acl or answers.silent(layout.root):
        return
    facts = answers.facts(layout.root, "the target")
    folder = _folder(layout.root)
    kind = rules_of(facts.traits, context.config.target.filesystem)
    looks.saw(
        judge_acl(
            str(folder), ", ".join(config.permissions.acl), acl_refusal(os.path.realpath(folder)), kind.acls
        ),
        what="the target keeps no ACLs",
        where=key(config),
    )


def key(config: DatasetConfig) -> str:
    """Return the configuration's key, for errors."""
    return f"datasets.{config.name}.permissions.acl"


def _folder(root: Path) -> Path:
    """Return what is read: the first run may make the root."""
    return root if root.exists() else root.parent


def known(
    config: DatasetConfig, target: TargetConfig, answers: Answers, numbers: Sequence[int | None] = ()
) -> AclsSeen | None:
    """Return what this machine sees, for a node's answer; None without a configured ACL. `numbers` as of
    `entries`."""
    if not config.permissions.acl:
        return None
    named = entries(config.permissions.acl, numbers)
    if answers.silent(target.root):
        return AclsSeen(error=answers.mount(target.root).error, entries=named)
    folder = os.path.realpath(_folder(target.root))
    mapped = owners.is_mapped(folder)
    try:
        return AclsSeen(acl_refusal(folder), mapped=mapped, entries=named)
    except OSError as error:
        return AclsSeen(error=error.strerror or str(error), mapped=mapped, entries=named)


def entries(texts: Sequence[str], numbers: Sequence[int | None] = ()) -> tuple[AclEntrySeen, ...]:
    """Return the users and groups of an ACL as this machine knows them. `numbers` are theirs on the
    submitting machine; () on that machine itself."""
    entries = []
    for place, text in enumerate(texts):
        entry = parse(text)
        number = _number(entry.tag, entry.who)
        theirs = numbers[place] if place < len(numbers) else number
        name = owners.user_name if entry.tag == USER else owners.group_name
        entries.append(AclEntrySeen(text, number, "" if theirs is None else name(theirs)))
    return tuple(entries)


def _number(tag: int, who: str) -> int | None:
    return owners.user_number(who) if tag == USER else owners.group_number(who)


def judged(node: str, config: DatasetConfig, target: TargetConfig, answer: NodeAnswer) -> list[CheckResult]:
    """Judge a node's answer.

    | an ACL is configured | the node's answer                       | verdict                 |
    |----------------------|-----------------------------------------|-------------------------|
    | no                   | any                                     | nothing                 |
    | yes                  | could not read one, and says why        | a note                  |
    | yes                  | there are no POSIX ACLs, and says why   | a stop, as for a target |
    | yes                  | an ACL can be read                      | ok                      |
    """
    acls = answer.acls
    if not config.permissions.acl or acls is None:
        return []
    about = f"ACL on {printable(node)}"
    if acls.error:
        mend = "read one there: `getfacl` of the target"
        return [CheckResult(about, printable(f"not known ({acls.error})"), "note", mend=mend)]
    kind = rules_of(named_kind(answer.target.kind), target.filesystem)
    result = judge_acl(
        answer.target.path, ", ".join(config.permissions.acl), printable(acls.refused), kind.acls
    )
    return [result._replace(about=about)]


def entry_results(
    node: str, on_node: Sequence[AclEntrySeen], local: Sequence[AclEntrySeen], *, mapped: bool
) -> list[CheckResult]:
    """Compare the ACL's users and groups on a node with those here.

    Elements set ACLs by their node's numbers, the permissions step by its machine's. `mapped`: numbers of one
    file differ between the machines, or one of them reports a mapping.

    | number there | who has this machine's number there | mapped | verdict                              |
    |--------------|-------------------------------------|--------|--------------------------------------|
    | none         | any                                 | any    | a stop: elements there end           |
    | another      | any                                 | yes    | a note: id-mapped                    |
    | another      | another than the ACL names          | no     | a stop: that account gets the rights |
    | another      | nobody, as far as is known          | no     | a warning: the ACL gives no rights   |
    | the same     | another name than here              | any    | a warning: one number, two accounts  |
    | the same     | the same name, or one has none      | any    | nothing                              |
    """
    about, by_entry = f"ACL on {printable(node)}", {row.entry: row for row in on_node}
    results = []
    for mine in local:
        theirs = by_entry.get(mine.entry)
        if theirs is None or mine.number is None:
            continue
        entry = parse(mine.entry)
        kind, table = ("user", "passwd") if entry.tag == USER else ("group", "group")
        named = f"the {kind} {entry.who} of `permissions.acl`"
        compare = f"`getent {table} {entry.who}`, there and here"
        one_number = f"give it one number everywhere ({compare}), or name it by its number"
        both = f"{named} is {mine.number} here and {theirs.number} there"
        wanted = "one number for one name"
        if theirs.number is None:
            verdict = f"{named} is not known there: elements cannot set the ACL"
            mend = f"name a {kind} that every node knows, or its number"
            results.append(CheckResult(about, verdict, "stop", wanted, mend))
        elif theirs.number != mine.number and mapped:
            verdict = f"id-mapped: {both}; where numbers are mapped, audits do not compare ACLs"
            results.append(CheckResult(about, verdict, "note", wanted, WHERE_IDS_ARE_MAPPED))
        elif theirs.number != mine.number and theirs.holder not in ("", entry.who):
            verdict = f"{both}, where {mine.number} is {theirs.holder}: {theirs.holder} would get the rights"
            results.append(CheckResult(about, printable(verdict), "stop", wanted, one_number))
        elif theirs.number != mine.number:
            verdict = f"{both}, where {mine.number} has no name: the ACL gives the {kind} no rights there"
            results.append(CheckResult(about, verdict, "warning", wanted, one_number))
        elif mine.holder and theirs.holder and mine.holder != theirs.holder:
            verdict = f"{named}: {mine.number} is {mine.holder} here and {theirs.holder} there"
            mend = "compare the accounts of both machines"
            results.append(CheckResult(about, printable(verdict), "warning", "one name for one number", mend))
    return results
