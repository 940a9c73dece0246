"""What file systems answer within a deadline: a mount that hangs becomes a message, and hangs nothing."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config.source_kinds import FOLDER, folder, of_url
from penstock.core.errors import ConfigError, PreflightError, TargetAwayError
from penstock.core.node_answer import MountSeen
from penstock.fs.servers import TARGET
from penstock.fs.watched_facts import SilentFolder, watched_facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.config.settings import BandwidthConfig, SourceConfig, TargetConfig
    from penstock.fs.capabilities import StorageFacts


class Answers:
    """The facts of folders, all asked at once. Make no further call on a silent folder."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._facts = watched_facts(list(folders))

    def silent(self, *folders: Path | None) -> bool:
        """Return whether one of these folders did not answer."""
        return any(isinstance(self._facts.get(path), SilentFolder) for path in folders if path is not None)

    def require(self, path: Path, what: str) -> None:
        """Raise PreflightError where the folder is silent, TargetAwayError for `TARGET`. `what` names it for
        people."""
        answer = self._facts[path]
        if isinstance(answer, SilentFolder):
            raise answer.error(what, TargetAwayError if what == TARGET else PreflightError)

    def facts(self, path: Path, what: str) -> StorageFacts:
        """Return a folder's facts. Raises as `require`, and the OSError of a folder that cannot be
        examined."""
        self.require(path, what)
        answer = self._facts[path]
        if isinstance(answer, OSError):
            raise answer
        assert not isinstance(answer, SilentFolder)
        return answer

    def mount(self, path: Path) -> MountSeen:
        """Return the facts for documents; `error` tells why there are none."""
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
    return [path for path in (target.root, target.state_root) if path is not None]


def cap_folders(bandwidth: BandwidthConfig) -> list[Path]:
    return [] if bandwidth.folder is None else [bandwidth.folder]


def folders(sources: Sequence[SourceConfig]) -> list[Path]:
    """List the sources that are folders. An impossible URL is reported where sources are opened."""
    folders = []
    for source in sources:
        with contextlib.suppress(ConfigError):
            if of_url(source.url) is FOLDER:
                folders.append(Path(folder(source.url)))
    return folders
