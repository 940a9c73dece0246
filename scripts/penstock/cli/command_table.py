"""The table of commands. A command's module in `penstock.cli.commands` is imported when it is needed. It has:

| name                   | what                                                                            |
|------------------------|---------------------------------------------------------------------------------|
| `arguments(parser)`    | adds its options and arguments                                                  |
| `EXAMPLES`             | two lines for a shell, where a person calls it                                  |
| `run(parsed, session)` | does it, prints what came of it, and returns the exit status                    |
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import step_table

if TYPE_CHECKING:
    from types import ModuleType

# groups in the order of `penstock --help`; commands of other groups work but are not listed
GROUPS = ("stage", "read", "keep", "site")
STEP = "step"  # word before the name of a single step: `penstock step NAME`
HIDDEN = ""
CALLED = "(called by "  # in the summary of a command that penstock or Snakemake calls, not a person


class Command(NamedTuple):
    name: str
    group: str
    summary: str
    module: str = ""  # name of its module in `penstock.cli.commands`; "" if it is the command's name
    # whether it reads standard input, from a person (`init`) or from penstock itself
    reads_input: bool = False
    other_word: str = ""  # word to type instead of the name, if a step has the name
    # text for standard output if the command fails before it printed anything
    on_failure: str = ""

    @property
    def word(self) -> str:
        """The word that people type after `penstock [step]`."""
        return self.other_word or self.name

    @property
    def typed(self) -> str:
        return f"{STEP} {self.word}" if self.group == STEP else self.word

    @property
    def of_people(self) -> bool:
        return CALLED not in self.summary

    @property
    def asks_servers(self) -> bool:
        """Whether `Session.config` checks that the target's servers respond. Other steps wait for servers, or
        check them by themselves."""
        return self.group != STEP and self.name not in ("run", "preflight", "selftest")

    @property
    def examples(self) -> tuple[str, ...]:
        """Lines for a shell. If steps share a module, its examples have STEP in place of the name."""
        lines: tuple[str, ...] = getattr(self.load(), "EXAMPLES", ())
        return tuple(line.replace("STEP", self.name) for line in lines)

    def load(self) -> ModuleType:
        module = self.module or self.name.replace("-", "_")
        return importlib.import_module(f"penstock.cli.commands.{module}")


def _step(name: str, group: str = STEP, module: str = "") -> Command:
    return Command(name, group, step_table.BY_NAME[name].summary, module)


COMMANDS = (
    Command("init", "stage", "write a configuration for this machine: penstock.yaml", reads_input=True),
    Command("run", "stage", "stage datasets: all steps, through Snakemake"),
    Command("explain", "stage", "how long the next run will take, and what binds it", other_word="plan"),
    Command("rehearse", "stage", "copy a sample and remove it: what this node, source and target can do"),
    Command("status", "stage", "what is published, what runs, what is left to do"),
    Command("cancel", "stage", "end a dataset's arrays; its controller stops too"),
    Command("path", "read", "print the folder that a training job reads"),
    Command("gate", "read", "exit 0 when a published release is there, 4 when not"),
    Command(
        "after",
        "read",
        "print the option of sbatch by which a job waits for its datasets",
        on_failure="--penstock-after-has-failed",
    ),
    Command("releases", "keep", "the releases of all datasets below the target: size, grade, age, audits"),
    Command("show", "keep", "one release in detail: what its seal, audits and history say"),
    Command("diff", "keep", "two releases compared, or a release and its source now"),
    Command("rollback", "keep", "make an earlier release current again"),
    _step("audit", "keep"),
    _step("repair", "keep"),
    Command("gc", "keep", "remove releases that no rule, reader or run holds"),
    Command("remove", "keep", "remove releases by name, or a dataset with all of them"),
    Command("history", "keep", "what was published, repaired and moved of a dataset"),
    Command("du", "keep", "how much room datasets take, and what each release would free"),
    _step("adopt", "keep"),
    _step("preflight", "site"),
    Command("selftest", "site", "try a folder's file system, and print what it does as a table"),
    Command("limit", "site", "show or set the cap of the link, or how many nodes a dataset's elements take"),
    Command("metrics", "site", "figures of all datasets below a root for Prometheus, as a text file"),
    Command("completion", "site", "print what makes a shell complete this command line"),
    _step("list"),
    _step("plan"),
    _step("copy", module="single_step"),
    _step("permissions", module="single_step"),
    _step("verify", module="single_step"),
    _step("publish", module="single_step"),
    Command("list-group", STEP, "preflight and list (called by Snakemake)"),
    Command("list-failure", STEP, "end as a listing ended (called by Snakemake)"),
    Command("sign", HIDDEN, "sign a release that was published without a signature"),
    Command("describe", HIDDEN, "describe a release for catalogues and loaders: Croissant"),
    _step("report", HIDDEN),
    Command("selftest-writer", HIDDEN, "write files until killed (called by selftest)"),
    Command(
        "selftest-peer", HIDDEN, "try a folder on one of two nodes (called by selftest)", reads_input=True
    ),
    Command("visit", HIDDEN, "open a dataset's sources on a node (called by preflight)", reads_input=True),
    Command("element", HIDDEN, "the work of one array element (called by the cluster)"),
)


def find(name: str) -> Command:
    return {command.name: command for command in COMMANDS}[name]
