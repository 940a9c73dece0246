"""Makes a new configuration from facts that it finds out on this machine, with preflight's checks.

| fact                      | source                                                                         |
|---------------------------|--------------------------------------------------------------------------------|
| the target's file system  | `Answers`, within its deadline; written as a comment                           |
| who will be able to read  | `preflight_target.of_folder`                                                   |
| `permissions.group`       | the target folder's group, if this account is a member, and if the folder's    |
|                           | setgid bit gives that group to everything below it                             |
| `cluster`                 | `cluster.registry.new_options`; `local` if this machine has no SLURM, or if    |
|                           | SLURM does not respond                                                         |
| the dataset's name        | the source's last folder, changed if the target has a folder of that name      |

Nothing is changed. A source that is a folder must exist; preflight makes all other checks of sources.
"""

from __future__ import annotations

import itertools
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.port import abilities_of
from penstock.cluster.registry import new_options
from penstock.config import loader, new_file
from penstock.config.new_file import KeyLine, NewFile
from penstock.config.settings import AUTO_CORES, SourceConfig
from penstock.core.errors import ConfigError, PreflightError
from penstock.core.human import did_you_mean, printable
from penstock.core.run_steps import RUN_IN_ELEMENTS, CheckResult
from penstock.doctor import preflight_target
from penstock.doctor.preflight_results import Answers, folders
from penstock.fs.owners import group_name, group_number
from penstock.host.kernel_facts import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from penstock.cluster.slurm.site import NewOptions
    from penstock.config.settings import ClusterConfig, PermissionsConfig

# number of names that are compared with a missing name, at most, since a folder may have millions
MOST_NAMES = 10_000


class Asked(NamedTuple):
    source: str  # a URL, or an absolute path
    root: Path  # the target's root, an absolute path
    options: Mapping[str, str | bool]  # `storage_options` of the source
    name: str = ""  # the dataset's name; "" to make it from the source's name
    backend: str = ""  # the value of `cluster.backend`; "" to choose the backend that this machine has


class Proposed(NamedTuple):
    file: NewFile
    text: str
    readers: CheckResult  # who will be able to read the published data
    notes: tuple[str, ...]  # remarks for the user, which are not in the configuration's text


def require_source(source: str) -> None:
    """Raise ConfigError if a local source is missing (the error has the most similar name), or if this
    account may not look at it. Preflight checks URLs, and folders on unresponsive file systems."""
    for path in folders([SourceConfig(source)]):
        if Answers([path]).silent(path):
            continue
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            raise ConfigError(
                f"the source is not there{_nearest_name(path)}",
                where=str(path),
                hint="correct SOURCE, or mount its file system",
            ) from None
        except OSError as error:
            raise ConfigError(
                "the source cannot be looked at",
                where=str(path),
                why=error.strerror or str(error),
                hint="let this account enter its folder, or correct SOURCE",
            ) from None


def _nearest_name(path: Path) -> str:
    """Return `; did you mean photos?`, with an existing name that is similar to the first missing folder of
    `path`. Return "" if no name is similar."""
    try:
        above = nearest(path)
        with os.scandir(above) as entries:
            names = [printable(entry.name) for entry in itertools.islice(entries, MOST_NAMES)]
    except OSError:
        return ""
    return did_you_mean(path.relative_to(above).parts[:1], names)


def propose(asked: Asked, path: Path) -> Proposed:
    """Make the configuration for this machine, to be written as `path`. Raises ConfigError if it would be
    invalid or the site forbids it, and PreflightError if SLURM was requested and does not respond."""
    answers = Answers([asked.root])
    notes: list[str] = []
    silent = answers.silent(asked.root)
    name = asked.name or _name(asked, notes, silent=silent)
    group = None if silent else _group(asked.root)
    notes += [] if silent else _missing(asked.root)
    local = (KeyLine("backend", "local", "this machine"),)
    file = NewFile(
        asked.source, str(asked.root), name, asked.options, _target_text(asked.root, answers), group, local
    )
    # The configuration is loaded before SLURM is queried, so that an invalid configuration is rejected at
    # once.
    config = loader.load_text(file.text(), path)
    if abilities_of(asked.backend).has_nodes:  # also true for "", since SLURM may exist
        file = file._replace(cluster=_cluster(config.cluster, asked.backend, notes) or local)
        loader.load_text(file.text(), path)
    reading = _readers(asked.root / name, config.datasets[name].permissions, silent=silent)
    return Proposed(file, file.text(), reading, tuple(notes))


def _readers(folder: Path, policy: PermissionsConfig, *, silent: bool) -> CheckResult:
    if silent:
        return CheckResult(preflight_target.ABOUT, "not known: the target does not answer", "note")
    return preflight_target.of_folder(
        policy, folder, None if policy.group is None else group_number(policy.group)
    )


def _target_text(root: Path, answers: Answers) -> str:
    try:
        store = answers.facts(root, "the target")
    except (PreflightError, OSError):
        return "its file system does not answer now"
    return preflight_target.described(root, store)


def _missing(root: Path) -> Iterator[str]:
    """Yield a note if the target is missing and a run would not make it."""
    try:
        above = nearest(root)
    except OSError:
        return
    if above not in (root, root.parent):
        yield (
            f"warning: {root} is not there, nor is {root.parent} ({above} is): a run makes no folders above "
            "a target. Correct TARGET, make the folder, or mount its file system"
        )


def _name(asked: Asked, notes: list[str], *, silent: bool) -> str:
    def taken(name: str) -> bool:
        return not silent and os.path.lexists(asked.root / name)

    plain = new_file.dataset_name(asked.source, lambda _: False)
    name = new_file.dataset_name(asked.source, taken)
    if name != plain:
        where = printable(str(asked.root / plain))
        notes.append(f"{where} is there already: --name {plain} goes on with that dataset")
    return name


def _group(root: Path) -> KeyLine | None:
    """Return the key `permissions.group`, or None to leave it out:

    | the folder's setgid bit | its group has a name | this account is in it, or root | the key       |
    |-------------------------|----------------------|--------------------------------|---------------|
    | no                      | any                  | any                            | left out      |
    | yes                     | no                   | any                            | left out      |
    | yes                     | yes                  | no                             | left out      |
    | yes                     | yes                  | yes                            | that group    |

    Without the key, the file system chooses the group of new files: with setgid, the folder's group.
    """
    try:
        status = os.stat(nearest(root))
    except OSError:
        return None
    name = group_name(status.st_gid)
    member = os.geteuid() == 0 or status.st_gid in {os.getegid(), *os.getgroups()}
    if not status.st_mode & stat.S_ISGID or not name or not member:
        return None
    return KeyLine("group", name, "the target's, by its setgid bit; its members read, nobody writes")


def _cluster(config: ClusterConfig, backend: str, notes: list[str]) -> tuple[KeyLine, ...]:
    """Return the keys of `cluster` for SLURM; () if SLURM will not be used."""
    try:
        allowed = loader.site_bounds().cluster.partitions
        options = new_options(config, RUN_IN_ELEMENTS, allowed)
    except PreflightError as error:
        if backend:
            raise
        # Only the first line of SLURM's message is shown; the further lines list single failures.
        notes.append(f"cluster.backend is local: {error.reason.partition('; ')[0]}")
        return ()
    if options is None and not backend:
        return ()
    if options is None:
        raise PreflightError(
            "SLURM's commands are not on this machine",
            where="--backend slurm",
            hint="run `penstock init` where they are (a login node), or put them on PATH",
        )
    if options.refused:
        notes.append(f"SLURM takes no such job now, correct `cluster` in the file: {options.refused}")
    lines = [KeyLine("backend", "slurm")]
    if options.partition is not None:
        lines.append(
            KeyLine("partition", options.partition, _partition_comment(options, of_site=bool(allowed)))
        )
    if options.account is not None:
        lines.append(KeyLine("account", options.account, "jobs without one are refused here"))
    why = "elements take whole nodes, less cores of their services"
    cores = "not `auto`: SLURM refuses --core-spec here" if options.core_spec != AUTO_CORES else why
    lines.append(KeyLine("core_spec", options.core_spec, cores))
    return tuple(lines)


def _partition_comment(options: NewOptions, *, of_site: bool) -> str:
    if options.default:
        return "the first that the site allows" if of_site else "the cluster's default"
    allowed = " of those that the site allows" if of_site else ""
    return (
        f"or {', '.join(options.others)}"
        if options.others
        else f"the only one that takes these jobs{allowed}"
    )
