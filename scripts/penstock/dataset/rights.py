"""What each command needs of the account that calls it: one table, read by the command line before anything
else. Touches the environment of this process alone.

| needs    | who                                                       | root (uid 0)            |
|----------|-----------------------------------------------------------|-------------------------|
| READS    | whoever may read what it reads                            | yes                     |
| STAGES   | the account that owns the dataset, and no other           | with `--as-root` alone  |
| DECIDES  | the same: it changes what readers get, or what stays      | with `--as-root` alone  |
| ORDERED  | whoever was allowed what this is a part of: a node does   | yes                     |
|          | it for a controller that was asked already                |                         |

Whether an account owns a dataset is looked at where the dataset is opened (`dataset_folders.check_owner`),
and says so with exit status 3. Here is what the command line can say before it reads anything: that root is
refused.
Root owns nothing by mistake then: what root makes, its owners can neither change nor remove, no mode of a
folder stops a late writer of root, and most network mounts squash root.

A command without a row is treated as STAGES; a test fails for it.
"""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.errors import PreflightError
from penstock.core.step_table import typed

if TYPE_CHECKING:
    from collections.abc import Mapping

READS, STAGES, DECIDES, ORDERED = "reads", "stages", "decides", "ordered"
OF_OWNER = frozenset({STAGES, DECIDES})
"""What the dataset's owner alone may do."""
AS_ROOT = "PENSTOCK_AS_ROOT"
"""Environment variable: `1` is the option `--as-root`, for a command and all that it starts."""


_WORKS = frozenset({"run", "audit", "adopt", "preflight", "init"})


class Needs(NamedTuple):
    """What a command needs."""

    right: str
    options: Mapping[str, str] = MappingProxyType({})
    """Of options that were given, by the parser's names: what the command needs then."""


NEEDS: Mapping[str, Needs] = {
    "init": Needs(READS),
    "run": Needs(STAGES, {"dry_run": READS}),
    "explain": Needs(READS),
    "rehearse": Needs(STAGES),
    "status": Needs(READS),
    "path": Needs(READS),
    "gate": Needs(READS, {"mend": STAGES}),
    "after": Needs(READS),
    "releases": Needs(READS),
    "show": Needs(READS),
    "history": Needs(READS),
    # The link's administrator sets its cap, by the modes of its folder.
    "limit": Needs(READS, {"nodes": DECIDES}),
    "metrics": Needs(READS),
    "cancel": Needs(DECIDES),
    "preflight": Needs(READS),
    "list": Needs(STAGES),
    "plan": Needs(STAGES),
    "copy": Needs(STAGES),
    "permissions": Needs(STAGES),
    "verify": Needs(STAGES),
    "publish": Needs(STAGES),
    "report": Needs(READS),
    "audit": Needs(READS, {"overrule": DECIDES}),
    "repair": Needs(STAGES),
    "adopt": Needs(READS, {"seal": STAGES}),
    "diff": Needs(READS),
    "describe": Needs(READS),
    "du": Needs(READS),
    "rollback": Needs(DECIDES),
    "gc": Needs(DECIDES, {"dry_run": READS}),
    "remove": Needs(DECIDES, {"dry_run": READS}),
    "sign": Needs(DECIDES),
    "selftest": Needs(READS),
    "completion": Needs(READS),
    "selftest-writer": Needs(ORDERED),
    "selftest-peer": Needs(ORDERED),
    "list-group": Needs(STAGES),
    "list-failure": Needs(READS),
    "visit": Needs(ORDERED),
    "element": Needs(ORDERED),
}


def needed(command: str, given: Mapping[str, object]) -> str:
    """What a command needs (READS, STAGES, DECIDES or ORDERED) with the options that were given, by the
    parser's names."""
    return _asked(command, given)[0]


def _asked(command: str, given: Mapping[str, object]) -> tuple[str, str]:
    """What is needed, and the command with the option that decided it, as it is typed."""
    needs, command = NEEDS.get(command, Needs(STAGES)), typed(command)
    for option, right in needs.options.items():
        if given.get(option):
            return right, f"{command} --{option.replace('_', '-')}"
    return needs.right, command


def stages(command: str, given: Mapping[str, object]) -> bool:
    """Whether the command works on data at the scale of a cluster, or says beforehand whether it could: the
    site's file refuses it a configuration that takes more than the site gives (`config.site.problems`). All
    others read, decide, or end what runs, and are never stopped by what an administrator has tightened.

    | command                                               | stages |
    |-------------------------------------------------------|--------|
    | needs STAGES or ORDERED                               | yes    |
    | is one of `_WORKS`: it needs less, and does as much   | yes    |
    | needs READS or DECIDES                                | no     |
    """
    return command in _WORKS or needed(command, given) in (STAGES, ORDERED)


def as_root() -> bool:
    """Whether `--as-root` was given, to this process or to one that started it."""
    return os.environ.get(AS_ROOT) == "1"


def grant() -> None:
    """Note the option `--as-root` in the environment: for this process and all that it starts."""
    os.environ[AS_ROOT] = "1"


def handed_on() -> list[str]:
    """The option for a command on a node, which sees nothing of this process's environment."""
    return ["--as-root"] if os.geteuid() == 0 else []


def refuse_root(command: str, given: Mapping[str, object], program: str = "penstock") -> None:
    """Raises PreflightError for root, where the command is for a dataset's owner and root did not ask
    to go on."""
    right, typed = _asked(command, given)
    if os.geteuid() == 0 and right in OF_OWNER and not as_root():
        option = f"`{program} --as-root {typed} ...`, or {AS_ROOT}=1 in the environment"
        raise PreflightError(
            f"root (uid 0) is refused: `{typed}` is for the account that owns the dataset",
            why="others can neither change nor remove what root makes, and no mode stops its late writers",
            hint=f"run it as that account; where root is meant to own it, as in a container: {option}",
        )
