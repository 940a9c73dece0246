"""The published files that a repair replaces: those of its release, and those of others that share them.

It replaces no file: `target.file_replacement` does, which gets its modes and owner from here. But the object
that `mender_of` makes opens the release's `data`, and makes that folder again where it is missing.
"""

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
    from penstock.core.documents.seal import Seal, SealedPermissions
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context

NAMED = 1000
"""Paths that a line of the history names."""


def mender_of(context: Context, layout: DatasetLayout, seal: Seal, release: str) -> Mender:
    """What replaces files of the release, with the modes, group and owner that were published.
    Raises FailedError where its ACL cannot be set again on this mount."""
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
    """Raises FailedError where the numbers in the release's ACL are others on this mount."""
    if published.acl and is_mapped(data):
        raise FailedError(
            "the release's ACL cannot be set again here",
            where=str(data),
            why="this mount maps the numbers of users and groups, by which the ACL names them",
            hint="repair on a machine that mounts it without id mapping",
        )
    return sealed_rules(published)


def inode_of(layout: DatasetLayout, release: str, path: str) -> os.stat_result | None:
    """What stands at the path in a release; None where nothing does."""
    try:
        return os.lstat(layout.release(release) / DATA / path)
    except OSError:
        return None
