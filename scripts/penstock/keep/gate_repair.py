"""`gate --mend`: checks a whole release right before a job, and fetches missing or damaged files.

It combines an audit and a repair. The gate opens only if names, sizes and modification times of all files are
as published. A file with another time is read and must have the published bytes. A random sample of files is
read, bypassing the caches. The result states which damage this can miss. Repaired files come from the pinned
version and were read back. No file is touched to look younger.

| this account     | the check finds               | readers have a pin | then                            |
|------------------|-------------------------------|--------------------|---------------------------------|
| is not the owner | no damage                     | any                | the gate opens; no byte is read |
| is not the owner | damage                        | any                | exit 4, with the owner's command|
| is the owner     | no damage                     | any                | the gate opens                  |
| is the owner     | damage                        | yes                | exit 4, with the pins           |
| is the owner     | damage                        | no                 | it is repaired, the gate opens  |
| is the owner     | damage, and the source lacks  | no                 | exit 4; other damage is repaired|
|                  | the published bytes           |                    |                                 |
| is the owner     | damage that another release   | on the other       | it is repaired in this release; |
|                  | shares                        | release            | the result names the other one  |
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from penstock.core import run_steps
from penstock.core.errors import FindingsError, LockedError
from penstock.core.findings import AuditSelection
from penstock.core.layout import DATA
from penstock.dataset import gate, pins, release_records
from penstock.fs.owners import user_name
from penstock.jobs import audits_and_adoptions, dataset_state
from penstock.jobs.dataset_state import lock_of
from penstock.keep import audit_plan, audit_step, repair_step
from penstock.keep.audit_tree import tree_findings
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.cluster.port import Cluster
    from penstock.core.layout import DatasetLayout
    from penstock.core.seal import Seal
    from penstock.core.step_results import AuditResult, MendResult, RepairResult
    from penstock.dataset.context import Context


STEP = "gate"
# Limits of the sample, on average, if no fraction is given. Reading such a sample takes some seconds.
READ_FILES, READ_BYTES = 1000, 4 << 30
# Bytes that are repaired on this machine, at most, if no backend is named, since an array would wait in a
# queue.
REPAIRED_HERE = 64 << 30
PATIENCE = 600.0  # default seconds to wait for another check or repair of the dataset
AGAIN = 2.0
NAMED = 3
SEEN = 10_000  # number of findings after which the check ends if this account is not the owner


@dataclass(frozen=True)
class Wish:
    """The checks and the repair that the caller wants."""

    choice: AuditSelection | None = None  # the sample to read; None means a sample that takes seconds to read
    within: float | None = None  # seconds, for the argument `within` of `gate.passed`
    patience: float = PATIENCE
    # the cluster that runs the elements of the check, and of a small repair on this machine; None means the
    # context's cluster
    local: Cluster | None = None
    repair_there: bool = False  # whether to run even a small repair on the context's cluster


def sample_fraction(seal: Seal) -> float:
    """Return the fraction of files whose reading takes seconds."""
    files, size = READ_FILES / max(1, seal.files), READ_BYTES / max(1, seal.bytes)
    return min(1.0, files, size)


def run(context: Context, dataset: str, wish: Wish | None = None) -> MendResult:
    """Check the current release, repair it if needed and allowed, and pass the gate. Raises FindingsError
    (exit 4) if the gate stays closed, LockedError if another command works for longer than `patience`, and
    the errors of audit and repair."""
    wish = wish or Wish()
    layout = context.layout(dataset)
    release = gate.current(layout)
    gate.not_held(layout, release)
    if not dataset_folders.owns(layout):
        return _as_reader(context, layout, release, wish)
    dataset_folders.check_owner(layout)
    with _alone(context, layout, release, wish.patience):
        # `current` may have moved during the wait.
        release = gate.current(layout)
        seal = audit_plan.read_seal(layout, release).seal
        results: list[RepairResult] = []
        standing = release_records.standing_findings(release_records.read_verdict(layout, release))
        if standing and layout.repair(release).plan.exists():
            # A killed repair is continued with the files that it fetched. After another audit it would have
            # to start again.
            results.append(_repair(context, layout, seal, standing, wish))
        looked = _look(context, layout, release, seal, wish)
        counts = (
            release_records.standing_findings(release_records.read_verdict(layout, release))
            or looked["counts"]
        )
        if counts:
            results.append(_repair(context, layout, seal, counts, wish))
            repair_step.judge(results[-1])
        elif not results:
            # A killed repair may have left files that it fetched.
            _patiently(
                context,
                layout,
                lambda: repair_step.clear_ended(context, dataset, release),
                wish.patience,
            )
        # All findings of these checks are repaired, so a later repair does not need them. Hundreds of checks
        # per day would displace the audits that a later repair needs.
        audits_and_adoptions.drop_looks(layout, release)
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
        "repaired": sum(len(result["repaired"]) for result in results),
        "also_repaired": _by_release(
            (name, len(paths)) for result in results for name, paths in result["also_repaired"].items()
        ),
        "also_in": _by_release(item for result in results for item in result["also_in"].items()),
        "fetched_bytes": sum(result["fetched_bytes"] for result in results),
        "repair_seconds": round(sum(result["seconds"] for result in results), 3),
    }


@contextmanager
def _alone(context: Context, layout: DatasetLayout, release: str, patience: float) -> Iterator[None]:
    """Hold the lock under which only one check with its repair runs at a time."""
    lock = lock_of(context, layout, release, STEP, "gate.lock")
    _patiently(context, layout, lock.__enter__, patience)
    try:
        yield
    finally:
        lock.__exit__(None, None, None)


def _patiently(context: Context, layout: DatasetLayout, work: Callable[[], object], patience: float) -> None:
    """Call `work`, and retry while its lock is taken. Raises LockedError after `patience` seconds."""
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
                context.emit(run_steps.Noted(layout.dataset, STEP, text))
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
    """Repair the release; raise FindingsError if other jobs read it."""
    release = seal.release
    longest = context.config.gc.longest_pin
    read = pins.of_others(
        layout, longest, lambda job, cluster: dataset_state.scheduler(context, job, cluster)
    )
    if held := read.pop(release, []):
        more = f"; and {len(held) - NAMED} more" if len(held) > NAMED else ""
        raise FindingsError(
            "the release is damaged, and is not repaired while others read it",
            where=str(layout.release(release)),
            why=f"{release_records.counts_text(counts)}; "
            f"{'; '.join(pin.words() for pin in held[:NAMED])}{more}",
            hint="when they have ended, run the same again; "
            f"`penstock repair {layout.dataset}` looks at no pin",
        )
    small = sum(counts.values()) * seal.bytes <= REPAIRED_HERE * max(1, seal.files)
    at = _local(context, wish) if small and not wish.repair_there else context
    # Damage shared with other releases is repaired there, too, unless those have readers.
    spared = {name: f"others read it: {release_pins[0].words()}" for name, release_pins in read.items()}
    results: list[RepairResult] = []
    _patiently(
        context,
        layout,
        lambda: results.append(repair_step.run(at, layout.dataset, release, spared=spared)),
        wish.patience,
    )
    return results[0]


def _by_release(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Sum up the counts by name."""
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
    """Check as an account that may not repair. Reads no file's bytes and writes nothing."""
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
    """Add the owner's command to the error."""
    command = f"gate {layout.dataset} --mend"
    owner = user_name(layout.folder.lstat().st_uid)
    return FindingsError(
        error.what,
        where=error.where,
        why=error.why,
        hint=f"{error.hint + '; ' if error.hint else ''}{owner}, who stages this dataset, runs "
        f"`{context.program} {command}`; with --submit as a job",
    )
