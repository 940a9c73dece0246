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
_OWN = {"preflight": "preflight_command:run"}
"""Steps whose command has options of its own."""
_DESCRIBE = "describe_command:run"
_SELFTEST = "selftest_command:run"

COMMANDS = (
    Command("run", "stage datasets, all steps, through Snakemake; the usual command", "run_command:run"),
    Command("status", "what is published, what runs, what is left to do", "state_commands:status"),
    Command("path", "print the folder that a training job reads", "state_commands:path", "one"),
    Command("gate", "exit 0 when a published release is there, 4 when not", "state_commands:gate", "one"),
    Command(
        "releases",
        "the releases of all datasets below the target: size, grade, age, audits",
        "catalogue_commands:releases",
    ),
    Command(
        "show",
        "one release in detail: what its seal, audits and history say",
        "catalogue_commands:show",
        "apart",
    ),
    Command("du", "how much room datasets take, and what each release would free", "catalogue_commands:du"),
    Command(
        "diff", "two releases compared, or a release and its source now", "catalogue_commands:diff", "apart"
    ),
    Command(
        "history",
        "what was published, repaired and moved of a dataset",
        "catalogue_commands:history",
        "apart",
    ),
    Command("submit", "run the controller itself as a small SLURM job", "submit_command:run"),
    Command("limit", "show or set the cap of the link that all runs share", "limit_command:run", "none"),
    Command("cancel", "end a dataset's arrays; its controller stops too", "state_commands:cancel"),
    Command("throttle", "change how many elements run at once, now", "state_commands:throttle", "apart"),
    *(Command(name, step_table.BY_NAME[name].summary, _OWN.get(name, _STEP)) for name in step_table.OF_RUN),
    Command("audit", step_table.BY_NAME["audit"].summary, "audit_commands:audit"),
    Command("adopt", step_table.BY_NAME["adopt"].summary, "adopt_command:run", "apart"),
    Command("repair", step_table.BY_NAME["repair"].summary, "audit_commands:repair"),
    Command("describe", "describe a release for catalogues and loaders: Croissant", _DESCRIBE, "apart"),
    Command("gc", "remove releases that no rule, reader or run holds", "retention_commands:gc"),
    Command("remove", "remove releases, by name", "retention_commands:remove", "apart"),
    Command("unpin", "take readers' pins back, by name", "retention_commands:unpin", "apart"),
    Command("rollback", "make an earlier release current again", "retention_commands:rollback", "apart"),
    Command("sign", "sign a release that was published without a signature", "sign_command:run", "apart"),
    Command("selftest", "try a folder's file system, and print what it does as a table", _SELFTEST, "apart"),
    Command(
        "selftest-writer",
        "write files until killed (called by selftest)",
        "selftest_command:write",
        "apart",
        True,
    ),
    Command(
        "selftest-peer",
        "try a folder on one of two nodes (called by selftest)",
        "selftest_command:peer",
        "apart",
        True,
    ),
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
