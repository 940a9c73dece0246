"""preflight: checks everything that would stop a run before it begins, and changes nothing. Among its areas,
the cluster stands here: what it allows, and what a node sees by a job there.
"""

from __future__ import annotations

import contextlib
import json
import os
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import penstock
from penstock.cluster.port import Visit
from penstock.config.serialization import to_json
from penstock.config.source_kinds import KINDS
from penstock.core import human, node_answer, run_steps
from penstock.core.errors import FailedError, PenstockError, TransientError
from penstock.core.human import printable
from penstock.core.node_answer import HostSeen, NodeAnswer, SourceSeen
from penstock.core.run_steps import RUN_IN_ELEMENTS, CheckResult
from penstock.doctor import preflight_requirements, preflight_results, preflight_target
from penstock.doctor.preflight_results import Answers, Looks, cap_folders, folders, roots
from penstock.fs import owners
from penstock.jobs.array_orders import live_arrays
from penstock.jobs.bandwidth import marked
from penstock.listing.collection import folder_of, open_sources
from penstock.listing.listers import reach

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from penstock.cluster.port import Cluster, VisitAnswer
    from penstock.config.settings import DatasetConfig, SourceConfig, TargetConfig
    from penstock.core.node_answer import OwnerSeen
    from penstock.core.step_results import PreflightResult
    from penstock.dataset.context import Context


# Checks what the cluster allows, and how a node sees sources and target. A probe job on the node finds that
# out: in it, `cli.commands.node_calls` calls `answer`, and returns the result.


def answer(
    dataset: DatasetConfig,
    target: TargetConfig,
    check: Callable[[], None],
    deadline: AbstractContextManager[None],
    numbers: Sequence[int | None] = (),
    bandwidth_folder: Path | None = None,
    mark: str = "",
) -> NodeAnswer:
    """Return this machine's answer to the probe. `check` is called before each source, and sources are opened
    inside `deadline`. An error raised by these counts as the source's. `numbers` are the user and group ids
    of the ACL's accounts on the submitting machine; `mark` is that machine's file in `bandwidth_folder`."""
    cap_folders = [] if bandwidth_folder is None else [bandwidth_folder]
    answers = Answers([*roots(target), *folders(dataset.sources), *cap_folders])
    with deadline:
        sources = [_source(dataset, source, answers, check) for source in dataset.sources]
    return NodeAnswer(
        host=host(),
        target=answers.mount(target.root),
        sources=sources,
        checks=[result._asdict() for result in preflight_target.mount_checks(target, dataset, answers)],
        penstock=penstock.__version__,
        acls=preflight_target.known_accounts(dataset, target, answers, numbers),
        cores=preflight_results.of_this_node(),
        link=None
        if bandwidth_folder is None
        else preflight_requirements.seen_here(bandwidth_folder, mark, answers),
    )


def host() -> HostSeen:
    """Describe the part of this machine that this process may use."""
    system = os.uname()
    return HostSeen(
        name=system.nodename,
        kernel=system.release,
        machine=system.machine,
        cpus=len(os.sched_getaffinity(0)),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        uid=os.geteuid(),
        gid=os.getegid(),
        groups=tuple(sorted(os.getgroups())),
    )


def _source(
    dataset: DatasetConfig, config: SourceConfig, answers: Answers, check: Callable[[], None]
) -> SourceSeen:
    url, mount = config.url, None
    try:
        check()
        (source,) = open_sources(replace(dataset, sources=(config,)))
        url, folder = source.url, folder_of(source)
        if folder is not None:
            mount = answers.mount(folder)
            answers.require(folder, "the source")
        reach(config, source, nullcontext())
    except (PenstockError, OSError) as error:
        return SourceSeen(url, str(error), mount)
    return SourceSeen(url, mount=mount)


STEP = "preflight"
# Seconds without a byte after which a node counts a source as unreachable. The probe job has a minute for all
# sources.
VISIT_TIMEOUT = 15.0
# Environment variables that help this shell to open a source, but are not set in jobs on nodes.
OF_THE_SHELL = frozenset(
    {
        "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "KRB5CCNAME", *(name for kind in KINDS for name in kind.variables),
    }
)  # fmt: skip


class Heard(NamedTuple):
    node: str  # the node's name as the cluster reports it; "" if the cluster reports none
    answer: NodeAnswer
    owner: OwnerSeen  # owner of the file in which the node wrote its answer, as this machine sees it


def check_cluster(context: Context, config: DatasetConfig, answers: Answers, looks: Looks) -> None:
    """Report the results on the cluster and the nodes. Raises PreflightError or ConfigError for a request
    that the cluster, or a node, does not allow."""
    if answers.silent(*roots(context.config.target)):
        # The check needs the target: penstock records arrays there, and a node writes its answer there.
        looks.saw(CheckResult("cluster", "not looked at, since the target does not answer", "note"))
        return
    steps = RUN_IN_ELEMENTS
    met: list[str] = []
    if not context.cluster.abilities.elements_end_with_controller:
        # If the cluster does not respond, `cluster.check` below reports that.
        with contextlib.suppress(TransientError):
            met = [live.array for live in live_arrays(context, config.name) if not live.elsewhere]
    if met:
        text = f"array {', '.join(met)} lives: no probe is sent to a node"
        context.emit(run_steps.Noted(config.name, STEP, text))
    heard: list[Heard] = []
    try:
        with _mark(context, answers) as mark:
            warnings = context.cluster.check(steps, _visit(context, config, mark, heard), met=bool(met))
    finally:
        for reply in heard:
            _node(context, config, reply, answers, looks)
        with contextlib.suppress(TransientError, FailedError):
            preflight_results.check_cores(
                context, steps, {reply.node: reply.answer.cores for reply in heard}, looks
            )
        _start(context, steps, looks, met=bool(met))
    at_once = human.counted(context.cluster.slots("copy"), "element")
    asks = ""
    with contextlib.suppress(TransientError, FailedError):
        asks = context.cluster.asks("copy")
    each = f", each takes {asks}" if asks else ""
    looks.saw(CheckResult("cluster", f"{_talked_to(context.cluster)}, {at_once} at once{each}"))
    looks.saw(*(CheckResult("cluster", printable(text), "warning") for text in warnings))


def _mark(context: Context, answers: Answers) -> AbstractContextManager[str]:
    """Yield the name of a file that nodes must see in `bandwidth.folder`, or "" if that is silent."""
    folder = context.config.bandwidth.folder
    if folder is None or not context.cluster.abilities.has_nodes or answers.silent(folder):
        return contextlib.nullcontext("")
    return marked(folder)


def _start(context: Context, steps: Sequence[str], looks: Looks, *, met: bool) -> None:
    """Report when elements would start. `met` means that elements of an earlier submission are still running,
    so that no result stops the run."""
    try:
        results = context.cluster.start_results(steps)
    except (TransientError, FailedError) as error:
        looks.saw(CheckResult("start", f"not known: {printable(error.why or error.what)}", "note"))
        return
    if met:
        results = [
            result._replace(verdict="warning") if result.verdict == "stop" else result for result in results
        ]
    looks.saw(*results, what="elements would not start", where="cluster")


def _talked_to(cluster: Cluster) -> str:
    """Return `slurm`, or `slurm by pyslurm 25.11.2` if penstock does not use SLURM's commands."""
    return cluster.kind if cluster.way in ("", "commands") else f"{cluster.kind} by {cluster.way}"


def _node(context: Context, config: DatasetConfig, heard: Heard, answers: Answers, looks: Looks) -> None:
    """Compare a node's answer with this machine's view, and report the results."""
    target, answer = context.config.target, heard.answer
    node = heard.node or answer.host.name
    local = answers.mount(target.root)
    sources = {f"file://{folder}": answers.mount(folder) for folder in folders(config.sources)}
    results = preflight_results.judged(
        node, answer, local, sources, preflight_target.mount_checks(target, config, answers)
    )
    if answer.written is not None:
        results += preflight_results.owner_results(f"ids on {node}", answer.written, heard.owner)
    place = f"on the node {node}"
    looks.heard(answer)
    looks.saw(*results, what="a mount is not in order", node=node)
    versions = preflight_results.version_results(f"penstock on {node}", answer.penstock)
    looks.saw(*versions, what="the elements would be of another penstock", where="cluster.python", node=node)
    if answer.link is not None:
        results = preflight_requirements.on_node(node, answer.link)
        looks.saw(*results, what="the bandwidth cap would not hold", where="bandwidth.folder", node=node)
    acls = preflight_target.judged_acl(node, config, target, answer)
    looks.saw(*acls, what="the target keeps no ACLs", where=preflight_target.acl_key(config), node=node)
    if answer.acls is not None:
        mapped = _numbers_differ(heard) or answer.acls.mapped or owners.is_mapped(target.root)
        mine = preflight_target.acl_entries(config.permissions.acl)
        others = preflight_target.entry_results(node, answer.acls.entries, mine, mapped=mapped)
        looks.saw(
            *others, what="the ACL would be another one", where=preflight_target.acl_key(config), node=node
        )
    if answer.target.kind not in ("", local.kind):
        with looks.at("evidence"):
            preflight_requirements.check_grade(context, answer.target.kind, f"{place}, ")


def _numbers_differ(heard: Heard) -> bool:
    """Return whether the owner or group of the node's file has another number on this machine."""
    on_node, here = heard.answer.written, heard.owner
    return on_node is not None and (on_node.uid, on_node.gid) != (here.uid, here.gid)


def _visit(context: Context, config: DatasetConfig, mark: str, heard: list[Heard]) -> Visit:
    """Return the command that opens the sources on a node, whose profiles, routes and mounts may differ. The
    command also looks for the file `mark` in `bandwidth.folder`. The reader of its output appends each answer
    to `heard`, with the node's name as the cluster reports it."""
    root = context.config.target.root
    sources = [replace(source, timeout=min(source.timeout, VISIT_TIMEOUT)) for source in config.sources]
    request = {
        "dataset": to_json(replace(config, sources=tuple(sources))),
        "target": to_json(context.config.target),
        "acl_numbers": [entry.number for entry in preflight_target.acl_entries(config.permissions.acl)],
    }
    if (folder := context.config.bandwidth.folder) is not None:
        request |= {"link": str(folder.absolute()), "mark": mark}

    def read(node: str, written: VisitAnswer) -> str:
        try:
            answer = node_answer.NODE_ANSWER.from_json(written.text.encode(), node)
        except ValueError:
            return written.text  # text that is not JSON says why the command did not start on the node
        heard.append(Heard(node, answer, owners.owner(written.uid, written.gid)))
        return "\n".join(answer.errors)

    unknown = sorted(name for name in os.environ if name.upper() in OF_THE_SHELL)
    hint = (
        "profiles, credential files, mounts and routes must be on the nodes as here; "
        "or name a partition whose nodes have them"
    )
    if unknown:
        hint += f" (nothing of this shell reaches a node, also not {', '.join(unknown)})"
    folder = root if root.is_dir() else root.parent
    return Visit(("visit",), json.dumps(request, ensure_ascii=True), folder, hint, read)


# preflight: checks, before a run begins, for everything that would stop it.
#
# Each problem is reported with its key or URL, and with advice. Problems are reported after the last check,
# so that all are shown. Only an unreachable server of the target ends the checks early, since making a file
# on the target would wait for the server. The modules `preflight_*` have the checks.


class Preflighted(NamedTuple):
    """The results of a preflight, and the error that stops the run, if any."""

    result: PreflightResult
    error: PenstockError | None


def run(
    context: Context, dataset: str, *, warned: Collection[str] = (), before: Path | None = None
) -> PreflightResult:
    """Check a dataset, its sources, target and cluster; return the receipt. Warnings that are in `warned` are
    only counted in one line of the report, but stay in the receipt. `before` is a receipt which shows that
    the dataset was published below this root. Raises PreflightError, NoSpaceError or ConfigError. Several
    errors are joined into a PreflightError, which has their exit status if it is the same for all."""
    result, error = look(context, dataset, warned, before)
    if error is not None:
        raise error
    return result


def look(
    context: Context, dataset: str, warned: Collection[str] = (), before: Path | None = None
) -> Preflighted:
    """Do the same as `run`, but return the error together with the results. Raises InterruptedRunError."""
    context.emit(run_steps.Started(dataset, STEP))
    config, layout = context.dataset(dataset), context.layout(dataset)
    looks = Looks(context)
    with looks.at("interpreter"):
        preflight_requirements.check_libraries(looks)
    with looks.at("target"):
        # This check comes first, since a client forgets a server's address after a failed call on it.
        shown, reached = preflight_target.check_servers(layout, looks)
        if not reached:
            return Preflighted(looks.document(config.name), looks.error())
    answers = Answers(
        [*roots(context.config.target), *folders(config.sources), *cap_folders(context.config.bandwidth)]
    )
    with looks.at("target"):
        if not preflight_target.check_vendor(context, config, layout, answers, looks, shown):
            return Preflighted(looks.document(config.name), looks.error())
    with looks.at("target"):
        preflight_target.check_target(context, layout, answers, looks, before)
    with looks.at("signing key"):
        preflight_requirements.check_signing_key(layout, looks)
    with looks.at("mounts"):
        preflight_target.check_mounts(context, config, answers, looks)
    with looks.at("readers"):
        preflight_target.check_readers(config, layout, answers, looks)
    with looks.at("ACL"):
        preflight_target.check_acl(context, config, layout, answers, looks)
    with looks.at("quotas"):
        preflight_target.check_quotas(config, layout, answers, looks)
    with looks.at("evidence"):
        preflight_requirements.check_evidence(context, config, layout, answers, looks)
    with looks.at("sources"):
        preflight_requirements.check_sources(context, config, layout, answers, looks)
    with looks.at("bandwidth"):
        preflight_requirements.check_bandwidth(context, answers, looks)
    with looks.at("cluster"):
        check_cluster(context, config, answers, looks)
    preflighted = Preflighted(looks.document(config.name), looks.error())
    if preflighted.error is None:
        warnings = preflighted.result["warnings"]
        new = [text for text in warnings if text not in warned]
        for text in new:
            context.emit(run_steps.Warned(dataset, STEP, text))
        if again := len(warnings) - len(new):
            counted = human.counted(again, "warning")
            text = f"{counted} given before: `{context.program} preflight {dataset}` lists all"
            context.emit(run_steps.Noted(dataset, STEP, text))
        context.emit(run_steps.Ended(dataset, STEP, preflighted.result))
    return preflighted
