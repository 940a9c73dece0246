"""What a mount's options prove: which reads come from the servers, not from this machine's caches, and where
an fsync ends."""

from __future__ import annotations

from typing import Literal, NamedTuple

Method = Literal["any", "dropped", "synced", "direct"]

# By method, which reads pass this machine's caches; O_DIRECT passes them under each.
IN_WORDS: dict[Method, str] = {
    "any": "each read comes from the servers",
    "dropped": "a read by O_DIRECT, or after the pages were dropped, comes from the servers",
    "synced": "after an fsync, a read by O_DIRECT, or after the pages were dropped, comes from the servers",
    "direct": "a read by O_DIRECT alone comes from the servers",
}


class MountProof(NamedTuple):
    """What a mount proves. By default a read counts as cold after its pages were dropped from the page cache
    (`kinds.Kind.one_cache`)."""

    method: Method = "dropped"
    fsync_ends: str = ""  # where an fsync ends, if not on the servers' disks, and why; "": not stated
    # The client passes O_DIRECT on to the servers, which then read from their disks, not from memory. It does
    # so where nobody on this node has the file open for plain reads.
    direct_from_disks: bool = False
    # While a process has a file open by O_DIRECT, plain unaligned reads of it by other processes of this node
    # fail.
    direct_harms: bool = False

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
    """Return the weakest of these proofs, at least one: the mount may be any of several."""
    method = min((proof.method for proof in proofs), key=_WEAKEST_FIRST.index)
    return MountProof(
        method,
        next((proof.fsync_ends for proof in proofs if proof.fsync_ends), ""),
        all(proof.direct_from_disks for proof in proofs),
        any(proof.direct_harms for proof in proofs),
    )
