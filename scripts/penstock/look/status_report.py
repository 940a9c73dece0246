"""`penstock status`: which release of a dataset is published, and how far its run is, from the state on the
target, without a lock; and the table of all datasets. The readers' part is judged as by `gate`; only the
owner sees the last run.
"""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from penstock.cluster.port import abilities_of
from penstock.core import human
from penstock.core.errors import FindingsError, PenstockError
from penstock.core.human import SECOND, TEXT, brief, nanoseconds, printable
from penstock.core.layout import DatasetLayout
from penstock.dataset import gate, pins, release_records
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.jobs import dataset_state, run_cleanup, shares
from penstock.jobs.dataset_state import ENDED, UNKNOWN
from penstock.look import releases
from penstock.look.views import text_layout
from penstock.look.views.text_layout import Line, TextColumn
from penstock.target import access, dataset_folders, notices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from penstock.core.step_results import StatusResult
    from penstock.dataset.context import Context
    from penstock.dataset.gate import Judgement
    from penstock.jobs.dataset_state import DatasetState


# `penstock status`: which release of a dataset is published, and how far its run is, from the state on the
# target, without a lock. The readers' part is judged as by `gate`; only the owner sees the last run.


def run(context: Context, dataset: str, submitted: str | None = None) -> StatusResult:
    """Return the dataset's row without empty keys, even if damaged. `submitted`: see `dataset_state.read`."""
    layout, target = context.layout(dataset), context.config.target
    judgement = gate.judged(layout, target.owners)
    answer: StatusResult = {"dataset": dataset, "state": judgement.state, **_refused(judgement)}
    answer["pause"] = notices.words(layout.root)
    answer["hold"] = notices.warning(layout.root)
    answer["current"] = judgement.release or None
    answer["lock"] = dataset_state.held_by(layout)
    if judgement.error is None:
        answer["path"] = str(judgement.data)
    if context.ops:
        answer["ops"] = shares.holders_of(layout)
    answer |= _published(judgement)
    status = dataset_state.read(context, judgement, submitted)
    if submitted:
        answer["work"] = status.work
    if judgement.shaped and judgement.state != gate.OLDER:
        try:
            answer["releases"] = dataset_folders.releases(layout)
            answer |= _pins(context, layout)
            answer |= _work(status, judgement)
        except FindingsError as error:
            # Only the owner's folders are damaged. Readers still have their release.
            answer.setdefault("work", {"state": gate.DAMAGED, "why": error.why, "to_do": error.hint})
        except (PenstockError, OSError) as error:
            answer["problem"] = str(error)
    return cast("StatusResult", {key: value for key, value in answer.items() if value})


def below(root: Path, now: float, datasets: Sequence[str] = ()) -> list[StatusResult]:
    """Return a row for each dataset below the root (`datasets`: for these), as any account may see it, with
    at most six file operations for each. Nothing is touched. `now`: seconds since the epoch."""
    rows, holds = [], notices.holds_below(root)
    for name in datasets or releases.datasets(root, looked_into=False):
        judgement = gate.glanced(DatasetLayout(root, name), holds)
        state = dataset_state.glanced(judgement, now)
        if state == gate.NOTHING and not releases.has_signs(judgement.layout.folder):
            continue
        answer: StatusResult = {"dataset": name, "state": state, **_refused(judgement)}
        answer["current"] = judgement.release or None
        if judgement.error is None:
            answer["path"] = str(judgement.data)
        answer |= _published(judgement)
        rows.append(cast("StatusResult", {key: value for key, value in answer.items() if value}))
    return rows


def _refused(judgement: Judgement) -> StatusResult:
    """Return why readers are refused the release, and what helps; {} if they are not, or there is none."""
    if judgement.error is None or judgement.state == gate.NOTHING:
        return {}
    return {"why": judgement.problem, "to_do": judgement.error.hint}


def _published(judgement: Judgement) -> StatusResult:
    answer: StatusResult = {"findings": judgement.findings}
    if judgement.stored is not None:
        seal = judgement.stored.seal
        answer |= {"files": seal.files, "bytes": seal.bytes, "sealed": seal.sealed}
    answer["last_audit"] = release_records.last_audit_of(judgement.verdict)
    return answer


def _pins(context: Context, layout: DatasetLayout) -> StatusResult:
    longest = context.config.gc.longest_pin
    pinned = pins.shown(layout, longest, partial(dataset_state.scheduler, context))
    words = [f"{brief(release)}: {pin}" for release, held in pinned.items() for pin in held.words]
    unopened = sum(held.unopened for held in pinned.values())
    more = max(0, len(words) - pins.NAMED) + unopened
    counted = f"and {'up to ' if unopened else ''}{more:,} more pins"
    return {"pins": [*words[: pins.NAMED], *([counted] if more else [])], "pinned": len(words) + unopened}


def _work(recorded: DatasetState, judgement: Judgement) -> StatusResult:
    """Return the part about the last run, for the dataset's owner. Raises any error of reading it."""
    layout, last, work = judgement.layout, recorded.run, recorded.work
    status: StatusResult = {}
    advice = judgement.error.hint if judgement.state == gate.NOTHING and judgement.error else ""
    if os.path.lexists(layout.folder) and not dataset_folders.owns(layout):
        who = access.in_words([str(layout.folder.lstat().st_uid)])
        status["seen"] = f"what is published alone: another account, {who}, stages this dataset"
        if recorded.staging:
            status["under_way"] = str(recorded.staging)
        return (
            status | {"state": recorded.state, "to_do": advice}
            if advice
            else status | {"state": recorded.state}
        )
    if recorded.problem is not None:
        raise recorded.problem
    status["work"] = work
    if last is not None:
        status |= {"run": last.id, "release": last.release}
        status["arrays"] = [
            array.array or array.name
            for array in ArrayBook(last.folder.arrays).open()
            if not abilities_of(array.kind).elements_end_with_controller
        ]
        status["abandoned"] = list(map(run_cleanup.sentence, run_cleanup.described(last)))
    if judgement.state not in (gate.PUBLISHED, gate.NOTHING):
        return status
    status["state"] = recorded.state
    if work:
        status |= {"why": work.get("why", ""), "to_do": work.get("to_do", "")}
    elif last is not None and judgement.release and judgement.release != last.release:
        status["why"] = f"{last.release} is published, current is {judgement.release}"
    elif advice:
        status["to_do"] = advice
    return status


# `penstock status` of all datasets: a row for each dataset, and the number of datasets of each kind. Rows
# that need a person come first.
#
# Every text is escaped, and no line is wider than `columns`, except for a long path or command. Below a row
# that needs a person, or waits, come its cause and a remedy.
#
# | mark | the state |
# |------|-----------|
# | `!`  | failed, stopped, or readers may not read the release |
# | `?`  | nothing is published and no run is working, or the state is unknown |
# | `~`  | a run is at work, or waits |
# |      | published |

NEEDS, DOUBT, WORKS, WELL = "!", "?", "~", " "
KINDS = {
    NEEDS: ("needs you", "need you"),
    DOUBT: ("not begun", "not begun"),
    WORKS: ("under way", "under way"),
    WELL: ("well", "well"),
}
REFUSED = (*gate.BAD, gate.OLDER, gate.NEWER, gate.UNREADABLE)
INDENT = 11  # blank columns before a cause
_COLUMNS = (
    TextColumn("  DATASET", least=18),
    TextColumn("STATE", least=16),
    TextColumn("RELEASE"),
    TextColumn("SIZE", right=True),
    TextColumn("AGE", right=True),
    TextColumn("AUDIT", right=True),
)
_STYLES = {NEEDS: "bold red", DOUBT: "yellow", WORKS: "cyan"}


def render_table(
    results: Sequence[StatusResult],
    root: str,
    free: int | None,
    now: float,
    columns: int = text_layout.COLUMNS,
) -> list[Line]:
    """The lines of `penstock status`. `free`: bytes that this account may still write below `root`; None:
    unknown. `now`: seconds since the epoch, from which ages are counted."""
    rows = sorted(((mark(result), result) for result in results), key=lambda row: list(KINDS).index(row[0]))
    cells = [_cells(kind, result, now) for kind, result in rows]
    head, *blocks = text_layout.lines(_COLUMNS, cells, columns=columns)
    room = f"   {human.size(free)} free" if free is not None else ""
    lines = [Line(f"{printable(root)}   {datetime.fromtimestamp(now, UTC):%a %d %b %H:%M}Z{room}"), Line("")]
    lines += [Line(text, "bold") for text in head]
    for (kind, result), block in zip(rows, blocks, strict=True):
        lines += [Line(text, _STYLES.get(kind, "")) for text in block]
        lines += [Line(text) for text in _below(result, columns)]
    counts = Counter(kind for kind, _ in rows)
    return [*lines, Line(""), *(Line(text, "bold") for text in _closing(results, counts, columns))]


def mark(result: StatusResult) -> str:
    """The mark of the dataset's row, by the table above."""
    state, work = result["state"], result.get("work", {}).get("state", "")
    if {state, work}.intersection(REFUSED) or state in ENDED:
        return NEEDS
    if state in (gate.NOTHING, UNKNOWN):
        return DOUBT
    return WELL if state == gate.PUBLISHED else WORKS


def _cells(kind: str, result: StatusResult, now: float) -> list[str]:
    current, staged = result.get("current"), result.get("release")
    release = current or (f"({staged})" if staged else "")
    audit = result.get("last_audit")
    audited = _age(audit.audit.ended, now) if audit else "never" if current else ""
    work = result.get("work", {}).get("copy")
    size = result.get("bytes", work["of_bytes"] if work else None)
    return [
        f"{kind} {result['dataset']}",
        _state(result, now),
        brief(release, 30) or human.UNKNOWN,
        human.UNKNOWN if size is None else human.size(size),
        _age(result.get("sealed", ""), now),
        audited or human.UNKNOWN,
    ]


def _state(result: StatusResult, now: float) -> str:
    """The text of the state: `published, 2 jobs`, `failed 2 min ago`, `copying 62 %`, `HELD`."""
    work: Mapping[str, Any] = result.get("work", {})
    state = result["state"]
    if state == gate.PUBLISHED:
        notes = [state]
        if result.get("release", "") not in ("", result.get("current")):
            notes.append("rolled back")
        if pinned := result.get("pinned", 0):
            notes.append(human.counted(pinned, "pin"))
        return ", ".join(notes)
    if state in ENDED and "at" in work:
        return f"{state} {_age(work['at'], now)} ago"
    if "percent" in work and work.get("state") == state:
        return f"{state} {int(work['percent'])} %"
    return state.upper() if state == gate.HELD else state


def _below(result: StatusResult, columns: int) -> list[str]:
    """The cause of the row's state and a remedy, wrapped."""
    work: Mapping[str, Any] = result.get("work", {})
    own = work.get("state") == result["state"]
    texts = []
    if result["state"] != gate.PUBLISHED:
        texts.append(_cause(result.get("why") or (work.get("why", "") if own else ""), work if own else {}))
    if work and not own:
        texts.append(f"last run {work['state']}: {_cause(work.get('why', ''), work)}".removesuffix(": "))
    texts += [result.get("problem", ""), result.get("under_way", "")]
    if to_do := result.get("to_do") or work.get("to_do"):
        texts.append(f"next: {to_do}")
    return [
        " " * INDENT + line
        for text in texts
        if text
        for line in text_layout.wrap(brief(text, TEXT), columns - INDENT)
    ]


def _cause(why: str, work: Mapping[str, Any]) -> str:
    """The text of the cause: `no space is left (copy, exit 6)`, `by SIGINT (copy, 42 % done)`."""
    step, about = str(work.get("step", "")), []
    if step:
        about.append(step)
    if "signal" in work:
        why = f"by {work['signal']}"
        about += [f"{int(work['percent'])} % done"] if "percent" in work else []
    elif work.get("state") == "failed" and "exit" in work:
        about.append(f"exit {work['exit']}")
    if not why or work.get("state") not in ENDED:
        return why
    why = why.replace(f"{step}: ", "", 1) if step else why
    return f"{why} ({', '.join(about)})" if about else why


def _closing(results: Sequence[StatusResult], counts: Mapping[str, int], columns: int) -> list[str]:
    """The closing lines: `12 datasets: 2 need you, 3 under way, 7 well`, and the root's HOLD and PAUSE."""
    phrases = [
        f"{human.count(counts[kind])} {words[counts[kind] > 1]}"
        for kind, words in KINDS.items()
        if counts.get(kind)
    ]
    lines = text_layout.wrap(f"{human.counted(len(results), 'dataset')}: {', '.join(phrases)}", columns)
    for key in ("pause", "hold"):
        text = next((str(result[key]) for result in results if result.get(key)), "")
        if text:
            lines += text_layout.wrap(f"{key.upper()}: {brief(text, TEXT)}", columns)
    return lines


def _age(moment: str, now: float) -> str:
    """Format an age in one unit; `-` if `moment` is no time, `0 s` if it is ahead of this clock."""
    try:
        return human.age(max(0.0, now - nanoseconds(moment) / SECOND))
    except ValueError:
        return human.UNKNOWN
