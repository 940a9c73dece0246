"""A storage whose functions that make many metadata operations wait their turn, within a root's budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.config.settings import PermissionsConfig
    from penstock.core.documents.step_results import ModesSet
    from penstock.storage.port import AdoptedFiles, Mender


class PacedStorage:
    """`plain`, a `port.Storage` on a POSIX tree, whose `remove_tree`, `remove_release`, `set_permissions` and
    menders wait by `spend(n)`, from any thread, before n operations. What is not named here makes a few
    operations, or is paced by itself (`paced_writer`)."""

    def __init__(self, plain: Any, spend: Callable[[int], None]) -> None:
        self._plain, self._spend = plain, spend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def remove_tree(self, path: Path, /, *, moved: Callable[[int], None] | None = None) -> None:
        self._plain.remove_tree(path, self._spend, moved=moved)

    def remove_release(self, path: Path, /, *, moved: Callable[[int], None] | None = None) -> None:
        self._plain.remove_release(path, self._spend, moved=moved)

    def set_permissions(self, staging: Path, policy: PermissionsConfig, gid: int | None, /) -> ModesSet:
        seen: ModesSet = self._plain.set_permissions(staging, policy, gid, self._spend)
        return seen

    def adopted_files(self, data: Path, aside: Path, /, **policy: Any) -> AdoptedFiles:
        made: AdoptedFiles = self._plain.adopted_files(data, aside, **policy, spend=self._spend)
        return made

    def mender(self, data: Path, /, **published: Any) -> Mender:
        from penstock.storage.paced_mender import PacedMender

        return PacedMender(self._plain.mender(data, **published), self._spend)
