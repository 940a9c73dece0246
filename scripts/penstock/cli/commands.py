"""The table of commands. A command's module is imported by `load`, only when the command runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import step_table

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session

Run = Callable[["argparse.Namespace", "Session"], int]

GROUPS = ("stage", "read", "keep", "site")
"""What `penstock --help` shows, in this order. Commands of other groups work, and are not listed there."""
STEP = "step"
"""The group of the single steps: `penstock step NAME`."""
HIDDEN = ""
CALLED = "(called by "
"""Stands in the summary of a command that penstock or Snakemake calls, and no person."""


class Command(NamedTuple):
    """One subcommand. `datasets` is how many names it takes: `none`, `one`, `some` (none of them
    means all), `apart` (arguments of its own, see `parser`)."""

    name: str
    group: str
    summary: str
    where: str
    """`module:function` below `penstock.cli`."""
    datasets: str = "some"
    examples: tuple[str, ...] = ()
    """Lines for a shell: at the end of its help, and in the manual page."""

    @property
    def typed(self) -> str:
        """The words after `penstock`."""
        return f"{STEP} {self.name}" if self.group == STEP else self.name

    @property
    def of_people(self) -> bool:
        """Whether a person calls it."""
        return CALLED not in self.summary

    def load(self) -> Run:
        module, _, function = self.where.partition(":")
        found: Run = getattr(importlib.import_module(f"penstock.cli.{module}"), function)
        return found


def _of_step(
    name: str, group: str, where: str, datasets: str = "some", examples: tuple[str, ...] = ()
) -> Command:
    return Command(name, group, step_table.BY_NAME[name].summary, where, datasets, examples)


def _single(name: str) -> Command:
    examples = (f"penstock step {name} imagenet", f"penstock step {name} imagenet --receipt {name}.json")
    return _of_step(name, STEP, "step_commands:run", examples=examples)


COMMANDS = (
    Command(
        "init",
        "stage",
        "write a configuration for this machine: penstock.yaml",
        "init_command:run",
        "apart",
        (
            "penstock init /nfs/imagenet /beegfs/datasets",
            "penstock init s3://bucket/imagenet/ /beegfs/datasets --profile staging",
        ),
    ),
    Command(
        "run",
        "stage",
        "stage datasets: all steps, through Snakemake",
        "run_command:run",
        examples=("penstock run", "penstock run imagenet --submit"),
    ),
    Command(
        "status",
        "stage",
        "what is published, what runs, what is left to do",
        "state_commands:status",
        examples=("penstock status", "penstock status imagenet --progress json"),
    ),
    Command(
        "cancel",
        "stage",
        "end a dataset's arrays; its controller stops too",
        "state_commands:cancel",
        examples=("penstock cancel imagenet", "penstock cancel imagenet --root /beegfs/datasets"),
    ),
    Command(
        "path",
        "read",
        "print the folder that a training job reads",
        "state_commands:path",
        "one",
        (
            "data=$(penstock path imagenet --job) || exit 1",
            "data=$(penstock path imagenet --root /beegfs/datasets --job) || exit 1",
        ),
    ),
    Command(
        "gate",
        "read",
        "exit 0 when a published release is there, 4 when not",
        "state_commands:gate",
        "one",
        (
            "penstock gate imagenet && sbatch train.sh",
            "penstock gate imagenet --audited-within 30d --mend",
        ),
    ),
    Command(
        "releases",
        "keep",
        "the releases of all datasets below the target: size, grade, age, audits",
        "catalogue_commands:releases",
        examples=("penstock releases imagenet", "penstock releases --root /beegfs/datasets --json"),
    ),
    Command(
        "show",
        "keep",
        "one release in detail: what its seal, audits and history say",
        "catalogue_commands:show",
        "apart",
        ("penstock show imagenet", "penstock show imagenet 20261101-1f2e3d4c --json"),
    ),
    Command(
        "diff",
        "keep",
        "two releases compared, or a release and its source now",
        "catalogue_commands:diff",
        "apart",
        ("penstock diff imagenet --source", "penstock diff imagenet 20261101-1f2e3d4c --exit-code"),
    ),
    Command(
        "rollback",
        "keep",
        "make an earlier release current again",
        "retention_commands:rollback",
        "apart",
        ("penstock rollback imagenet", "penstock rollback imagenet 20261101-1f2e3d4c"),
    ),
    _of_step(
        "audit",
        "keep",
        "audit_commands:audit",
        examples=("penstock audit imagenet --fraction 1/30", "penstock audit imagenet --limit 200MiB/s"),
    ),
    _of_step(
        "repair",
        "keep",
        "audit_commands:repair",
        examples=("penstock repair imagenet", "penstock repair imagenet --release 20261101-1f2e3d4c"),
    ),
    Command(
        "gc",
        "keep",
        "remove releases that no rule, reader or run holds",
        "retention_commands:gc",
        examples=("penstock gc --dry-run", "penstock gc imagenet --unpin job-4711"),
    ),
    Command(
        "remove",
        "keep",
        "remove releases by name, or a dataset with all of them",
        "retention_commands:remove",
        "apart",
        (
            "penstock remove imagenet 20261101-1f2e3d4c --dry-run",
            "penstock remove imagenet --all --now",
        ),
    ),
    Command(
        "history",
        "keep",
        "what was published, repaired and moved of a dataset",
        "catalogue_commands:history",
        "apart",
        ("penstock history imagenet", "penstock history imagenet --all --json"),
    ),
    Command(
        "du",
        "keep",
        "how much room datasets take, and what each release would free",
        "catalogue_commands:du",
        examples=("penstock du imagenet", "penstock du --root /beegfs/datasets"),
    ),
    _of_step(
        "adopt",
        "keep",
        "adopt_command:run",
        "apart",
        (
            "penstock adopt imagenet /beegfs/old/imagenet",
            "penstock adopt imagenet /beegfs/old/imagenet --seal --leave-extra",
        ),
    ),
    _of_step(
        "preflight",
        "site",
        "preflight_command:run",
        examples=("penstock preflight", "penstock preflight --sysctl netapp-100g"),
    ),
    Command(
        "selftest",
        "site",
        "try a folder's file system, and print what it does as a table",
        "selftest_command:run",
        "apart",
        ("penstock selftest /beegfs/datasets", "penstock selftest --json"),
    ),
    Command(
        "limit",
        "site",
        "show or set the cap of the link, or how many nodes a dataset's elements take",
        "limit_command:run",
        "none",
        ("penstock limit 40Gbit/s", "penstock limit imagenet --nodes 2"),
    ),
    Command(
        "completion",
        "site",
        "print what makes a shell complete this command line",
        "completion_command:run",
        "apart",
        ('eval "$(penstock completion bash)"', "penstock completion fish | source"),
    ),
    *map(_single, step_table.SINGLE),
    Command("list-group", STEP, "preflight and list (called by Snakemake)", "list_commands:group"),
    Command(
        "list-failure", STEP, "end as a listing ended (called by Snakemake)", "list_commands:failed", "one"
    ),
    Command(
        "sign",
        HIDDEN,
        "sign a release that was published without a signature",
        "sign_command:run",
        "apart",
        ("penstock sign imagenet", "penstock sign imagenet 20261101-1f2e3d4c"),
    ),
    Command(
        "describe",
        HIDDEN,
        "describe a release for catalogues and loaders: Croissant",
        "describe_command:run",
        "apart",
        ("penstock describe imagenet", "penstock describe imagenet 20261101-1f2e3d4c > croissant.json"),
    ),
    _of_step(
        "report",
        HIDDEN,
        "step_commands:run",
        examples=("penstock report imagenet", "penstock report imagenet --html report.html"),
    ),
    Command(
        "selftest-writer",
        HIDDEN,
        "write files until killed (called by selftest)",
        "selftest_command:write",
        "apart",
    ),
    Command(
        "selftest-peer",
        HIDDEN,
        "try a folder on one of two nodes (called by selftest)",
        "selftest_command:peer",
        "apart",
    ),
    Command(
        "visit",
        HIDDEN,
        "open a dataset's sources on a node (called by preflight)",
        "visit_command:run",
        "apart",
    ),
    Command(
        "element",
        HIDDEN,
        "the work of one array element (called by the cluster)",
        "element_command:run",
        "apart",
    ),
)


def find(name: str) -> Command:
    """The command of this name. Raises KeyError."""
    return {command.name: command for command in COMMANDS}[name]
