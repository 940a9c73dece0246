"""The table of commands. Nothing here imports what a command needs: `load` does, when it runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session

Run = Callable[["argparse.Namespace", "Session"], int]


class Command(NamedTuple):
    """One subcommand. `datasets` is how many names it takes: `none`, `one`, `some` (none of them
    means all), `apart` (arguments of its own, see `parser`)."""

    name: str
    summary: str
    where: str
    """`module:function` below `penstock.cli`."""
    datasets: str = "some"
    hidden: bool = False

    def load(self) -> Run:
        module, _, function = self.where.partition(":")
        found: Run = getattr(importlib.import_module(f"penstock.cli.{module}"), function)
        return found


_STEP = "step_commands:run"

COMMANDS = (
    Command("run", "stage datasets, all steps, through Snakemake; the usual command", "run_command:run"),
    Command("status", "what is published, what runs, what is left to do", "state_commands:status"),
    Command("path", "print the folder that a training job reads", "state_commands:path", "one"),
    Command("gate", "exit 0 when a published release is there, 4 when not", "state_commands:gate", "one"),
    Command("submit", "run the controller itself as a small SLURM job", "submit_command:run"),
    Command("cancel", "end a dataset's arrays; its controller stops too", "state_commands:cancel"),
    Command("preflight", "try target, source and cluster; change nothing", _STEP),
    Command("list", "list the source and freeze what is to be staged", _STEP),
    Command("plan", "check names, compare with the current release, balance shards", _STEP),
    Command("copy", "copy all shards into staging", _STEP),
    Command("permissions", "set and check owner, group and modes in staging", _STEP),
    Command("verify", "read back what was stored, past the caches, and compare", _STEP),
    Command("publish", "walk once more, seal, and reveal the release by one rename", _STEP),
    Command("report", "write the HTML report and the closing summary", _STEP),
    Command(
        "audit", "read a published release back and compare it with its manifest", "audit_commands:audit"
    ),
    Command("repair", "fetch anew what the last audit found damaged, and only that", "audit_commands:repair"),
    Command("list-group", "preflight and list (called by Snakemake)", "list_commands:group", "some", True),
    Command(
        "list-failure", "end as a listing ended (called by Snakemake)", "list_commands:failed", "one", True
    ),
    Command(
        "visit",
        "open a dataset's sources on a node (called by preflight)",
        "visit_command:run",
        "apart",
        True,
    ),
    Command(
        "element",
        "the work of one array element (called by the cluster)",
        "element_command:run",
        "apart",
        True,
    ),
)


def find(name: str) -> Command:
    """The command of this name. Raises KeyError."""
    return {command.name: command for command in COMMANDS}[name]
