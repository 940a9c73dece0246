"""What auditors say of a release: accounts that a configuration trusts with that (`target.auditors`), and
that do not stage the dataset.

    <dataset>/verdicts/<release>.<random>      a posting (`storage.shared_files`): a verdict, as `audits/`
    has it

An auditor has one posting for each release, which it replaces. Whose it is, the kernel says; those of other
accounts are passed over, and so is one that names another seal than the release has. The folder is made by
the dataset's owner for whoever may read the release.

An auditor's findings stand at the gate beside the owner's:

| what came after them                 | they                                                           |
|--------------------------------------|----------------------------------------------------------------|
| a further audit of that auditor      | stand or fall as its own verdict says                          |
| an audit of everything by the owner  | fall: what the owner saw of it stands in the owner's verdict   |
| the owner's overruling               | fall                                                           |
| a repair, or an audit of a part      | stand: a repair goes by the owner's audits                     |

What an auditor read counts as read back (`gate --audited-within`). Its account is the kernel's word, and its
grade is `reread` at most, whatever the posting says.
"""

from __future__ import annotations

import json
import os
import secrets
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import events
from penstock.core.documents import verdict as document
from penstock.core.documents.verdict import ReadBack, StandingFindings, Verdict
from penstock.core.grades import at_most_reread
from penstock.core.layout import DATA
from penstock.errors import FailedError
from penstock.policy import accounts
from penstock.state import seals, verdicts
from penstock.storage.registry import open_storage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.layout import DatasetLayout
    from penstock.state.context import Context


class Said(NamedTuple):
    """One auditor's word."""

    uid: int
    name: str
    """Of the posting."""
    verdict: Verdict


def make_folder(context: Context, layout: DatasetLayout, release: str) -> None:
    """Make the folder of auditors' verdicts, for those who may read this release. By the dataset's owner,
    where the configuration has auditors. Where that cannot be, a warning says so: nothing else depends on
    it."""
    if not context.config.target.auditors:
        return
    try:
        context.storage.make_folder_for_readers(layout.auditors, layout.release(release) / DATA)
    except (OSError, FailedError) as error:
        text = f"auditors cannot say what they find: the folder {layout.auditors} cannot be made: {error}"
        context.emit(events.Warned(layout.dataset, "audit", text))


def read(layout: DatasetLayout, release: str, seal: str, auditors: Sequence[str]) -> list[Said]:
    """The words of these auditors on a release with this seal, by name; none where nobody is listed. Raises
    FailedError."""
    if not auditors:
        return []
    try:
        found = open_storage().postings(layout.auditors, lambda uid: accounts.is_listed(uid, auditors)).obeyed
    except OSError as error:
        raise FailedError(
            "what auditors said cannot be read",
            where=str(layout.auditors),
            why=error.strerror or str(error),
            hint="its owner gives the folder to the release's readers: any audit or publication of it does",
        ) from error
    said = []
    for one in found:
        try:
            verdict = document.from_json(json.dumps(one.value).encode(), layout.auditors / one.name)
        except ValueError:
            continue
        if (verdict.release, verdict.seal) == (release, seal):
            said.append(Said(one.uid, one.name, _bounded(verdict, one.uid)))
    return said


def _bounded(verdict: Verdict, uid: int) -> Verdict:
    """With no more than an auditor can claim of its last audit."""
    if verdict.last is None:
        return verdict
    last = verdict.last
    return verdict._replace(
        last=last._replace(by=accounts.told([str(uid)]), grade=at_most_reread(last.grade))
    )


def of_this_account(layout: DatasetLayout, release: str, seal: str) -> Said | None:
    """What this account said of it before."""
    found = read(layout, release, seal, (str(os.geteuid()),))
    return found[0] if found else None


def post(layout: DatasetLayout, verdict: Verdict, before: Said | None) -> None:
    """Say this from now on, in place of what this account said `before`; durable on return. Raises
    OSError."""
    storage, told = open_storage(), document.to_json(verdict)
    if before is not None:
        storage.repost(layout.auditors, before.name, told)
        return
    while not storage.post(layout.auditors, f"{verdict.release}.{secrets.token_hex(8)}", told):
        continue


def joined(
    layout: DatasetLayout, release: str, own: Verdict | None, seal: str, auditors: Sequence[str]
) -> Verdict | None:
    """The owner's verdict with those of auditors, by the table above. Raises FailedError."""
    return with_said(layout, release, own, seal, read(layout, release, seal, auditors))


def with_said(
    layout: DatasetLayout, release: str, own: Verdict | None, seal: str, said: Sequence[Said]
) -> Verdict | None:
    """`joined`, of words that were read already."""
    if not said:
        return own
    verdict = own if own is not None else verdicts.new(layout, release, seal)
    stands = [one for each in said for one in _standing(each, verdict)]
    last = max(
        (one.last for one in [verdict, *(each.verdict for each in said)] if one.last),
        key=lambda one: one.ended,
        default=None,
    )
    read_back = _read_back([verdict.read, *(each.verdict.read for each in said)])
    return verdict._replace(stands=(*verdict.stands, *stands), read=read_back, last=last)


def with_auditors(
    layout: DatasetLayout, release: str, own: Verdict | None, auditors: Sequence[str]
) -> Verdict | None:
    """The owner's verdict with those of auditors; as it is where the seal cannot be read, since nobody can
    say then what theirs is about. Raises FailedError."""
    try:
        stored = seals.find(layout, release) if auditors else None
    except FailedError:
        stored = None
    return joined(layout, release, own, stored.digest, auditors) if stored else own


def told(said: Sequence[Said], own: Verdict | None) -> str:
    """Who of them found what that stands: `by auditor uid 4711: 1 changed`; "" where nothing of theirs
    does."""
    found = ((one.uid, verdicts.standing(one.verdict._replace(stands=_standing(one, own)))) for one in said)
    return "; ".join(
        f"by auditor {accounts.told([str(uid)])}: {verdicts.told(counts)}" for uid, counts in found if counts
    )


def _standing(said: Said, own: Verdict | None) -> list[StandingFindings]:
    """Those of an auditor's findings that the owner's verdict has not made fall."""
    overruled = own.overruled.at if own and own.overruled else ""
    return [one for one in said.verdict.stands if not _answered(one, own) and one.at > overruled]


def _answered(found: StandingFindings, own: Verdict | None) -> bool:
    """Whether an audit of everything by the owner began after the one that found this. Both times are in
    seconds; within one second the audits' names decide, which begin with microseconds
    (`audit_store.begin`)."""
    read = own.read if own else ReadBack()
    if found.at != read.whole:
        return found.at < (read.whole or "")
    return found.audit < read.audit


def _read_back(all_read: Sequence[ReadBack]) -> ReadBack:
    """The latest of each; slices of one rotation are the same files, whoever reads them."""
    whole = max((one.whole for one in all_read if one.whole), default=None)
    slices: dict[int, dict[int, str]] = {}
    for one in all_read:
        for turns, seen in one.slices.items():
            turn = slices.setdefault(turns, {})
            for index, at in seen.items():
                turn[index] = max(at, turn.get(index, at))
    return ReadBack(whole, slices)
