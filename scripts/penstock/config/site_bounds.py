"""The typed contents of the site's file. `config.site` applies these bounds to configurations."""

# Annotations are read at run time: no `from __future__ import annotations`.
from dataclasses import dataclass
from typing import Annotated, TypeVar

from penstock.config.annotations import NOT_NULL, Choice, Fields, Items, Number, Text
from penstock.config.backends import BACKENDS
from penstock.config.settings import Accounts, Duration, Folder, Rate

T = TypeVar("T")
Bound = Annotated[T | None, NOT_NULL]  # a bound; None if it is not in the file
AbsoluteFolder = Annotated[Folder, Text("an absolute folder", "^/")]


@dataclass(frozen=True)
class SiteTarget:
    """Bounds of `target`."""

    owners: Accounts = ()  # (): any
    contact: Bound[Annotated[str, Text("an address or a name", r"^[^\x00-\x1f]{1,200}$")]] = None
    # folders in which targets' roots may be; () if roots may be anywhere
    roots: Annotated[tuple[AbsoluteFolder, ...], Items("a list of folders", least=1, unique=True)] = ()
    # metadata operations a second for all runs below a root; None if the kind of file system decides
    ops: Bound[Annotated[int, Number("operations a second", 1)]] = None


@dataclass(frozen=True)
class SiteCluster:
    """Bounds of `cluster` and each of its steps."""

    backends: Annotated[
        tuple[Annotated[str, Choice(*BACKENDS)], ...],
        Items("a list of local and slurm", least=1, unique=True),
    ] = ()  # (): any
    partitions: Annotated[
        tuple[Annotated[str, Text("the name of a partition", r"^[A-Za-z0-9_.-]+$")], ...],
        Items("a list of partitions", least=1, unique=True),
    ] = ()  # (): any
    max_elements: Bound[Annotated[int, Number("how many nodes a step may take at once", 1)]] = None


@dataclass(frozen=True)
class SiteBandwidth:
    """Bounds of `bandwidth`."""

    folder: Bound[AbsoluteFolder] = None
    link: Bound[Rate] = None
    requests: Bound[Annotated[int, Number("requests a second", 1)]] = None


@dataclass(frozen=True)
class SiteGc:
    """Bounds of `gc`."""

    grace: Bound[Duration] = None


@dataclass(frozen=True)
class SiteNotify:
    """Bounds of `notify`."""

    programs: Annotated[
        tuple[Annotated[str, Text("the absolute path of a program", "^/")], ...],
        Items("a list of programs", least=1, unique=True),
    ] = ()  # programs for `notify.command` in any configuration, whoever may write that configuration


@dataclass(frozen=True)
class Bounds:
    """The contents of the site's file. A value of None or () is no bound."""

    target: Annotated[SiteTarget, Fields("roots, ops, owners and contact")] = SiteTarget()
    cluster: Annotated[SiteCluster, Fields("backends, partitions and max_elements")] = SiteCluster()
    bandwidth: Annotated[SiteBandwidth, Fields("folder, link and requests")] = SiteBandwidth()
    gc: Annotated[SiteGc, Fields("grace")] = SiteGc()
    notify: Annotated[SiteNotify, Fields("programs")] = SiteNotify()


SITE = Annotated[Bounds, Fields("target, cluster, bandwidth, gc and notify")]
