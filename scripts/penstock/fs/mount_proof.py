"""What the options of a mount prove: which reads come from the servers, not from this machine's caches, and
where an fsync ends. Pure; made by the `mount` modules, used by `capabilities` and the cold read."""

from __future__ import annotations

from typing import Literal, NamedTuple

Method = Literal["any", "dropped", "synced", "direct"]

IN_WORDS: dict[Method, str] = {
    "any": "each read comes from the servers",
    "dropped": "a read by O_DIRECT, or after the pages were dropped, comes from the servers",
    "synced": "after an fsync, a read by O_DIRECT, or after the pages were dropped, comes from the servers",
    "direct": "a read by O_DIRECT alone comes from the servers",
}
"""By method, which reads pass this machine's caches. O_DIRECT passes them under each."""


class MountProof(NamedTuple):
    """What one mount proves. Without a client that says otherwise, a read counts as cold after its pages were
    dropped from the page cache (`kinds.Kind.one_cache`)."""

    method: Method = "dropped"
    fsync_ends: str = ""
    """Where an fsync ends, if not on the servers' disks, and why; "" where nothing says so."""
    direct_from_disks: bool = False
    """The client hands O_DIRECT on to the servers, which then read from their disks, not from memory. It does
    so where nobody on this node has the file open for plain reads."""
    direct_harms: bool = False
    """While a process has a file open by O_DIRECT, plain reads of it by other processes of this node fail,
    unless their offset and length are aligned."""

    @property
    def drops_count(self) -> bool:
        """Whether a read through the page cache, after its pages were dropped, counts as cold.

        | method    | counts | because                                                     |
        |-----------|--------|-------------------------------------------------------------|
        | `any`     | yes    | there is no cache; the absent pages are looked for even so  |
        | `dropped` | yes    |                                                             |
        | `synced`  | yes    | what was written is durable before it is read back, always  |
        | `direct`  | no     | what the client keeps beside the page cache is not known    |
        """
        return self.method != "direct"


_WEAKEST_FIRST: tuple[Method, ...] = ("direct", "synced", "dropped", "any")


def weakest(proofs: list[MountProof]) -> MountProof:
    """The weakest of these, at least one, where each of several may be the mount's."""
    method = min((one.method for one in proofs), key=_WEAKEST_FIRST.index)
    return MountProof(
        method,
        next((one.fsync_ends for one in proofs if one.fsync_ends), ""),
        all(one.direct_from_disks for one in proofs),
        any(one.direct_harms for one in proofs),
    )
