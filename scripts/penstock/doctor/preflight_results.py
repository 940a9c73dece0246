"""What one preflight saw: the results of all checks and the errors among them, what the file systems of
folders answer to this machine, each within a deadline, and a node's answer beside that of this machine.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
from penstock.cluster.registry import constrained_cores
from penstock.config.source_kinds import FOLDER, folder, of_url
from penstock.core import human, node_answer
from penstock.core.errors import (
    ConfigError,
    InterruptedRunError,
    PenstockError,
    PreflightError,
    TargetAwayError,
    all_of,
)
from penstock.core.human import printable, printable_lines
from penstock.core.node_answer import MountSeen, NodeCores
from penstock.core.run_steps import VERDICTS, CheckResult, sentence
from penstock.fs import weka
from penstock.fs.watched_facts import TARGET, SilentFolder, watched_facts
from penstock.host import command, machine_settings
from penstock.host.kernel_facts import PROC, Root
from penstock.host.machine_settings import SYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.config.settings import BandwidthConfig, SourceConfig, TargetConfig
    from penstock.core.node_answer import NodeAnswer, OwnerSeen
    from penstock.core.run_steps import Verdict
    from penstock.core.step_results import PreflightResult
    from penstock.dataset.context import Context
    from penstock.fs.capabilities import StorageFacts


# Collects the results and errors of all checks of a preflight. Also reads the facts about the file systems
# of its folders, within a deadline, so that an unresponsive file system blocks no check.


class Answers:
    """Facts about folders' file systems, which are all queried at once. A folder whose file system does not
    respond is silent; make no further call on such a folder."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._facts = watched_facts(list(folders))

    def silent(self, *folders: Path | None) -> bool:
        """Return whether any of these folders is unresponsive."""
        return any(isinstance(self._facts.get(path), SilentFolder) for path in folders if path is not None)

    def require(self, path: Path, what: str) -> None:
        """If the folder is unresponsive, raise PreflightError, or TargetAwayError if `what` is `TARGET`.
        `what` describes the folder in the message."""
        answer = self._facts[path]
        if isinstance(answer, SilentFolder):
            raise answer.error(what, TargetAwayError if what == TARGET else PreflightError)

    def facts(self, path: Path, what: str) -> StorageFacts:
        """Return a folder's facts. Raises the errors of `require`, or OSError if the facts cannot be read."""
        self.require(path, what)
        answer = self._facts[path]
        if isinstance(answer, OSError):
            raise answer
        assert not isinstance(answer, SilentFolder)
        return answer

    def mount(self, path: Path) -> MountSeen:
        """Return a folder's facts in the form for documents, with `error` if there are none."""
        answer = self._facts[path]
        if isinstance(answer, SilentFolder):
            return MountSeen(str(path), error=f"no answer within {answer.seconds:.0f} s")
        if isinstance(answer, OSError):
            return MountSeen(str(path), error=answer.strerror or str(answer))
        return MountSeen(
            path=str(path),
            kind=answer.kind,
            options=answer.mount_options,
            device=answer.device,
            free_bytes=answer.free_bytes,
            total_bytes=answer.total_bytes,
            free_inodes=answer.free_inodes,
            durability=answer.durability,
            read_only=answer.read_only,
            passable=answer.passable,
        )


def roots(target: TargetConfig) -> list[Path]:
    return [path for path in (target.root, target.state_root) if path is not None]


def cap_folders(bandwidth: BandwidthConfig) -> list[Path]:
    return [] if bandwidth.folder is None else [bandwidth.folder]


def folders(sources: Sequence[SourceConfig]) -> list[Path]:
    """List the sources that are folders. Invalid URLs are skipped; opening the sources reports them."""
    folders = []
    for source in sources:
        with contextlib.suppress(ConfigError):
            if of_url(source.url) is FOLDER:
                folders.append(Path(folder(source.url)))
    return folders


class Looks:
    """Collects results. A check stops the run with a PenstockError inside `at`, or with a result whose
    verdict is `stop`. In both cases report and run get the same words."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._results: list[CheckResult] = []
        self._errors: list[PenstockError] = []
        self._nodes: list[NodeAnswer] = []
        # {arguments of the PreflightError that stops the run: names of the nodes with that error}
        self._on_nodes: dict[tuple[str, str, str, str], list[str]] = {}

    @contextlib.contextmanager
    def at(self, about: str) -> Iterator[None]:
        """Context for a check. A PenstockError raised within becomes a result, unless an earlier check raised
        the same error. Raises InterruptedRunError after a signal."""
        self._context.stop.check()
        try:
            yield
        except InterruptedRunError:
            raise
        except PenstockError as error:
            if str(error) not in map(str, self._errors):
                self._results.append(_stopped(about, error))
            self._errors.append(error)

    def gone(self, error: PenstockError, *results: CheckResult) -> None:
        """Add the results for a target with unreachable servers, and the error that covers them all."""
        self._results += results
        self._errors.append(error)

    def saw(
        self, *results: CheckResult, what: str = "this is not in order", where: str = "", node: str = ""
    ) -> None:
        """Add results, and a single error for all of them that stop the run. The error begins with `what` and
        `where`. `node` is the node concerned, whose name ends each `about` (`ACL on n1`). Nodes with equal
        problems share an error."""
        self._results += results
        stops = _of(results, "stop")
        if not stops:
            return
        end = f" on {printable(node)}" if node else ""
        why = "; ".join(f"{result.about.removesuffix(end)}: {result.found}" for result in stops)
        hint = "; ".join(dict.fromkeys(result.mend for result in stops if result.mend))
        if node:
            self._on_nodes.setdefault((what, where, why, hint), []).append(printable(node))
        else:
            self._errors.append(PreflightError(what, where=where, why=why, hint=hint))

    def heard(self, answer: NodeAnswer) -> None:
        """Add a node's answer to the document."""
        self._nodes.append(answer)

    def document(self, dataset: str) -> PreflightResult:
        """Return all results in the form of the step's receipt."""
        return {
            "dataset": dataset,
            "checked": [sentence(result) for result in _of(self._results, "ok", "note")],
            "warnings": [sentence(result) for result in _of(self._results, "warning")],
            "results": list(self._results),
            "nodes": [node_answer.NODE_ANSWER.to_json(answer) for answer in self._nodes],
        }

    def error(self) -> PenstockError | None:
        """Return the error that ends the step, or None. Several errors are joined into a PreflightError,
        which has their exit status if it is equal for all."""
        errors = list({str(error): error for error in [*self._errors, *self._errors_on_nodes()]}.values())
        if len(errors) < 2:
            return errors[0] if errors else None
        joined = all_of(f"{len(errors)} things stop the run", errors)
        codes = {error.exit_code for error in errors}
        if len(codes) == 1:
            joined.exit_code = codes.pop()
        return joined

    def _errors_on_nodes(self) -> Iterator[PreflightError]:
        for (what, where, why, hint), nodes in self._on_nodes.items():
            place = f"on the node{'s' if len(nodes) > 1 else ''} {', '.join(sorted(nodes))}"
            yield PreflightError(f"{place}, {what}", where=where, why=why, hint=hint)


def _of(results: Iterable[CheckResult], *verdicts: str) -> list[CheckResult]:
    return [result for result in results if result.verdict in verdicts]


def _stopped(about: str, error: PenstockError) -> CheckResult:
    """Make the result for an error, from the error's message and hint."""
    text = str(error).removesuffix(f"\n  {error.hint}") if error.hint else str(error)
    message = " ".join(line.strip() for line in text.splitlines())
    return CheckResult(about, printable(message), "stop", mend=printable_lines(error.hint))


# Compares what a node reports in the probe with what this machine sees, and checks the node's cores. The
# elements of a job array (processes that copy) run on nodes, so nodes' mounts matter.

WITHIN = 3.0  # seconds that lscpu may take


def of_this_node(proc: Root = PROC, sys: Root = SYS, root: Root = "/") -> NodeCores:
    """Describe this machine's cores, as far as this account can find out. Never raises."""
    machine = machine_settings.read_topology(sys)
    if not machine.cores:
        machine = machine_settings.from_lscpu(
            command.run(machine_settings.LSCPU, deadline=WITHIN).out, machine.nics
        )
    answer = NodeCores(machine, constrain_cores=constrained_cores(os.environ, root))
    if not weka.is_there(proc, root):
        return answer
    udp = any(mount.core_count == 0 and "udp" in mount.net for mount in weka.weka_mounts(proc))
    return answer._replace(
        weka=True, held=weka.held_cores(proc, sys), udp=udp, isolate_cpusets=weka.isolation(root)
    )


def check_cores(
    context: Context, steps: Sequence[str], heard: Mapping[str, NodeCores | None], looks: Looks
) -> None:
    """Compare the cores that nodes reported (`heard`) with the cluster's settings, and report the results.
    Raises TransientError and FailedError."""
    for node, results in context.cluster.core_results(steps, heard).items():
        looks.saw(*results, what="jobs would run on cores that others need", node=node)


# Compares a node's answer to the probe with this machine's view.

# Beginnings of mount options that describe the host or its connection. They may differ for the same mount.
OF_ONE_HOST = ("addr=", "clientaddr=", "mountaddr=", "mountport=", "port=", "container_name=")


def judged(
    node: str,
    answer: NodeAnswer,
    target: MountSeen,
    sources: Mapping[str, MountSeen],
    checks_here: Sequence[CheckResult],
) -> list[CheckResult]:
    """Judge the answer of this node. `target`, `sources` (by URL) and `checks_here` are this machine's view.
    The node's results that are also in `checks_here` are left out."""
    name = printable(node)
    results = mount_results(f"target on {name}", answer.target, target)
    for source in answer.sources:
        if source.error:
            continue  # the probe job itself reports an unreadable source, which stops the run
        if source.mount is not None:
            results += mount_results(f"source on {name}", source.mount, sources.get(source.url))
        else:
            results.append(CheckResult(f"source on {name}", printable(source.url)))
    repeated = {(check.about, check.found) for check in checks_here}
    checks = [row for row in answer.checks if (row.get("about"), row.get("found")) not in repeated]
    return results + [_handed_on(name, row) for row in checks]


def mount_results(about: str, remote: MountSeen, local: MountSeen | None) -> list[CheckResult]:
    """Compare a node's mount with this machine's mount at the same path. The first two rows exclude each
    other; each further row that applies adds its result.

    | on the node                                        | results                                       |
    |----------------------------------------------------|-----------------------------------------------|
    | nothing is known about the mount                   | a note                                        |
    | any other case                                     | the mount, ok                                 |
    | another file system than here                      | also a warning                                |
    | the same file system, with other options than here | also a note                                   |
    | reads provably bypass caches here, but not there   | also a warning                                |
    """
    where = printable(remote.path)
    if remote.error:
        return [CheckResult(about, f"{where}: not known ({printable(remote.error)})", "note")]
    results = [
        CheckResult(
            about,
            f"{where}, {remote.kind}, {human.size(remote.free_bytes)} free, durable by {remote.durability}",
        )
    ]
    if local is None or local.error:
        return results
    if remote.kind != local.kind:
        state = f"{_shown(remote)} on the node, {_shown(local)} on this machine"
        mend = "what holds on the nodes counts for copying and reading back; mount the same on both"
        results.append(CheckResult(about, state, "warning", "one file system under one path", mend))
    else:
        mine, theirs = _options(local), _options(remote)
        if mine != theirs:
            only = [f"on the node alone: {', '.join(sorted(theirs - mine))}"] if theirs - mine else []
            only += [f"on this machine alone: {', '.join(sorted(mine - theirs))}"] if mine - theirs else []
            results.append(CheckResult(about, printable(f"other mount options, {'; '.join(only)}"), "note"))
    if local.passable and not remote.passable:
        state = (
            f"{where} is {remote.kind} there: reads cannot be shown to pass the node's caches, so what is "
            "read back counts as `reread`, never as `cold`"
        )
        results.append(CheckResult(about, state, "warning"))
    return results


def version_results(about: str, version: str) -> list[CheckResult]:
    """Return a stop if a node would run another version of penstock. `version` is the node's; "" if unknown,
    which gives no result."""
    if version in ("", penstock.__version__):
        return []
    state = f"it is of version {printable(version)}, and this one of {penstock.__version__}"
    mend = "have this version under that path on all nodes, or name its interpreter there in cluster.python"
    return [CheckResult(about, state, "stop", "one version for a run", mend)]


WHERE_IDS_ARE_MAPPED = (
    "compare the accounts of both machines; numbers are mapped by mounts with the option `idmapped`, by "
    "Lustre's nodemap (`lctl get_param 'nodemap.*'` on its MGS), by NFS's idmapd, and in containers"
)


def owner_results(about: str, on_node: OwnerSeen, local: OwnerSeen) -> list[CheckResult]:
    """Compare the owner and group of a file that a node made for this account, as seen on both machines.

    A name is "" if the machine has no name for the number.

    | number      | name                          | results                                            |
    |-------------|-------------------------------|----------------------------------------------------|
    | the same    | the same, or a name is ""     | ok                                                 |
    | the same    | different                     | a warning: one number, two accounts                |
    | different   | the same                      | a note: id-mapped, names are compared              |
    | different   | different, or a name is ""    | a warning: id-mapped, and names cannot be compared |
    """
    results = []
    pairs = (
        ("owner", (on_node.uid, on_node.user), (local.uid, local.user)),
        ("group", (on_node.gid, on_node.group), (local.gid, local.group)),
    )
    for what, (number, name), (mine, my_name) in pairs:
        owners = (
            f"the {what} of a file that it made is {_numbered(number, name)} there and "
            f"{_numbered(mine, my_name)} here"
        )
        named = bool(name and my_name)
        if number != mine:
            by_name = named and name == my_name
            state = f"id-mapped: {owners}"
            state += "; audits compare it by name" if by_name else "; an audit elsewhere finds another owner"
            verdict: Verdict = "note" if by_name else "warning"
            results.append(
                CheckResult(about, printable(state), verdict, "one number for one file", WHERE_IDS_ARE_MAPPED)
            )
        elif named and name != my_name:
            results.append(
                CheckResult(
                    about, printable(owners), "warning", "one name for one number", WHERE_IDS_ARE_MAPPED
                )
            )
    both = (
        f"owner {_numbered(local.uid, local.user)}, group {_numbered(local.gid, local.group)}, there as here"
    )
    return results or [CheckResult(about, printable(both))]


def _numbered(number: int, name: str) -> str:
    return f"{number} ({name})" if name else str(number)


def _shown(mount: MountSeen) -> str:
    return printable(f"{mount.kind} ({mount.device})" if mount.device else mount.kind)


def _options(mount: MountSeen) -> set[str]:
    return {option for option in mount.options.split(",") if option and not option.startswith(OF_ONE_HOST)}


def _handed_on(name: str, row: Mapping[str, str]) -> CheckResult:
    """Return the result of a check that ran on the node, from a row of its answer. An unknown verdict becomes
    a note."""
    verdict: Verdict = next((word for word in VERDICTS if word == row.get("verdict")), "note")
    return CheckResult(
        about=printable(f"{row.get('about', '')} on {name}"),
        found=printable(row.get("found", "")),
        verdict=verdict,
        wanted=printable(row.get("wanted", "")),
        mend=printable(row.get("mend", "")),
    )
