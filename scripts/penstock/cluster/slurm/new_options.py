"""What a new configuration asks of SLURM: preflight's own checks try a choice after another.

| the cluster's default partition | others that take such jobs | the choice                        |
|---------------------------------|----------------------------|-----------------------------------|
| takes such jobs                 | not tried                  | the default                       |
| does not, or there is none      | one                        | that one                          |
| does not, or there is none      | several                    | that of the longest time limit    |
| does not, or there is none      | none                       | the default; `refused` says why   |

Where the site allows only some partitions, its first stands for the default, and only its others are tried,
in its order. In each partition a job without an account comes first, then each account of this user; and
`core_spec: auto` before `none`. `site.check` submits preflight's probe, a job of a second.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shutil
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.slurm import core_choice, placement, site
from penstock.cluster.slurm.command_line import SlurmCommands
from penstock.cluster.slurm.probe_job import Probe
from penstock.cluster.slurm.submission import Account
from penstock.config.settings import AUTO_CORES
from penstock.core.errors import FailedError, PreflightError, QueueFullError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.cluster.slurm.facts import Facts, Partition
    from penstock.cluster.slurm.nodes import Node
    from penstock.config.settings import ClusterConfig, JobOptions


class NewOptions(NamedTuple):
    """The choice; jobs do not name a partition or an account of None."""

    partition: str | None = None
    default: bool = True  # jobs that name no partition go there (of the site's: it is the first)
    others: Sequence[str] = ()  # further partitions for such jobs; not searched where the default works
    account: str | None = None
    core_spec: str = AUTO_CORES
    refused: str = ""  # why SLURM, or preflight, takes no such job; "": it does


def is_here() -> bool:
    """Return whether this machine has SLURM's commands."""
    return shutil.which("sbatch") is not None


def find(config: ClusterConfig, steps: Sequence[str], allowed: Sequence[str] = ()) -> NewOptions:
    """Choose options for elements of these steps. `allowed`: the partitions of the site's file; (): any.
    Raises PreflightError where SLURM does not answer."""
    slurm = SlurmCommands()
    facts = site.reachable(slurm)
    try:
        nodes, partitions = slurm.nodes(), sorted(slurm.partitions(), key=_longest_first)
        trials = _Trials(slurm, config, steps, facts, nodes, partitions, _accounts(slurm, facts))
        # Where SLURM shows none (PrivateData), only its default can be tried.
        names = allowed or [partition.name for partition in partitions]
        default = allowed[0] if allowed else placement.default(partitions)
        return choice(default, [name for name in names if name != default], trials.in_partition)
    except (TransientError, FailedError) as error:
        raise PreflightError(
            "SLURM does not answer",
            why=error.why or error.what,
            hint="give `--backend local`, or the same command again when it answers",
        ) from error


class _Trials(NamedTuple):
    slurm: SlurmCommands
    config: ClusterConfig
    steps: Sequence[str]
    facts: Facts
    nodes: Sequence[Node]
    partitions: Sequence[Partition]  # that of the longest time limit first
    accounts: Sequence[str]  # of this user, the default first; (): unknown

    def in_partition(self, name: str | None) -> JobOptions | str:
        """Return the first options that SLURM takes there; else why it refuses the very first."""
        why = ""
        for options in self._options(name):
            refusal = self._refusal(options)
            if not refusal:
                return options
            why = why or refusal
        return why

    def _refusal(self, options: JobOptions) -> str:
        """Explain why such a job is refused, or would never start; "": neither is known."""
        account = options.account or next(iter(self.accounts), "")
        if any(
            not partition.takes(account)
            for partition in self.partitions
            if partition.name == options.partition
        ):
            return f"the partition {options.partition} takes no jobs of the account {account}"
        tried = dataclasses.replace(self.config, options=options, probe=False)
        try:
            # Where an account may have no job at all, preflight's check would only warn.
            self.slurm.trial(site.settled(self.slurm, options, self.facts, self.nodes))
            site.check(self.slurm, tried, self.steps, self.facts, Probe(tried, None, None), met=False)
        except (PreflightError, QueueFullError) as error:
            return error.reason
        return ""

    def _options(self, partition: str | None) -> Iterator[JobOptions]:
        for account in (None, *self.accounts):
            options = dataclasses.replace(self.config.options, partition=partition, account=account)
            yield options
            able_nodes = site.able(self.slurm, options, self.nodes)
            if not core_choice.against(able_nodes, allowed=self.facts.allows_core_spec):
                yield dataclasses.replace(options, core_spec=None)


def choice(
    default: str | None, others: Sequence[str], tried: Callable[[str | None], JobOptions | str]
) -> NewOptions:
    """Choose by the table above. `default`: the first partition to try; None: SLURM's choice. `others`: the
    next, in order. `tried`: returns the options that SLURM takes in a partition, else why it takes none."""
    first = tried(default)
    if not isinstance(first, str):
        return _chosen(default, first)
    taking = {name: options for name in others if not isinstance(options := tried(name), str)}
    if not taking:
        return NewOptions(default, refused=first)
    best, *further = taking
    return _chosen(best, taking[best])._replace(default=False, others=further)


def _longest_first(partition: Partition) -> float:
    return -(partition.max_time or math.inf)


def _chosen(partition: str | None, options: JobOptions) -> NewOptions:
    cores = AUTO_CORES if options.core_spec == AUTO_CORES else "none"
    return NewOptions(partition, account=options.account, core_spec=cores)


def _accounts(slurm: SlurmCommands, facts: Facts) -> Sequence[str]:
    """List this user's accounts; () where accounting has none, or does not answer: SLURM judges the jobs
    anyway."""
    if facts.accounting:
        with contextlib.suppress(TransientError, FailedError, PreflightError):
            return slurm.accounts(facts.cluster, Account.own().name)
    return ()
