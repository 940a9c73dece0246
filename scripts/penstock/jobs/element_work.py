"""An element's work on a shard: a table of functions, one for each step.

A step's function continues where earlier attempts stopped. It returns the outcome of the rows, and the
receipt's fields that only this step has. For copy and verify a wrong row is a failure: they end when every
row is right. For the other steps it is a result: they end when every row was read.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.element_documents import ElementReceipt
from penstock.core.errors import FailedError
from penstock.core.layout import DATA, MANIFEST
from penstock.dataset import documents, receipts, release_records
from penstock.fs import small_files
from penstock.host.kernel_facts import host_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.core.run_documents import ShardInfo
    from penstock.dataset.context import Stop
    from penstock.dataset.documents import Run
    from penstock.dataset.receipts import Reporter
    from penstock.engine.tasks import CopyTask, Outcome
    from penstock.jobs.bandwidth import LinkShare
    from penstock.jobs.shard_claims import Claim


class Paces(NamedTuple):
    """Limits shared with other elements: on metadata operations below the root, on bytes from sources."""

    ops: Callable[[], float] | None
    bandwidth: LinkShare | None


class Attempt(NamedTuple):
    run: Run
    shard: ShardInfo
    claim: Claim
    reporter: Reporter
    stop: Stop
    paces: Paces
    room: Callable[[], None]  # raises NoSpaceError if there is no room for this process's writes
    fed: Callable[[], bool] | None = None  # as in `CopyTask`
    rests: Callable[[int], bool] | None = None  # as in `RereadTask`
    beside: bool = False  # whether the process copies at the same time

    @property
    def name(self) -> str:
        return self.claim.content.worker

    def look(self) -> None:
        """Raise InterruptedRunError after a signal, ClaimLostError if another process has the shard."""
        self.stop.signalled()
        self.claim.look()

    def check(self) -> None:
        """Look, and wait while the PAUSE file exists."""
        self.stop.check()
        self.look()

    def go_on(self) -> None:
        """Look, and raise NoSpaceError if the target has no room."""
        self.look()
        self.room()

    @property
    def rows(self) -> Path:
        return self.run.folder.shard(self.shard.index)

    def share_of(self, recall: int) -> int:
        """Return this shard's part of the `recall` bytes to fetch back from tiered storage."""
        return recall * self.shard.bytes // max(1, self.run.plan.bytes)


def _copy(attempt: Attempt) -> tuple[Outcome, ElementReceipt]:
    from penstock.engine.copy_shard import copy_shard
    from penstock.jobs import run_cleanup

    run, folder = attempt.run, attempt.run.folder
    data = _there(run.data, "the staging folder is not here", "plan again")
    base = run.plan.base
    task = replace(
        _copy_task(attempt, data),
        base=run.layout.release(base) / DATA if base else None,
        way=run.plan.way,
        moves=run.layout.intervals,
        moved=release_records.moves_of(run.layout, run.release),
        intervals=release_records.intervals(run.layout) if run.plan.carries else None,
        stated=folder.stated if folder.stated.exists() else None,
        stagings=run_cleanup.planned(run),
        may_change=run.config.dataset.follow_limit.allowed(run.info.files),
        fed=attempt.fed,
    )
    outcome = copy_shard(task, attempt.reporter, attempt.go_on, *attempt.paces)
    return outcome, ElementReceipt(amended=outcome.amended, gone=outcome.gone)


def _verify(attempt: Attempt) -> tuple[Outcome, ElementReceipt]:
    from penstock.engine import sizing
    from penstock.engine.reread_shard import reread_shard
    from penstock.engine.tasks import RereadTask

    run, index = attempt.run, attempt.shard.index
    folder, config = run.folder, run.config
    data = _there(run.data, "the staging folder is not here", "plan again")
    copied_by = receipts.copied_by(folder, index)
    records = folder.records(index)
    small_files.make_dirs(records.parent)
    if run.plan.giants:
        from penstock.tables.run_tables import giants
        from penstock.target import modes

        # All parts of these giants are copied. Attributes set after verify's reading would change the ctime.
        policy = config.dataset.permissions
        modes.finish_giants(data, policy, modes.group_id(policy), giants(attempt.rows))
    task = RereadTask(
        shard=attempt.shard,
        rows=attempt.rows,
        journals=folder.journals(index),
        data=data,
        records=records,
        engine=sizing.beside(config.engine) if attempt.beside else config.engine,
        verify=config.verify,
        run=run.id,
        attempt=attempt.name,
        host=host_name(),
        rests=attempt.rests,
        fed=attempt.fed,
        follow=config.dataset.changed == "follow",
        way=run.plan.way,
        probe=run.probe,
        named=config.filesystem,
        recall=attempt.share_of(config.audit.recall),
        damage=folder.linked_damage / f"{index:05d}",
    )
    # If a linked file had wrong bytes, all files are read.
    if (base := run.plan.base) and run.plan.carries and not folder.linked_damage.exists():
        from penstock.jobs import audit_store

        task = replace(
            task,
            longest=config.verify.carries_for,
            base_manifest=run.layout.release(base) / MANIFEST,
            intervals=release_records.intervals(run.layout),
            audited=audit_store.of(run.layout, base),
        )
    if (adopted := folder.survey(index)).is_dir():
        task = replace(task, adopted=adopted)
    outcome = reread_shard(task, attempt.reporter, attempt.look)
    if outcome.failures:
        return outcome, ElementReceipt()
    return outcome, ElementReceipt(
        copied_by=copied_by,
        records=receipts.file_digest(records),
        amended=outcome.amended,
        gone=outcome.gone,
        left_out=outcome.left_out,
        carried=outcome.carried,
    )


def _repair(attempt: Attempt) -> tuple[Outcome, ElementReceipt]:
    """Fetch a shard of a published release's damaged files. A failed fetch is no failure of the element."""
    from penstock.core import findings
    from penstock.engine.repair_shard import repair_shard

    run = attempt.run
    staging = run.layout.repair_staging(run.release) / DATA
    task = _copy_task(attempt, _there(staging, "the repair's staging is not here", "run the repair again"))
    release, named = run.layout.release(run.release) / DATA, run.config.filesystem
    outcome, result = repair_shard(
        task, release, attempt.reporter, attempt.go_on, *attempt.paces, named=named
    )
    fetched = run.folder.fetched(attempt.shard.index)
    documents.write(findings.FETCHED_FILES, fetched, result)
    left = sum(bool(file.why) for file in result.files)
    return outcome, ElementReceipt(findings=left, seen=receipts.file_digest(fetched))


def _audit(attempt: Attempt) -> tuple[Outcome, ElementReceipt]:
    """Read a shard of a published release. A finding is no failure of the element."""
    from penstock.engine.shard_readings import AuditTask, audit_shard
    from penstock.jobs import audit_store

    run, described = attempt.run, audit_store.described(attempt.run.folder)
    task = AuditTask(
        shard=attempt.shard,
        rows=attempt.rows,
        data=run.layout.release(run.release) / DATA,
        state=run.folder.audited_rows(attempt.shard.index),
        engine=run.config.engine,
        probe=run.probe,
        named=described.filesystem,
        recall=attempt.share_of(described.recall),
        direct=described.direct,
    )
    small_files.make_dirs(task.state.parent)
    outcome, audited = audit_shard(task, attempt.reporter, attempt.look)
    return outcome, ElementReceipt(findings=len(audited.bad), seen=receipts.file_digest(task.state))


def _adopt(attempt: Attempt) -> tuple[Outcome, ElementReceipt]:
    """Compare a shard of a listing with a tree. A difference is no failure of the element."""
    from penstock.engine.shard_readings import SurveyTask, survey_shard
    from penstock.jobs import adoption_store

    run, config = attempt.run, attempt.run.config
    described = adoption_store.described(run.folder)
    task = SurveyTask(
        shard=attempt.shard,
        rows=attempt.rows,
        data=Path(described.tree),
        survey=run.folder.survey(attempt.shard.index),
        dataset=config.dataset,
        engine=config.engine,
        verify=config.verify,
        plan=config.plan,
        host=host_name(),
        read_source=described.read_source,
        named=described.filesystem,
        recall=attempt.share_of(described.recall),
    )
    small_files.make_dirs(task.survey)
    return survey_shard(task, attempt.reporter, attempt.check, attempt.paces.bandwidth), ElementReceipt()


# The functions by the names of `core.run_steps.IN_ELEMENTS`.
WORK: Mapping[str, Callable[[Attempt], tuple[Outcome, ElementReceipt]]] = {
    "copy": _copy,
    "verify": _verify,
    "audit": _audit,
    "adopt": _adopt,
    "repair": _repair,
}


def _there(data: Path, what: str, hint: str) -> Path:
    if not data.is_dir():
        raise FailedError(what, where=str(data), hint=hint)
    return data


def _copy_task(attempt: Attempt, data: Path) -> CopyTask:
    from penstock.engine.tasks import CopyTask
    from penstock.target import modes

    run, config = attempt.run, attempt.run.config
    return CopyTask(
        shard=attempt.shard,
        rows=attempt.rows,
        journals=run.folder.journals(attempt.shard.index),
        data=data,
        dataset=config.dataset,
        engine=config.engine,
        run=run.id,
        attempt=attempt.name,
        host=host_name(),
        verify=config.verify,
        probe=run.probe,
        gid=modes.group_id(config.dataset.permissions),
    )
