"""What `/etc/penstock/site.yaml` may say, typed; `config.site` reads and applies it."""

# Annotations are read at run time, as those of `settings`: no `from __future__ import annotations`.
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from penstock.config.settings import Duration, Folder, Rate


@dataclass(frozen=True)
class SiteTarget:
    """What bounds `target`."""

    roots: tuple[Folder, ...] = ()
    """Where roots may lie; (): anywhere."""
    ops: int | None = None
    """Metadata operations a second below a root; None: by the file system."""
    owners: Annotated[tuple[str, ...], "accounts"] = ()
    """(): any."""


@dataclass(frozen=True)
class SiteCluster:
    """What bounds `cluster` and each of its steps."""

    backends: tuple[str, ...] = ()
    """(): any."""
    partitions: tuple[str, ...] = ()
    """(): any."""
    max_elements: int | None = None


@dataclass(frozen=True)
class SiteBandwidth:
    """What bounds `bandwidth`."""

    folder: Annotated[Path | None, "folder"] = None
    link: Rate | None = None
    requests: int | None = None


@dataclass(frozen=True)
class SiteGc:
    """What bounds `gc`."""

    grace: Duration | None = None


@dataclass(frozen=True)
class Bounds:
    """What the file says; None and (): it bounds nothing."""

    target: SiteTarget = SiteTarget()
    cluster: SiteCluster = SiteCluster()
    bandwidth: SiteBandwidth = SiteBandwidth()
    gc: SiteGc = SiteGc()
