"""Compares modes, owner, group and ACLs with those that a release was published with."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from penstock.config.access_rules import sealed_rules
from penstock.core.posix_acl import in_words
from penstock.fs.owners import (
    ACCESS,
    DEFAULT,
    NONE_KEPT,
    acl_allows,
    group_name,
    is_another,
    read_acl,
    user_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.config.access_rules import Access
    from penstock.core.seal import SealedPermissions


class PublishedPermissions:
    """The permissions that the seal states, by path where the configuration gave paths modes of their own."""

    def __init__(
        self, published: SealedPermissions, *, owner: int | None = None, mapped: bool = False
    ) -> None:
        """`owner`: the present owner of the dataset, never a deviation: root may have given the dataset away
        since. `mapped`: the mount maps owners' numbers (`fs.owners`), so names decide, and ACLs are not
        compared."""
        self._published, self._owner, self._mapped = published, owner, mapped
        self._rules = sealed_rules(published)
        self.by_path = self._rules.by_path  # whether some path has a mode of its own
        self.has_acl = self._rules.has_acl and not mapped  # whether there are ACLs to compare
        self.acl = ", ".join(published.acl)

    def deviates(self, kind: str, path: str, mode: int, uid: int, gid: int) -> str:
        """Describe how a `file` or `dir` deviates, its ACL aside; "" if it does not."""
        why = []
        published, wanted = self._published, self._wanted(kind, path)
        if mode != wanted.mode:
            why.append(f"mode {mode:04o}, published with {wanted.mode:04o}")
        if uid != self._owner:
            why += self._another("owner", uid, user_name, published.uid, published.user, "published by")
        why += self._another("group", gid, group_name, published.gid, published.group, "published with")
        return ", ".join(why)

    def acl_deviates(self, kind: str, path: str, place: str) -> str:
        """Describe how the ACLs read from `place` deviate; "" too for a link or a missing file."""
        wanted = self._wanted(kind, path)
        deviations = []
        try:
            for name, acl in ((ACCESS, wanted.acl), (DEFAULT, wanted.default)):
                actual = None if acl is None else read_acl(place, name, follow=kind == "dir")
                if acl is not None and not acl_allows(actual, acl):
                    what = "default ACL" if name == DEFAULT else "ACL"
                    deviations.append(f"{what} {in_words(actual)}, published with {in_words(acl)}")
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, *NONE_KEPT):
                return ""
            deviations.append(f"its ACL cannot be read: {error.strerror}")
        return ", ".join(deviations)

    def _wanted(self, kind: str, path: str) -> Access:
        published = self._published
        if kind == "dir":
            return self._rules.folder(path, published.dir_mode)
        return self._rules.file(path, published.file_mode)

    def _another(
        self,
        what: str,
        number: int,
        name: Callable[[int], str],
        wanted: int | None,
        published_name: str,
        how: str,
    ) -> Iterator[str]:
        """Describe an owner or group that differs from the published one."""
        if wanted is None or (number == wanted and not self._mapped):
            return
        here = name(number) if published_name else ""
        if is_another(number, here, wanted, published_name, mapped=self._mapped):
            yield f"{what} {_numbered(number, here)}, {how} {_numbered(wanted, published_name)}"


def _numbered(number: int, name: str) -> str:
    return f"{number} ({name})" if name else str(number)
