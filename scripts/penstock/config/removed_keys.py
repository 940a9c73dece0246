"""Keys that configurations had before 1.0, and what stands in their place: a configuration that still has one
is refused by a message that says so (`config.validation`). Pure. A row may go with 1.1."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.config.strict_yaml import KeyPath

_OF_CONTROLLER = "`penstock run --submit` does this step in the controller's job: `cluster.steps.submit`"
_OPTIONS: Mapping[str, str] = {
    "access": "penstock asks for read-only access",
    "client_id": "write it as a line of `credentials_file`",
    "client_kwargs": "write its endpoint_url as `endpoint_url`, its region_name as `region`",
    "hierarchical": "the account is asked, and where it may not be, the listing is sorted",
    "requester_pays": "of gs://, `project` names who pays",
    "tenant_id": "write it as a line of `credentials_file`",
    "timeout": "`engine.timeout` holds for all sources",
    "token": "write `anon: true` for anon, `instance_metadata: true` for cloud, `reader: fsspec` for others",
}
"""Of penstock's own readers. With `reader: fsspec` the library takes its own."""
_LIST_FORMAT = (
    "a list's name says what it is (.csv, .csv.gz, .parquet); any other is read as lines, or by its NULs"
)
_STRIPING = "`target.striping: targets=4, chunk=1MiB` sets both"
_POOL = "new files have it from the target's folder, which the file system's own command changes"
_OPS = "the site sets `target.ops`, in /etc/penstock/site.yaml"
_NODES = "cluster.constraint, exclude, partition and reservation choose the nodes"
_UPDATED = "`scontrol update JobId=<array> {}` changes an array that waits"
INSTEAD: Mapping[str, str] = {
    "cluster.on_nodes": "`penstock run --submit` has the controller list, plan and publish in a job",
    "cluster.nodelist": _NODES,
    "cluster.gres": _NODES,
    "cluster.tmp": _NODES,
    "cluster.begin": _UPDATED.format("StartTime=2030-01-31T20:00"),
    "cluster.nice": _UPDATED.format("Nice=100"),
    "cluster.comment": _UPDATED.format("Comment=..."),
    "cluster.exclusive": "whole nodes are taken, or with cluster.core_spec: none the CPUs of cluster.cpus",
    "cluster.poll": "SLURM is asked each second at first, then each 15 s, and each minute in long runs",
    "cluster.retries": "an element that failed is submitted again twice, and the same command tries anew",
    "cluster.probe": "preflight tries a node each time, and goes on where none is free for that",
    "cluster.steps.preflight": "the jobs of copy and verify are what preflight tries",
    "cluster.steps.list": _OF_CONTROLLER,
    "cluster.steps.plan": _OF_CONTROLLER,
    "cluster.steps.permissions": _OF_CONTROLLER,
    "cluster.steps.publish": _OF_CONTROLLER,
    "target.ops": _OPS,
    "target.filesystem": "the mount says which kind of file system it is",
    "target.ephemeral": "a BeeOND as target is a warning, and stops no run",
    "gc.ops": f"{_OPS}, and gc takes a fifth of it",
    "target.striping.chunk": _STRIPING,
    "target.striping.targets": _STRIPING,
    "target.striping.pool": _POOL,
    "datasets.<dataset>.list_format": _LIST_FORMAT,
    "datasets.<dataset>.sources[].list_format": _LIST_FORMAT,
    "target.auditors": "whoever can read a release audits it by the same command; the owner's audits "
    "alone speak at the gate, and an administrator closes it by the file HOLD at the root",
    "datasets.<dataset>.follow_limit": "5 % of the files may change, 0.1 % leave; `exclude` others",
    "datasets.<dataset>.specials": "leave FIFOs, sockets and devices out by `exclude`",
    "list": "a listing goes on with what is younger than an hour",
    "plan.shard_bytes": "shards are cut by the number of elements, and have at most 1TiB",
    "plan.shard_files": "shards are cut by the number of elements, and have at most 500,000 files",
    "plan.giant_bytes": "objects of 64GiB and more are split over several elements",
    "plan.part_bytes": "parts have 256MiB",
    "engine.workers": "an element has a process for each of its CPUs; `cluster.cpus` gives it fewer",
    "engine.durability": "it follows from the kind of file system",
    "engine.attempts": "each object is tried five times",
    "verify.reread": "every file is read back",
    "verify.sample": "every file is read back",
    "verify.whole_file_digest": "giants have one where `verify.digests` holds sha256",
    "verify.text_manifest": "releases below 1,000,000 files have manifest.xxh128",
    "gc.settle": "it follows from the file system, and from a mount's acdirmax",
    "gc.longest_pin": "a reader's pin holds for 14 days at most, or for a longer `gc.grace`",
    **{
        f"datasets.<dataset>.{place}storage_options.{option}": instead
        for place in ("", "sources[].")
        for option, instead in _OPTIONS.items()
    },
}
"""By key, as docs/configuration.md would write it (`datasets.<dataset>.sources[].url`; a key of
`cluster.steps.<step>` stands as one of `cluster`): what to do instead, as the end of a sentence."""


def instead(path: KeyPath) -> str | None:
    """What a person does instead of setting this key; None for a key that never was."""
    return INSTEAD.get(_as_documented(path))


def _as_documented(path: KeyPath) -> str:
    names: list[str] = []
    for key in path:
        if isinstance(key, int):
            names[-1] += "[]"
        else:
            names.append(str(key))
    if names[0] == "datasets" and len(names) > 1:
        names[1] = "<dataset>"
    if names[:2] == ["cluster", "steps"] and len(names) > 3:
        del names[1:3]
    return ".".join(names)
