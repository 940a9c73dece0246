"""The site's file, the administrator's bounds for all configurations on a machine:
`/etc/penstock/site.yaml`."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypeVar

from penstock.config import command_options, strict_yaml, validation
from penstock.config.annotations import NOT_NULL, Choice, Fields, Items, Number, Text
from penstock.config.command_options import BACKENDS
from penstock.config.serialization import Readers, read
from penstock.config.settings import Accounts, Config, Duration, Folder, JobOptions, Rate
from penstock.config.strict_yaml import KeyPath, StrictYamlError, YamlDocument
from penstock.config.validation import Problem, Section, shown
from penstock.core.errors import ConfigError

# The typed contents of the site's file. `config.site` applies these bounds to configurations.

# Annotations are read at run time: no `from __future__ import annotations`.


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


# The site's file, with the administrator's bounds for all configurations on a machine:
# `/etc/penstock/site.yaml`.
#
# It is read before each configuration, which may only tighten the bounds. No option, environment variable or
# key chooses another file. Without the file nothing is bounded. The bounds are a policy against accidents;
# anyone who changes the program can bypass them. Only SLURM's QOS and licences, quotas and modes enforce
# limits.

FILE = command_options.SITE
OTHERS = stat.S_IWGRP | stat.S_IWOTH  # mode bits that let accounts other than the owner write


@dataclass(frozen=True)
class Site:
    """The site's file, as it was read."""

    bounds: Bounds
    document: YamlDocument
    path: Path

    def line(self, *key: str) -> str:
        """Return a key's place: `/etc/penstock/site.yaml, line 3`."""
        return f"{self.path}, line {self.document.line(key)}"


def stored(path: Path | None = None) -> YamlDocument | None:
    """Read the site's file, or a draft at `path`; return None if it does not exist. Raises ConfigError for an
    unreadable file, such as a dangling link, or if accounts other than root may have written the site's file.
    After such an error no command runs, since its bounds are unknown."""
    path = path or FILE
    try:
        # O_NONBLOCK opens a FIFO without waiting for its writer.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if path == FILE:
                _judge(path, os.fstat(file.fileno()))
        return strict_yaml.read(path)
    except (FileNotFoundError, NotADirectoryError):
        if os.path.lexists(path):
            raise _wrong(path, f"it is a link to {os.readlink(path)}, which is not there") from None
        return None
    except StrictYamlError as error:
        raise _wrong(path, f"line {error.line}: {error}") from None
    except OSError as error:
        raise _wrong(path, error.strerror or str(error)) from None


def site_of(document: YamlDocument, readers: Readers, path: Path | None = None) -> Site:
    """Return the document's bounds. Raises ConfigError with each wrong line."""
    path, value = path or FILE, {} if document.value is None else document.value
    if mistakes := [*_without_folder(Section(value).at("bandwidth")), *validation.problems(value, SITE)]:
        raise _wrong(path, validation.in_lines(mistakes, document))
    return Site(read(Bounds, value, readers), document, path)


def _without_folder(bandwidth: Section) -> Iterator[Problem]:
    """Reject a cap without a folder in which runs can share it."""
    if ("link" in bandwidth or "requests" in bandwidth) and "folder" not in bandwidth:
        yield Problem(
            bandwidth.path, f"{shown(bandwidth.values)} cannot be used; give folder, link and requests"
        )


def _judge(path: Path, file_status: os.stat_result) -> None:
    """Raise ConfigError unless only root can have written the site's file."""
    # The folder to which a link leads counts, too: whoever may write in that folder can replace the file.
    folders = dict.fromkeys((path.parent, Path(os.path.realpath(path)).parent))
    for what, status in ((path, file_status), *((folder, folder.stat()) for folder in folders)):
        if status.st_uid != 0 or status.st_mode & OTHERS:
            mode = stat.S_IMODE(status.st_mode)
            raise ConfigError(
                "the site's file does not count, and nothing runs without it",
                where=str(path),
                why=f"{what} belongs to uid {status.st_uid}, with mode {mode:04o}",
                hint=f"root alone may say it: chown 0:0 {what} && chmod go-w {what}",
            )
    if not stat.S_ISREG(file_status.st_mode):
        raise _wrong(path, "it is no plain file")


def _wrong(path: Path, why: str) -> ConfigError:
    return ConfigError(
        "the site's file cannot be used",
        where=str(path),
        why=why,
        hint="the administrator of this machine corrects or removes it",
    )


# Bounds applied to a configuration ---------------------------------------------------------


def filled(config: Config, site: Site) -> Config:
    """Return the configuration, with the site's values for keys that have no value.

    | key                                        | value if the configuration has none                  |
    |--------------------------------------------|------------------------------------------------------|
    | `cluster.partition`                        | the first partition of the site                      |
    | `cluster.max_elements`                     | the default or the site's value, whichever is lower  |
    | `target.owners`, `target.contact`          | the site's                                           |
    | `bandwidth.*`                              | the site's                                           |
    | `gc.grace`                                 | the default or the site's value, whichever is longer |

    `target.ops` always comes from the site.
    """
    bounds, target, bandwidth = site.bounds, config.target, config.bandwidth
    if target.ops is None:
        target = replace(target, ops=bounds.target.ops)
    target = replace(
        target,
        owners=target.owners or bounds.target.owners,
        contact=target.contact or bounds.target.contact,
    )
    own = bounds.bandwidth
    bandwidth = replace(
        bandwidth,
        folder=bandwidth.folder or own.folder,
        link=own.link if bandwidth.link is None else bandwidth.link,
        requests=own.requests if bandwidth.requests is None else bandwidth.requests,
    )
    cluster = config.cluster
    cluster = replace(
        cluster,
        options=_filled_job(cluster.options, bounds.cluster),
        steps={name: _filled_job(options, bounds.cluster) for name, options in cluster.steps.items()},
    )
    gc, plain = config.gc, type(config.gc)()
    if bounds.gc.grace is not None and gc.grace == plain.grace:
        gc = replace(gc, grace=max(gc.grace, bounds.gc.grace))
    return replace(config, target=target, bandwidth=bandwidth, cluster=cluster, gc=gc)


def _filled_job(options: JobOptions, bounds: SiteCluster) -> JobOptions:
    if options.partition is None and bounds.partitions:
        options = replace(options, partition=bounds.partitions[0])
    most = bounds.max_elements
    if most is not None and options.max_elements == type(options).max_elements:
        options = replace(options, max_elements=min(most, options.max_elements))
    return options


def tightened(config: Config, site: Site) -> Config:
    """Bring a `filled` configuration within the site's bounds, for a command that stages nothing.

    So tighter bounds never stop a command that only reads, or that ends running work.

    | key                     | value that counts                                           |
    |-------------------------|-------------------------------------------------------------|
    | `target.owners`         | accounts in both lists, or the site's list if there is none |
    | `cluster.max_elements`  | the lower value                                             |
    | `bandwidth.folder`      | the site's                                                  |
    | `gc.grace`              | the longer value                                            |
    | `target.root`, backend, | the configuration's, because the command reads data, or     |
    | partitions              | ends work, at that place                                    |
    | `bandwidth.link`,       | the configuration's, because only the engine uses them      |
    | `bandwidth.requests`    |                                                             |
    """
    bounds, target, cluster = site.bounds, config.target, config.cluster
    if bounds.target.owners:
        both = tuple(name for name in target.owners if name in bounds.target.owners)
        target = replace(target, owners=both or bounds.target.owners)
    if (most := bounds.cluster.max_elements) is not None:
        lowered = {
            name: replace(options, max_elements=min(options.max_elements, most))
            for name, options in {"": cluster.options, **cluster.steps}.items()
        }
        cluster = replace(cluster, options=lowered.pop(""), steps=lowered)
    bandwidth = replace(config.bandwidth, folder=bounds.bandwidth.folder or config.bandwidth.folder)
    gc = replace(config.gc, grace=max(config.gc.grace, bounds.gc.grace or 0))
    return replace(config, target=target, cluster=cluster, bandwidth=bandwidth, gc=gc)


def problems(config: Config, site: Site, *, in_job: bool = False) -> Iterator[Problem]:
    """Yield the values of a `filled` configuration that exceed the site's bounds, with the site's line.
    `in_job` means that the cluster granted this node, so any backend may work.

    | site's key              | values that a configuration may have                 |
    |-------------------------|------------------------------------------------------|
    | `target.roots`          | one of them, or a folder below one; links followed   |
    | `target.owners`         | some of them, written in the same way                |
    | `cluster.backends`      | one of them; in a job, any                           |
    | `cluster.partitions`    | some of them, as `a,b`; also in each step            |
    | `cluster.max_elements`  | at most the site's; also in each step                |
    | `bandwidth.folder`      | only the site's folder                               |
    | `bandwidth.link`        | `link` less `reserve` is at most the site's          |
    | `bandwidth.requests`    | at most the site's                                   |
    | `gc.grace`              | at least the site's                                  |
    """
    bounds = site.bounds
    yield from _target(config, site)
    cluster, backends = config.cluster, bounds.cluster.backends
    if backends and not in_job and cluster.backend not in backends:
        allowed = f"{', '.join(backends)}, and any inside a job"
        yield _refused(site, ("cluster", "backend"), shown(cluster.backend), allowed, "backends")
    yield from _job(cluster.options, site, ("cluster",))
    for name, options in cluster.steps.items():
        if options != cluster.options:
            yield from _job(options, site, ("cluster", "steps", name))
    bandwidth, own = config.bandwidth, bounds.bandwidth
    if own.folder is not None and bandwidth.folder != own.folder:
        yield _refused(site, ("bandwidth", "folder"), shown(str(bandwidth.folder)), f"{own.folder} alone")
    if own.link is not None and (bandwidth.rate or 0) > own.link:
        yield _at_most(site, ("bandwidth", "link"), f"{bandwidth.rate:,} bytes a second")
    if own.requests is not None and (bandwidth.requests or 0) > own.requests:
        yield _at_most(site, ("bandwidth", "requests"), f"{bandwidth.requests:,} requests a second")
    gc = config.gc
    if bounds.gc.grace is not None and gc.grace < bounds.gc.grace:
        least = f"at least {site.document.value['gc']['grace']}"
        yield _refused(site, ("gc", "grace"), f"{gc.grace:,.0f} seconds", least)


def _target(config: Config, site: Site) -> Iterator[Problem]:
    bounds, target = site.bounds.target, config.target
    if not _is_given(site, target.root):
        names = " and ".join(map(str, bounds.roots))
        yield _refused(site, ("target", "root"), shown(str(target.root)), names, "roots")
    if bounds.owners and not set(target.owners) <= set(bounds.owners):
        yield _refused(site, ("target", "owners"), shown(", ".join(target.owners)), ", ".join(bounds.owners))


def _is_given(site: Site, folder: Path) -> bool:
    """Return whether a folder is one of the site's roots, or below a root. Follows links."""
    roots = site.bounds.target.roots
    place = Path(os.path.realpath(folder))
    return not roots or any(place.is_relative_to(os.path.realpath(root)) for root in roots)


def check_place(site: Site, folder: Path) -> None:
    """Raise ConfigError for a folder that is neither one of the site's roots nor below one."""
    if not _is_given(site, folder):
        names = " and ".join(map(str, site.bounds.target.roots))
        raise ConfigError(
            "the site allows no work in this folder",
            where=str(folder),
            why=f"{site.line('target', 'roots')}: target.roots there allows {names}",
            hint="name a folder below one of them",
        )


def _job(options: JobOptions, site: Site, path: KeyPath) -> Iterator[Problem]:
    bounds = site.bounds.cluster
    asked = options.partition.split(",") if options.partition else []
    if bounds.partitions and not set(asked) <= set(bounds.partitions):
        allowed = ", ".join(bounds.partitions)
        yield _refused(site, (*path, "partition"), shown(options.partition), allowed, "partitions")
    if bounds.max_elements is not None and options.max_elements > bounds.max_elements:
        yield _at_most(site, (*path, "max_elements"), f"{options.max_elements} elements at once")


def _at_most(site: Site, path: KeyPath, value: str) -> Problem:
    section, key = str(path[0]), str(path[-1])
    return _refused(site, path, value, f"at most {site.document.value[section][key]}")


def _refused(site: Site, path: KeyPath, value: str, allowed: str, key: str = "") -> Problem:
    section, key = str(path[0]), key or str(path[-1])
    bound = f"{section}.{key} there allows {allowed}"
    return Problem(path, f"{value} is not for a configuration to say: {site.line(section, key)}: {bound}")
