"""The probe job's work on a node, for `cli.commands.visit`: it examines node and mounts, and opens each
source."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import penstock
from penstock.core.errors import PenstockError
from penstock.core.node_answer import HostSeen, NodeAnswer, SourceSeen
from penstock.doctor.preflight import acl, bandwidth, mounts, node_cores
from penstock.doctor.preflight.mount_answers import Answers, folders, roots
from penstock.listing.collection import folder_of, open_sources
from penstock.listing.listers import reach

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from penstock.config.settings import DatasetConfig, SourceConfig, TargetConfig


def answer(
    dataset: DatasetConfig,
    target: TargetConfig,
    check: Callable[[], None],
    deadline: AbstractContextManager[None],
    numbers: Sequence[int | None] = (),
    bandwidth_folder: Path | None = None,
    mark: str = "",
) -> NodeAnswer:
    """Return this machine's answer. `check` is called before each source, and sources are opened inside
    `deadline`: what these raise is the source's error. `numbers` are those of the ACL's accounts on the
    submitting machine, `mark` its file in `bandwidth_folder`."""
    cap_folders = [] if bandwidth_folder is None else [bandwidth_folder]
    answers = Answers([*roots(target), *folders(dataset.sources), *cap_folders])
    with deadline:
        sources = [_source(dataset, source, answers, check) for source in dataset.sources]
    return NodeAnswer(
        host=host(),
        target=answers.mount(target.root),
        sources=sources,
        checks=[result._asdict() for result in mounts.checks(target, dataset, answers)],
        penstock=penstock.__version__,
        acls=acl.known(dataset, target, answers, numbers),
        cores=node_cores.of_this_node(),
        link=None if bandwidth_folder is None else bandwidth.seen_here(bandwidth_folder, mark, answers),
    )


def host() -> HostSeen:
    """Describe this machine, as this process may use it."""
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
