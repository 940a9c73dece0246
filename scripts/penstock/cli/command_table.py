"""The table of commands. A command's module in `penstock.cli.commands` is imported when it is needed. It has
a constant with the name of each of its commands (`GC`, `LIST_GROUP`): the command's `CommandFunctions`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import run_steps

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from penstock.cli.session import Session

# groups of commands in the order of `penstock --help`; commands of other groups work, but are not listed
GROUPS = ("stage", "read", "keep", "site")
STEP = "step"  # word before the name of a single step: `penstock step NAME`
HIDDEN = ""
CALLED = "(called by "  # words in the summary of a command that penstock or Snakemake calls, and not a person


class CommandFunctions(NamedTuple):
    # adds the command's options and arguments to a parser
    arguments: Callable[[argparse.ArgumentParser], None]
    # carries out the command, prints its result, and returns the exit status
    run: Callable[[argparse.Namespace, Session], int]
    examples: tuple[str, ...] = ()  # two example lines for a shell, if people call the command


class Command(NamedTuple):
    name: str
    group: str
    module: str  # name of the command's module in `penstock.cli.commands`
    summary: str
    # whether the command reads standard input, from a person (`init`) or from penstock itself
    reads_input: bool = False
    other_word: str = ""  # word to type instead of the name, if a step has this name
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
        """Lines for a shell. Steps that share their functions have STEP in place of the name."""
        return tuple(line.replace("STEP", self.name) for line in self.load().examples)

    def load(self) -> CommandFunctions:
        module = importlib.import_module(f"penstock.cli.commands.{self.module}")
        functions: CommandFunctions = getattr(module, self.name.replace("-", "_").upper())
        return functions


def _step(name: str, group: str, module: str) -> Command:
    return Command(name, group, module, run_steps.BY_NAME[name].summary)


COMMANDS = (
    Command(
        "init",
        "stage",
        "site_setup",
        "write a configuration for this machine: penstock.yaml",
        reads_input=True,
    ),
    Command("run", "stage", "run", "stage datasets: all steps, through Snakemake"),
    Command(
        "explain",
        "stage",
        "stagings",
        "how long the next run will take, and what binds it",
        other_word="plan",
    ),
    Command(
        "rehearse",
        "stage",
        "stagings",
        "copy a sample and remove it: what this node, source and target can do",
    ),
    Command("status", "stage", "stagings", "what is published, what runs, what is left to do"),
    Command("cancel", "stage", "stagings", "end a dataset's arrays; its controller stops too"),
    Command("path", "read", "reader_gates", "print the folder that a training job reads"),
    Command("gate", "read", "reader_gates", "exit 0 when a published release is there, 4 when not"),
    Command(
        "after",
        "read",
        "reader_gates",
        "print the option of sbatch by which a job waits for its datasets",
        on_failure="--penstock-after-has-failed",
    ),
    Command(
        "releases",
        "keep",
        "releases",
        "the releases of all datasets below the target: size, grade, age, audits",
    ),
    Command("show", "keep", "releases", "one release in detail: what its seal, audits and history say"),
    Command("diff", "keep", "comparisons", "two releases compared, or a release and its source now"),
    Command("rollback", "keep", "retention", "make an earlier release current again"),
    _step("audit", "keep", "audits"),
    _step("repair", "keep", "audits"),
    Command("gc", "keep", "retention", "remove releases that no rule, reader or run holds"),
    Command("remove", "keep", "retention", "remove releases by name, or a dataset with all of them"),
    Command("history", "keep", "releases", "what was published, repaired and moved of a dataset"),
    Command("du", "keep", "releases", "how much room datasets take, and what each release would free"),
    _step("adopt", "keep", "comparisons"),
    _step("preflight", "site", "site_setup"),
    Command(
        "selftest", "site", "site_setup", "try a folder's file system, and print what it does as a table"
    ),
    Command(
        "limit",
        "site",
        "stagings",
        "show or set the cap of the link, or how many nodes a dataset's elements take",
    ),
    Command(
        "metrics", "site", "stagings", "figures of all datasets below a root for Prometheus, as a text file"
    ),
    Command("completion", "site", "completion", "print what makes a shell complete this command line"),
    _step("list", STEP, "single_steps"),
    _step("plan", STEP, "single_steps"),
    _step("copy", STEP, "single_steps"),
    _step("permissions", STEP, "single_steps"),
    _step("verify", STEP, "single_steps"),
    _step("publish", STEP, "single_steps"),
    Command("list-group", STEP, "single_steps", "preflight and list (called by Snakemake)"),
    Command("list-failure", STEP, "single_steps", "end as a listing ended (called by Snakemake)"),
    Command("sign", HIDDEN, "audits", "sign a release that was published without a signature"),
    Command("describe", HIDDEN, "audits", "describe a release for catalogues and loaders: Croissant"),
    _step("report", HIDDEN, "single_steps"),
    Command("selftest-writer", HIDDEN, "node_calls", "write files until killed (called by selftest)"),
    Command(
        "selftest-peer",
        HIDDEN,
        "node_calls",
        "try a folder on one of two nodes (called by selftest)",
        reads_input=True,
    ),
    Command(
        "visit",
        HIDDEN,
        "node_calls",
        "open a dataset's sources on a node (called by preflight)",
        reads_input=True,
    ),
    Command("element", HIDDEN, "node_calls", "the work of one array element (called by the cluster)"),
)


def find(name: str) -> Command:
    return {command.name: command for command in COMMANDS}[name]
