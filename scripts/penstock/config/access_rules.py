"""Decides the mode and ACL that each file and folder of a release should have, from the configuration's
`permissions`. Also has gitignore's patterns, with which rules and filters choose keys and paths. Pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.core import posix_acl
from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.posix_acl import Acl, NamedEntry
    from penstock.core.seal import SealedPermissions


_SPECIAL = re.compile(r"[\\*?\[\]!# ]")


def of_file_alone(key: str) -> tuple[str, str]:
    """Return the patterns that together match only this key, and nothing below a folder of the same name."""
    literal = _SPECIAL.sub(r"\\\g<0>", key)
    return f"/{literal}", f"!/{literal}/**"


def written(patterns: Sequence[str]) -> str:
    """Write patterns as a list that can be pasted into the configuration."""
    return f"[{', '.join(_quoted(pattern) for pattern in patterns)}]"


def _quoted(pattern: str) -> str:
    return "'" + pattern.replace("'", "''") + "'"


class Patterns:
    """Patterns in order. Raises ConfigError, for the key `where`, if a pattern has an unknown form. Paths of
    folders end in a slash."""

    def __init__(self, where: str, patterns: Sequence[str]) -> None:
        from pathspec import GitIgnoreSpec

        try:
            self._spec = GitIgnoreSpec.from_lines(
                ["/**" if pattern == "**" else pattern for pattern in patterns]
            )
        except ValueError as error:
            raise ConfigError(
                "a pattern cannot be used",
                where=where,
                why=str(error),
                hint="patterns are those of gitignore, as in `**/*.jpg`",
            ) from error

    def match(self, key: str) -> bool:
        """Return whether a pattern matches, and no later pattern excludes the key again."""
        return self._spec.match_file(_named(key))


def _named(key: str) -> str:
    """Replace line feeds, as no pattern can contain one, and pathspec's `.` does not match it."""
    return key.replace("\n", "\x01") if "\n" in key else key


# The rules of `permissions`. `target.modes` sets these modes and ACLs; audit and repair compare them.

# The bits that a mode may have: never writable for all, no setuid or sticky, setgid only for folders.
FILE_BITS, DIR_BITS = 0o775, 0o2775


class Rule(Protocol):
    """The modes for paths that the gitignore pattern `match` matches, as in `settings.ModeRule` and the seal.
    A mode of None is not set."""

    @property
    def match(self) -> str: ...
    @property
    def file(self) -> int | None: ...
    @property
    def dir(self) -> int | None: ...


class Access(NamedTuple):
    """The access rights that a file or folder should have."""

    mode: int  # the mode that lstat shows; with an ACL, its group bits are the mask
    acl: Acl | None = None  # the access ACL; None if it is not checked
    default: Acl | None = None  # the folder's default ACL, which everything made in the folder inherits


class AccessRules:
    """The rules of a release. Falsy if one mode for files, and one for folders, are enough.

    | case                              | mode                                              |
    |-----------------------------------|---------------------------------------------------|
    | rules match and set a mode        | the mode of the last such rule                    |
    | no rule matches and sets a mode   | the caller's mode                                 |
    | users or groups have ACL entries  | the same, with the ACL's mask as its group bits   |

    A folder's default ACL has the same entries as its access ACL. The mode with which a file or folder is
    made decides its owner's rights.
    """

    def __init__(self, modes: Sequence[Rule] = (), named: Sequence[NamedEntry] = ()) -> None:
        """`named` are the ACL's entries of users and groups, by number. Raises ConfigError for a pattern that
        gitignore does not know."""
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
        return bool(self._named)

    @property
    def by_path(self) -> bool:
        """Whether files of the release have different modes."""
        return any(rule.file is not None for rule, _ in self._rules)

    @property
    def entries(self) -> tuple[str, ...]:
        """The ACL's entries, by number."""
        return tuple(map(str, self._named))

    def file(self, path: str, mode: int) -> Access:
        """Return the access of a file, by its path below `data`. `mode` is the mode if no rule sets one."""
        for rule, pattern in self._rules:
            if rule.file is not None and pattern.match(path):
                mode = rule.file
                break
        return self._access(mode & FILE_BITS, folder=False)

    def folder(self, path: str, mode: int) -> Access:
        """Return the access of a folder. No pattern matches "" and ".", which are `data` itself."""
        if path not in ("", "."):
            for rule, pattern in self._rules:
                if rule.dir is not None and pattern.match(f"{path}/"):
                    mode = rule.dir
                    break
        return self._access(mode & DIR_BITS, folder=True)

    def _access(self, mode: int, *, folder: bool) -> Access:
        if not self._named:
            return Access(mode)
        access = self._known.get((mode, folder))
        if access is None:
            named = {(entry.tag, int(entry.who)): entry.bits(mode, folder=folder) for entry in self._named}
            acl = posix_acl.made(mode, named)
            default = posix_acl.made(mode | 0o700, named) if folder else None
            access = self._known[mode, folder] = Access(posix_acl.shown_mode(mode, acl), acl, default)
        return access


# rules that leave the caller's modes, one for files and one for folders, and set no ACL
NO_RULES = AccessRules()


def sealed_rules(published: SealedPermissions) -> AccessRules:
    """Return the rules in a release's seal. Raises ValueError for an invalid ACL entry, and ConfigError as
    `AccessRules` does."""
    return AccessRules(published.modes, [posix_acl.parse(text) for text in published.acl])


def _patterns(match: str) -> Patterns:

    return Patterns("permissions.modes", [match])
