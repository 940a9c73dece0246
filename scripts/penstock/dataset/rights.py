"""The right that each command requires of its account. The command line checks it first.

| right    | who has it                                                | root (uid 0)            |
|----------|-----------------------------------------------------------|-------------------------|
| READS    | any account that may read the files                       | yes                     |
| STAGES   | the dataset's owner                                       | with `--as-root` only   |
| DECIDES  | the owner: it changes what readers get, or what stays     | with `--as-root` only   |
| ORDERED  | a node, working for a controller that passed its check    | yes                     |

Opening the dataset checks its owner (`dataset_folders.check_owner`, exit status 3). Root is rejected earlier:
owners cannot change files that root makes, no mode stops root's late writers, and most network mounts squash
root. A command missing in the code's table counts as STAGES, and a test fails for it.
"""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.errors import PreflightError
from penstock.core.run_steps import typed

if TYPE_CHECKING:
    from collections.abc import Mapping

READS, STAGES, DECIDES, ORDERED = "reads", "stages", "decides", "ordered"
OF_OWNER = frozenset({STAGES, DECIDES})  # rights of the dataset's owner alone
# environment variable: `1` has the effect of `--as-root` on a command and all processes that it starts
AS_ROOT = "PENSTOCK_AS_ROOT"


_WORKS = frozenset({"run", "audit", "adopt", "preflight", "init"})


class Needs(NamedTuple):
    """The right that a command needs."""

    right: str
    # the right that the command needs if an option is given, by the parser's name of the option
    options: Mapping[str, str] = MappingProxyType({})


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
    # The modes of its folder decide who may set a link's cap.
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


def needed(command: str, options: Mapping[str, object]) -> str:
    """Return the right that a command needs with these options (the parser's names)."""
    return _asked(command, options)[0]


def _asked(command: str, chosen: Mapping[str, object]) -> tuple[str, str]:
    """Return the right that is needed, and the command and option that decided it, as typed."""
    needs, command = NEEDS.get(command, Needs(STAGES)), typed(command)
    for option, right in needs.options.items():
        if chosen.get(option):
            return right, f"{command} --{option.replace('_', '-')}"
    return needs.right, command


def stages(command: str, options: Mapping[str, object]) -> bool:
    """Whether the command moves data at a cluster's scale, or predicts whether it could.

    Only such commands fail if the configuration exceeds the site's limits (`config.site.problems`). All
    others read, decide or stop work, and an administrator's tighter limits never stop them.

    | command                                               | stages |
    |-------------------------------------------------------|--------|
    | needs STAGES or ORDERED                               | yes    |
    | is in `_WORKS`: it needs less, but moves as much      | yes    |
    | needs READS or DECIDES                                | no     |
    """
    return command in _WORKS or needed(command, options) in (STAGES, ORDERED)


def as_root() -> bool:
    """Whether `--as-root` was given to this process or to a process above it."""
    return os.environ.get(AS_ROOT) == "1"


def grant() -> None:
    """Store the option `--as-root` in the environment, for this process and all processes that it starts."""
    os.environ[AS_ROOT] = "1"


def handed_on() -> list[str]:
    """Return the option `--as-root`, if given, for a command on a node that lacks this environment."""
    return ["--as-root"] if os.geteuid() == 0 else []


def refuse_root(command: str, options: Mapping[str, object], program: str = "penstock") -> None:
    """Raise PreflightError if root calls a command for owners without `--as-root`."""
    right, typed = _asked(command, options)
    if os.geteuid() == 0 and right in OF_OWNER and not as_root():
        option = f"`{program} --as-root {typed} ...`, or {AS_ROOT}=1 in the environment"
        raise PreflightError(
            f"root (uid 0) is refused: `{typed}` is for the account that owns the dataset",
            why="others can neither change nor remove what root makes, and no mode stops its late writers",
            hint=f"run it as that account; where root is meant to own it, as in a container: {option}",
        )
