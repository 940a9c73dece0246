"""Which mode and ACL each file and folder of a release is to have, by `permissions` of the configuration: one
mode each for files and folders, other modes by path, and an ACL. Pure; `target.modes` sets what stands here,
audit and repair compare with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.core import posix_acl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.config.patterns import Patterns
    from penstock.core.documents.seal import SealedPermissions
    from penstock.core.posix_acl import Acl, NamedEntry

FILE_BITS, DIR_BITS = 0o775, 0o2775
"""Modes are cut to these: never for all to write, never setuid or sticky, and setgid for folders alone."""


class Rule(Protocol):
    """A mode by path, as `settings.ModeRule` and the seal have it: `match` is a pattern of gitignore; `file`
    and `dir` are modes, None: the rule says nothing of them."""

    @property
    def match(self) -> str: ...
    @property
    def file(self) -> int | None: ...
    @property
    def dir(self) -> int | None: ...


class Access(NamedTuple):
    """What one file or folder is to have."""

    mode: int
    """As lstat shows it: with an ACL, its group bits are the mask."""
    acl: Acl | None = None
    """None: not looked at."""
    default: Acl | None = None
    """What is made in a folder inherits this one."""


class AccessRules:
    """The rules of one release. Falsy where they say nothing beside one mode for files and one for folders.

    | what                              | mode                                              |
    |-----------------------------------|---------------------------------------------------|
    | rules that match and name a mode  | that of the last of them                          |
    | none                              | the one that the caller gives                     |
    | with entries of users and groups  | its group bits are the ACL's mask                 |

    A folder's default ACL has its entries, and lets the owner of what is made in it do what its mode says.
    """

    def __init__(self, modes: Sequence[Rule] = (), named: Sequence[NamedEntry] = ()) -> None:
        """`named`: entries of users and groups, by uid and gid, not by name. Raises ConfigError for a pattern
        that gitignore does not know."""
        self._given = tuple(modes)
        self._named = tuple(named)
        self._rules = [(rule, _patterns(rule.match)) for rule in reversed(modes)]
        self._known: dict[tuple[int, bool], Access] = {}

    def __reduce__(self) -> tuple[type[AccessRules], tuple[object, ...]]:
        return AccessRules, (self._given, self._named)

    def __bool__(self) -> bool:
        return bool(self._named or self._rules)

    @property
    def has_acl(self) -> bool:
        """Whether ACLs are set and compared."""
        return bool(self._named)

    @property
    def by_path(self) -> bool:
        """Whether files of one release have different modes."""
        return any(rule.file is not None for rule, _ in self._rules)

    @property
    def entries(self) -> tuple[str, ...]:
        """The entries of the ACL, by number."""
        return tuple(map(str, self._named))

    def file(self, path: str, mode: int) -> Access:
        """What a file is to have, by its path below `data`; `mode` where no rule names one."""
        for rule, pattern in self._rules:
            if rule.file is not None and pattern.match(path):
                mode = rule.file
                break
        return self._access(mode & FILE_BITS, folder=False)

    def folder(self, path: str, mode: int) -> Access:
        """What a folder is to have, as of `file`; "" and "." are `data` itself, which no pattern matches."""
        if path not in ("", "."):
            for rule, pattern in self._rules:
                if rule.dir is not None and pattern.match(f"{path}/"):
                    mode = rule.dir
                    break
        return self._access(mode & DIR_BITS, folder=True)

    def _access(self, mode: int, *, folder: bool) -> Access:
        if not self._named:
            return Access(mode)
        known = self._known.get((mode, folder))
        if known is None:
            named = {(one.tag, int(one.who)): one.bits(mode, folder=folder) for one in self._named}
            acl = posix_acl.made(mode, named)
            default = posix_acl.made(mode | 0o700, named) if folder else None
            known = self._known[mode, folder] = Access(posix_acl.shown_mode(mode, acl), acl, default)
        return known


NO_RULES = AccessRules()
"""One mode for files and one for folders, as the caller gives them; no ACL."""


def sealed_rules(published: SealedPermissions) -> AccessRules:
    """The rules that a release was published with, by its seal. Raises ValueError for an ACL entry that is
    none, ConfigError as `AccessRules`."""
    return AccessRules(published.modes, [posix_acl.parse(text) for text in published.acl])


def _patterns(match: str) -> Patterns:
    from penstock.config.patterns import Patterns

    return Patterns("permissions.modes", [match])
