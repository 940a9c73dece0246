"""The published files that a repair replaces, in its own and in other releases, by
`target.file_replacement`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.config.access_rules import sealed_rules
from penstock.core.errors import FailedError
from penstock.core.layout import DATA
from penstock.fs.owners import is_mapped, numbers_here
from penstock.target.file_replacement import Mender

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.config.access_rules import AccessRules
    from penstock.core.layout import DatasetLayout
    from penstock.core.seal import Seal, SealedPermissions
    from penstock.dataset.context import Context

NAMED = 1000  # paths named in a line of the history


def mender_of(context: Context, layout: DatasetLayout, seal: Seal, release: str) -> Mender:
    """Make a mender, which replaces files with the published modes, group and owner. It opens the release's
    `data`, made again if missing. Raises FailedError if this mount cannot restore the ACL."""
    published = seal.permissions
    data = layout.release(release) / DATA
    uid, gid = numbers_here(
        published.uid, published.user, published.gid, published.group, mapped=is_mapped(data)
    )
    return Mender(
        data,
        file_mode=published.file_mode,
        dir_mode=published.dir_mode,
        gid=gid,
        uid=uid,
        rules=_rules(published, data),
        spend=context.spend,
    )


def _rules(published: SealedPermissions, data: Path) -> AccessRules:
    """Raise FailedError if the numbers in the release's ACL differ on this mount."""
    if published.acl and is_mapped(data):
        raise FailedError(
            "the release's ACL cannot be set again here",
            where=str(data),
            why="this mount maps the numbers of users and groups, by which the ACL names them",
            hint="repair on a machine that mounts it without id mapping",
        )
    return sealed_rules(published)


def inode_of(layout: DatasetLayout, release: str, path: str) -> os.stat_result | None:
    try:
        return os.lstat(layout.release(release) / DATA / path)
    except OSError:
        return None
