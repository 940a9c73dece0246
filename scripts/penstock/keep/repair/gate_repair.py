"""`gate --mend`: right before a job, the whole release is looked at, and what is gone or damaged is fetched.

It is an audit and a repair in one, by the code of both. Guarantees: the gate opens only where names, sizes
and modification times of all files are as published, where each file whose time is another was read and has
the published bytes, and where a random sample was read past the caches; what that can miss is stated. What
was missing or damaged was fetched from the pinned version and read back. Nothing else is changed: no file is
touched to look younger.

| this account     | the look finds                | readers have a pin | then                            |
|------------------|-------------------------------|--------------------|---------------------------------|
| is not the owner | nothing                       | any                | the gate opens; no byte is read |
| is not the owner | damage                        | any                | 4, with the owner's command     |
| is the owner     | nothing                       | any                | the gate opens                  |
| is the owner     | damage                        | yes                | 4, with the pins                |
| is the owner     | damage                        | no                 | it is repaired, the gate opens  |
| is the owner     | damage, and the source has    | no                 | 4: the rest is repaired         |
|                  | not what was published        |                    |                                 |
| is the owner     | damage that another release   | on that one        | it is repaired in this release, |
|                  | shares                        |                    | and said of the other one       |
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from penstock.core import events
from penstock.core.audit_selection import AuditSelection
from penstock.core.errors import FindingsError, LockedError
from penstock.core.layout import DATA
from penstock.dataset import gate, pins, verdicts
from penstock.fs.owners import user_name
from penstock.jobs import audit_store
from penstock.jobs.ownership import liveness
from penstock.jobs.ownership.dataset_hold import lock_of
from penstock.keep.audit import audit_plan, audit_step
from penstock.keep.audit.audit_tree import tree_findings
from penstock.keep.repair import repair_step
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.cluster.port import Cluster
    from penstock.core.documents.seal import Seal
    from penstock.core.documents.step_results import AuditResult, MendResult, RepairResult
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context

STEP = "gate"
READ_FILES, READ_BYTES = 1000, 4 << 30
"""What the sample reads at most, on average, where its fraction is not given: some seconds."""
REPAIRED_HERE = 64 << 30
"""Bytes up to which the repair runs on this machine, where no backend is named: an array would wait."""
PATIENCE = 600.0
"""Seconds that are waited for another look or repair of the dataset, by default."""
AGAIN = 2.0
NAMED = 3
SEEN = 10_000
"""Findings after which a look of another account than the owner's ends."""


@dataclass(frozen=True)
class Wish:
    """What is asked for."""

    choice: AuditSelection | None = None
    """The sample; None: as large as is read in seconds."""
    within: float | None = None
    """As `gate.passed` has it."""
    patience: float = PATIENCE
    local: Cluster | None = None
    """Runs elements on this machine: the look's always, and those of a small repair. None: the context's."""
    repair_there: bool = False
    """Elements of the repair run where the context's cluster runs them, however small it is."""


def sample_fraction(seal: Seal) -> float:
    """The fraction of the files that is read where none is given, such that it takes seconds."""
    files, size = READ_FILES / max(1, seal.files), READ_BYTES / max(1, seal.bytes)
    return min(1.0, files, size)


def run(context: Context, dataset: str, wish: Wish | None = None) -> MendResult:
    """Look at the current release, repair it where that is needed and may be, and pass the gate.

    Raises FindingsError (exit 4) where the gate stays closed, LockedError where another command works on the
    dataset for longer than `patience`, and what an audit and a repair raise.
    """
    wish = wish or Wish()
    layout = context.layout(dataset)
    release = gate.current(layout)
    gate.not_held(layout, release)
    if not dataset_folders.owns(layout):
        return _as_reader(context, layout, release, wish)
    dataset_folders.check_owner(layout)
    with _alone(context, layout, release, wish.patience):
        # What `current` named before the wait may be another one now.
        release = gate.current(layout)
        seal = audit_plan.read_seal(layout, release).seal
        results: list[RepairResult] = []
        standing = verdicts.standing(verdicts.read(layout, release))
        if standing and layout.repair(release).plan.exists():
            # A repair that was killed: what it fetched is fetched. Another audit would make it begin anew.
            results.append(_repair(context, layout, seal, standing, wish))
        looked = _look(context, layout, release, seal, wish)
        counts = verdicts.standing(verdicts.read(layout, release)) or looked["counts"]
        if counts:
            results.append(_repair(context, layout, seal, counts, wish))
            repair_step.judge(results[-1])
        elif not results:
            # Of a repair that ended, and was killed while it removed what it had fetched.
            _patiently(
                context,
                layout,
                lambda: repair_step.clear_ended(context, dataset, release),
                wish.patience,
            )
        # All that it and killed ones before it found is right again: a later repair need not go by them, and
        # hundreds a day would end the audits that it is to go by.
        audit_store.drop_looks(layout, release)
    passed = _passed(context, layout, wish)
    return {
        "dataset": dataset,
        "release": passed.release,
        "path": str(passed.data),
        "status": "REPAIRED" if results else "WHOLE",
        "files": looked["of_files"],
        "read": looked["files"],
        "read_bytes": looked["bytes"],
        "touched": looked.get("touched", 0),
        "promise": looked["promise"],
        "look_seconds": looked["seconds"],
        "repaired": sum(len(one["repaired"]) for one in results),
        "also_repaired": _by_release(
            (name, len(paths)) for one in results for name, paths in one["also_repaired"].items()
        ),
        "also_in": _by_release(item for one in results for item in one["also_in"].items()),
        "fetched_bytes": sum(one["fetched_bytes"] for one in results),
        "repair_seconds": round(sum(one["seconds"] for one in results), 3),
    }


@contextmanager
def _alone(context: Context, layout: DatasetLayout, release: str, patience: float) -> Iterator[None]:
    """One look with its repair at a time."""
    lock = lock_of(context, layout, release, STEP, "gate.lock")
    _patiently(context, layout, lock.__enter__, patience)
    try:
        yield
    finally:
        lock.__exit__(None, None, None)


def _patiently(context: Context, layout: DatasetLayout, work: Callable[[], object], patience: float) -> None:
    """Once nobody else holds what the work takes. Raises LockedError after so many seconds."""
    until = time.monotonic() + patience
    noted = False
    while True:
        try:
            work()
            return
        except LockedError as error:
            if time.monotonic() >= until:
                raise
            if not noted:
                text = f"waiting: {str(error).partition(chr(10))[0]}"
                context.emit(events.Noted(layout.dataset, STEP, text))
            noted = True
            context.stop.wait(AGAIN)


def _look(context: Context, layout: DatasetLayout, release: str, seal: Seal, wish: Wish) -> AuditResult:
    choice = wish.choice or AuditSelection("sample", sample_fraction(seal))
    request = audit_step.AuditRequest(release, choice, times=True)
    results: list[AuditResult] = []
    _patiently(
        context,
        layout,
        lambda: results.append(audit_step.run(_local(context, wish), layout.dataset, request)),
        wish.patience,
    )
    return results[0]


def _repair(
    context: Context, layout: DatasetLayout, seal: Seal, counts: Mapping[str, int], wish: Wish
) -> RepairResult:
    """Raises FindingsError where somebody reads the release."""
    release = seal.release
    longest = context.config.gc.longest_pin
    read = pins.of_others(layout, longest, lambda job, cluster: liveness.scheduler(context, job, cluster))
    if held := read.pop(release, []):
        more = f"; and {len(held) - NAMED} more" if len(held) > NAMED else ""
        raise FindingsError(
            "the release is damaged, and is not repaired while others read it",
            where=str(layout.release(release)),
            why=f"{verdicts.counts_text(counts)}; {'; '.join(pin.words() for pin in held[:NAMED])}{more}",
            hint="when they have ended, run the same again; "
            f"`penstock repair {layout.dataset}` looks at no pin",
        )
    small = sum(counts.values()) * seal.bytes <= REPAIRED_HERE * max(1, seal.files)
    at = _local(context, wish) if small and not wish.repair_there else context
    # What other releases share with this one is replaced there, too, but not under their readers.
    spared = {name: f"others read it: {found[0].words()}" for name, found in read.items()}
    results: list[RepairResult] = []
    _patiently(
        context,
        layout,
        lambda: results.append(repair_step.run(at, layout.dataset, release, spared=spared)),
        wish.patience,
    )
    return results[0]


def _by_release(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The sums, by name."""
    total: Counter[str] = Counter()
    for release, count in counts:
        total[release] += count
    return dict(total)


def _passed(context: Context, layout: DatasetLayout, wish: Wish) -> gate.Published:
    target = context.config.target
    return gate.passed(layout, within=wish.within, owners=target.owners)


def _local(context: Context, wish: Wish) -> Context:
    return context if wish.local is None else replace(context, cluster=wish.local)


def _as_reader(context: Context, layout: DatasetLayout, release: str, wish: Wish) -> MendResult:
    """The look of an account that may repair nothing: it reads no file, and leaves nothing anywhere."""
    began = time.time()
    touched = audit_step.Touched()
    try:
        passed = _passed(context, layout, wish)
        findings = tree_findings(layout, release, passed.seal, context.stop.check, touched.add)
        counts = Counter(finding.kind for finding in islice(findings, SEEN))
    except FindingsError as error:
        raise _for_owner(context, layout, error) from None
    if touched.files:
        counts["touched"] = touched.files
    if counts:
        why = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
        where = str(layout.release(release))
        raise _for_owner(
            context,
            layout,
            FindingsError("the release is not as it was published", where=where, why=why),
        )
    return {
        "dataset": layout.dataset,
        "release": release,
        "path": str(layout.release(release) / DATA),
        "status": "WHOLE",
        "files": passed.seal.files,
        "read": 0,
        "read_bytes": 0,
        "touched": 0,
        "promise": "no file was read: damage that keeps size and time is not found",
        "look_seconds": round(time.time() - began, 3),
        "repaired": 0,
        "also_repaired": {},
        "also_in": {},
        "fetched_bytes": 0,
        "repair_seconds": 0.0,
    }


def _for_owner(context: Context, layout: DatasetLayout, error: FindingsError) -> FindingsError:
    """The same, with the command of the account that may repair."""
    command = f"gate {layout.dataset} --mend"
    owner = user_name(layout.folder.lstat().st_uid)
    return FindingsError(
        error.what,
        where=error.where,
        why=error.why,
        hint=f"{error.hint + '; ' if error.hint else ''}{owner}, who stages this dataset, runs "
        f"`{context.program} {command}`; with --submit as a job",
    )
