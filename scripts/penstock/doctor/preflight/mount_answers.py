"""What the file systems of folders answer to this machine, each within a deadline: a mount that hangs stops
preflight with a message, and hangs nothing."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config.source_kinds import FOLDER, folder, of_url
from penstock.core.documents.node_answer import MountSeen
from penstock.core.errors import ConfigError, PreflightError, TargetAwayError
from penstock.fs.servers import TARGET
from penstock.fs.watched_facts import SilentFolder, watched_facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.config.settings import BandwidthConfig, SourceConfig, TargetConfig
    from penstock.fs.capabilities import StorageFacts


class Answers:
    """The facts of folders, all asked at once. No further call may be made on a folder that is silent."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._facts = watched_facts(list(folders))

    def silent(self, *folders: Path | None) -> bool:
        """Whether one of these did not answer; None is no folder."""
        return any(isinstance(self._facts.get(one), SilentFolder) for one in folders if one is not None)

    def require(self, path: Path, what: str) -> None:
        """Raises PreflightError where the folder is silent, TargetAwayError of `TARGET`. `what` is the folder
        for people."""
        answer = self._facts[path]
        if isinstance(answer, SilentFolder):
            raise answer.error(what, TargetAwayError if what == TARGET else PreflightError)

    def facts(self, path: Path, what: str) -> StorageFacts:
        """Raises as `require`, and the OSError of a folder that cannot be looked at."""
        self.require(path, what)
        answer = self._facts[path]
        if isinstance(answer, OSError):
            raise answer
        assert not isinstance(answer, SilentFolder)
        return answer

    def mount(self, path: Path) -> MountSeen:
        """The same as documents have it: why nothing is known is its `error`."""
        answer = self._facts[path]
        if isinstance(answer, SilentFolder):
            return MountSeen(str(path), error=f"no answer within {answer.seconds:.0f} s")
        if isinstance(answer, OSError):
            return MountSeen(str(path), error=answer.strerror or str(answer))
        return MountSeen(
            path=str(path),
            kind=answer.kind,
            options=answer.mount_options,
            device=answer.device,
            free_bytes=answer.free_bytes,
            total_bytes=answer.total_bytes,
            free_inodes=answer.free_inodes,
            durability=answer.durability,
            read_only=answer.read_only,
            passable=answer.passable,
        )


def roots(target: TargetConfig) -> list[Path]:
    """The target's folders."""
    return [one for one in (target.root, target.state_root) if one is not None]


def cap_folders(bandwidth: BandwidthConfig) -> list[Path]:
    """The folder of the cap on a network link (`bandwidth.folder`), if there is one."""
    return [] if bandwidth.folder is None else [bandwidth.folder]


def folders(sources: Sequence[SourceConfig]) -> list[Path]:
    """Those of the sources that are folders. A URL that cannot be one is left out: it is reported where the
    sources are opened."""
    folders = []
    for source in sources:
        with contextlib.suppress(ConfigError):
            if of_url(source.url) is FOLDER:
                folders.append(Path(folder(source.url)))
    return folders
